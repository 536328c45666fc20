"""The small contract for a key-value store: implement this, and the house makes tables of it.

A store of bytes is a set of tables, each an ordered map from byte strings to byte strings. Which
bytes stand for which state is the business of `holdfast.backends.byte_tables`: an implementation
never looks into a key or a value.

Everything is called by the one thread that owns the backend, but for `FrozenBytes`.
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
"""Keys, and in the same places their values."""


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
        """Set a value for each key; of several for one key the last counts."""

    def load_many(self, keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray) -> None:
        """`put_many`, where a table is filled. Override it where there is a quicker way."""
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

        Fewer only where there are no more.
        """

    def walk(self, limit: Callable[[], int]) -> Iterator[ByteColumns]:
        """All entries in order, page by page; `limit` answers how many the next one has at most.

        Nobody changes the table meanwhile. Override it where there is a quicker way.
        """
        first = b""
        while page := self.page(first, None, limit()):
            yield in_columns(page)
            first = page[-1][0] + b"\x00"

    def key_page(self, first: bytes, end: bytes | None, limit: int) -> Sequence[bytes]:
        """The keys of `page`. Override it where they come without their values."""
        return [key for key, _ in self.page(first, end, limit)]

    def get(self, key: bytes) -> bytes | None:
        """The value, or None. Override it where one key has a shorter way than many."""
        return self.get_many((key,))[0]

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value. Override it where one key has a shorter way than many."""
        self.put_many((key,), (value,))


class FrozenBytes(ABC):
    """All tables as they were at one moment.

    One background thread reads it, while the owner goes on; what it reads does not change.
    """

    @abstractmethod
    def page(self, table: str, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        """As `ByteTable.page`, of a table that was there at that moment.

        There may be fewer where they are long: only where there are none, there are no more.
        """

    @abstractmethod
    def release(self) -> None:
        """Let go of it; called exactly once, and before `ByteStore.close` comes to its end."""


class ByteStore(ABC):
    """The tables of one operator in one slot. Nothing in it has to survive `close` or a crash."""

    files: ByteFiles | None = None
    """Snapshots that are files of the store, if it can make them."""

    @abstractmethod
    def table(self, name: str) -> ByteTable:
        """Make a table of this name, or open the one that there is. Any text is a name."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Remove a table with all that is in it, if there is one."""

    @abstractmethod
    def freeze(self) -> FrozenBytes:
        """All tables as they are now; processing waits for this call, so it has to be short.

        Several may be held at once.
        """

    def metrics(self) -> StateMetrics:
        """Numbers that the store has of itself, by table; see `TableStore.metrics`."""
        return StateMetrics()

    @abstractmethod
    def close(self) -> None:
        """Give everything back, files and memory."""
