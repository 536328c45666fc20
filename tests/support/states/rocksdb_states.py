"""State in RocksDB for tests of its files: how it is opened, filled, and read back whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    StateBackend,
    ValueStateDescriptor,
)
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.storage import JobStorage, StateSnapshot

__all__ = [
    "ALL",
    "HIGH",
    "LIST",
    "LOW",
    "MAP",
    "UID",
    "VALUE",
    "Content",
    "content",
    "files_below",
    "fill",
    "opened",
    "rocksdb_in",
]

UID = "op"
ALL, LOW, HIGH = KeyGroupRange(0, 127), KeyGroupRange(0, 63), KeyGroupRange(64, 127)
VALUE = ValueStateDescriptor("value", bytes)
LIST = ListStateDescriptor("list", str)
MAP = MapStateDescriptor("map", str, int)
Content = dict[int, tuple[Any, ...]]


def rocksdb_in(place: Path, **options: Any) -> RocksDBStateBackend:
    """A backend whose files are at this place."""
    return RocksDBStateBackend(memory="16m", directories=[str(place)], **options)


@contextmanager
def opened(
    backend: StateBackend,
    *snapshots: StateSnapshot,
    job: JobStorage | None = None,
    key_groups: KeyGroupRange = ALL,
) -> Iterator[KeyedStateBackend]:
    """The state of an operator, empty or restored."""
    with backend.open(
        uid=UID,
        key_groups=key_groups,
        max_parallelism=128,
        key_type=int,
        restore=snapshots,
        storage=job,
    ) as state:
        yield state


def fill(state: KeyedStateBackend, keys: range = range(300), size_bytes: int = 100) -> None:
    """Something under each key, in states of each kind of table. It does not compress well."""
    chance = random.Random(len(keys))
    values = [chance.randbytes(size_bytes) for _ in keys]
    state.get_state(VALUE).put_many(list(keys), values)
    elements, entries = state.get_state(LIST), state.get_state(MAP)
    for key in keys[::3]:
        state.set_current_key(key)
        elements.add_all([f"a{key}", f"b{key}"])
        entries.put_all({"x": key, "y": -key})


def content(state: KeyedStateBackend) -> Content:
    """All that is there, by key."""
    states = [state.get_state(each) for each in (VALUE, LIST, MAP)]
    found: Content = {}
    for key in sorted({key for each in (VALUE, LIST, MAP) for key in state.keys(each.name)}):
        state.set_current_key(key)
        value, elements, entries = states
        found[key] = (value.value(), elements.get(), sorted(entries.items()))
    return found


def files_below(folder: Path) -> list[Path]:
    """All files in a folder and those in it, if it is there."""
    return [path for path in folder.rglob("*") if path.is_file()]
