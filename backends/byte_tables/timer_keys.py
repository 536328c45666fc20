"""Keys of timers in byte tables: by key group, then by time.

A key is `key group | moment | key | namespace`. A moment is 8 ordered bytes, the map key of a table
of timers. So the timers of each key group are in order of time.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from holdfast.backends.blocks.block import Block, Column
from holdfast.backends.blocks.columns import encode_keys
from holdfast.backends.byte_tables.keys import KeyLayout, listed_with_groups, with_groups
from holdfast.backends.keys.groups import key_groups
from holdfast.backends.tables.contract import TableSpec
from holdfast.backends.tables.timer_queues import Timer
from holdfast.backends.values.normalizing import INT64_MAX, INT64_MIN

__all__ = ["GROUP_BYTES", "TimeLayout", "mark_from", "mark_of", "mark_up_to", "moment_of"]

GROUP_BYTES = 2
_MOMENT_BYTES = 8
_SIGN_64 = 1 << 63
_WORTH_COLUMNS = 24
"""Fewer timers are encoded faster one by one."""
_moment = struct.Struct(">Q")


class TimeLayout(KeyLayout):
    """The keys of a table of timers, in which the rows of one address are not neighbours."""

    name = "by-time"
    start = GROUP_BYTES + _MOMENT_BYTES

    def __init__(self, spec: TableSpec, groups: Sequence[bytes]) -> None:
        super().__init__(spec, groups)
        self._address = b""
        self._of_key: Any = object()
        self._of_namespace: Any = None

    def stored(self, moment: int, key: Any, namespace: Any) -> bytes:
        """The key under which a timer is kept."""
        if key is not self._of_key or namespace is not self._of_namespace:
            self._address = self.address(key, namespace)
            self._of_key, self._of_namespace = key, namespace
        address = self._address
        return address[:GROUP_BYTES] + _moment.pack(moment + _SIGN_64) + address[GROUP_BYTES:]

    def stored_many(self, timers: Collection[tuple[int, Any, Any]]) -> list[bytes]:
        """`stored` for each moment, key and namespace."""
        if len(timers) < _WORTH_COLUMNS:
            return [self.stored(*timer) for timer in timers]
        moments, keys, namespaces = zip(*timers, strict=True)
        codec = self.spec.keys
        groups = key_groups(codec.hash_many(keys), len(self._groups))
        assert self.spec.map_keys is not None
        columns = [encode_keys(self.spec.map_keys, moments), encode_keys(codec, keys)]
        if self.spec.namespaces is not None:
            columns.append(encode_keys(self.spec.namespaces, namespaces))
        return listed_with_groups(groups, columns)

    def timer(self, stored: bytes) -> Timer:
        """The timer that is kept under a key."""
        key, namespace, _ = self.read(stored)
        (moment,) = _moment.unpack_from(stored, GROUP_BYTES)
        return Timer(moment - _SIGN_64, key, namespace)

    def of_block(self, block: Block) -> Column:
        parts = (block.map_keys, block.keys, block.namespaces)
        return with_groups(block.group_array, [each for each in parts if each is not None])

    def map_keys_of(self, stored: Sequence[bytes], ends: Iterable[int]) -> Column:
        return Column.of([key[GROUP_BYTES : self.start] for key in stored])


def mark_of(stored: bytes) -> bytes:
    """The mark of a timer: its moment and its key group, as ordered bytes."""
    return stored[GROUP_BYTES : GROUP_BYTES + _MOMENT_BYTES] + stored[:GROUP_BYTES]


def moment_of(mark: bytes) -> int:
    """The moment of a mark."""
    (moment,) = _moment.unpack_from(mark)
    return int(moment) - _SIGN_64


def mark_from(moment: int) -> bytes:
    """A bound above every mark before a moment, and below all others."""
    return _moment.pack(moment + _SIGN_64)


def mark_up_to(moment: int) -> bytes:
    """A bound above every mark up to a moment, and below all later ones."""
    if moment < INT64_MIN:
        return b""
    return _moment.pack(min(moment, INT64_MAX) + _SIGN_64) + b"\xff" * GROUP_BYTES
