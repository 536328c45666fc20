"""The contract of a key-value store: implement it, and `ByteTableStore` makes state tables of it.

A store of bytes is a set of tables, each an ordered map from byte strings to byte strings.
`ByteTableStore` decides which bytes represent which state: an implementation never interprets a key
or a value.

The one thread that owns the backend calls everything here, except `FrozenBytes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from holdfast.backends.blocks.block import listed
from holdfast.backends.tables.files import ByteFiles
from holdfast.backends.tables.metrics import StateMetrics

__all__ = ["ByteColumns", "ByteEntry", "ByteStore", "ByteTable", "FrozenBytes", "in_columns"]

ByteEntry: TypeAlias = tuple[bytes, bytes]
"""A key and its value."""

ByteColumns: TypeAlias = tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]
"""A column of keys, and the column of their values in the same order."""


def in_columns(entries: Iterable[ByteEntry]) -> ByteColumns:
    """The same entries in columns."""
    keys: list[bytes] = []
    values: list[bytes] = []
    for key, value in entries:
        keys.append(key)
        values.append(value)
    return pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())


class ByteTable(ABC):
    """One ordered map. Keys are ordered as Python orders bytes; keys and values may be empty."""

    @abstractmethod
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value or None for each key; keys may repeat."""

    @abstractmethod
    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set a value for each key; the last one for a key wins."""

    def load_many(self, keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray) -> None:
        """`put_many` for loading a table. Override it where there is a faster way."""
        self.put_many(listed(keys), listed(values))

    @abstractmethod
    def remove_many(self, keys: Sequence[bytes]) -> None:
        """Remove each key that is there; keys may repeat."""

    @abstractmethod
    def remove_range(self, first: bytes, end: bytes) -> None:
        """Remove every key from `first` to before `end`."""

    @abstractmethod
    def page(self, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        """The first `limit` entries from `first` to before `end` (None: to the last), in order.

        It has fewer than `limit` only if there are no more.
        """

    def walk(self, limit: Callable[[], int]) -> Iterator[ByteColumns]:
        """All entries in order, page by page; `limit` answers the most entries of the next page.

        The table does not change meanwhile. Override it where there is a faster way.
        """
        first = b""
        while page := self.page(first, None, limit()):
            yield in_columns(page)
            first = page[-1][0] + b"\x00"

    def key_page(self, first: bytes, end: bytes | None, limit: int) -> Sequence[bytes]:
        """The keys of `page`. Override it where keys can be read without their values."""
        return [key for key, _ in self.page(first, end, limit)]

    def get(self, key: bytes) -> bytes | None:
        """The value, or None. Override it where a single key is faster."""
        return self.get_many((key,))[0]

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value. Override it where a single key is faster."""
        self.put_many((key,), (value,))


class FrozenBytes(ABC):
    """All tables as they were at one moment.

    One background thread reads it while the owner goes on; what it reads does not change.
    """

    @abstractmethod
    def page(self, table: str, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        """As `ByteTable.page`, of a table that was there at that moment.

        A page may have fewer entries where they are long; only an empty page is the end.
        """

    @abstractmethod
    def release(self) -> None:
        """Release it; called exactly once, before `ByteStore.close` returns."""


class ByteStore(ABC):
    """The tables of one operator in one slot. Nothing in it has to survive `close` or a crash."""

    files: ByteFiles | None = None
    """Snapshots as files of the store, if it supports them."""

    @abstractmethod
    def table(self, name: str) -> ByteTable:
        """Make a table of this name, or open the one that there is. Any text is a name."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Remove a table with its content, if it exists."""

    @abstractmethod
    def freeze(self) -> FrozenBytes:
        """All tables as they are now. Processing waits for this call, so it must be short.

        Several may be held at once.
        """

    def metrics(self) -> StateMetrics:
        """Metrics of the store, by table; see `TableStore.metrics`."""
        return StateMetrics()

    @abstractmethod
    def close(self) -> None:
        """Release everything, files and memory."""
