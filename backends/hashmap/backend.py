"""The hashmap backend: state in Python dicts, in the memory of this process."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.backends.hashmap.tables import ObjectTableStore
from holdfast.backends.interface import StateBackend
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.tables.contract import TableStore

__all__ = ["HashMapStateBackend"]


@dataclass(frozen=True)
class HashMapStateBackend(StateBackend):
    """Keeps state in this process's memory. It has no options."""

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        return ObjectTableStore(max_parallelism)
