"""A store of bytes in memory that counts what it is asked for: for tests of what is above it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from holdfast.backends import ByteEntry, ByteStore, ByteTable, FrozenBytes

__all__ = ["MemoryStore", "MemoryTable"]


class MemoryTable(ByteTable):
    """Sorted keys, and values by key. Keys that were removed leave a trace, as in RocksDB."""

    def __init__(self, calls: Counter[str]) -> None:
        self.calls = calls
        self.values: dict[bytes, bytes | None] = {}
        self._keys: list[bytes] = []
        self._is_sorted = True

    @property
    def keys(self) -> list[bytes]:
        """All that were ever put, in order."""
        if not self._is_sorted:
            self._keys.sort()
            self._is_sorted = True
        return self._keys

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.values.get(key) for key in keys]

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self.calls["put_many"] += 1
        self._set(keys, values)

    def remove_many(self, keys: Sequence[bytes]) -> None:
        self.calls["remove_many"] += 1
        self._set(keys, [None] * len(keys))

    def remove_range(self, first: bytes, end: bytes) -> None:
        self.remove_many(self.keys[bisect_left(self.keys, first) : bisect_left(self.keys, end)])

    def page(self, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        self.calls["page"] += 1
        found: list[ByteEntry] = []
        keys = self.keys
        for place in range(bisect_left(keys, first), len(keys)):
            key = keys[place]
            if len(found) == limit or (end is not None and key >= end):
                break
            self.calls["key passed"] += 1
            value = self.values[key]
            if value is not None:
                found.append((key, value))
        return found

    def copy(self) -> MemoryTable:
        """As it is now."""
        other = MemoryTable(Counter())
        other.values, other._keys = dict(self.values), list(self.keys)
        return other

    def _set(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self.calls["key written"] += len(keys)
        self._keys += [key for key in dict.fromkeys(keys) if key not in self.values]
        self.values.update(zip(keys, values, strict=True))
        self._is_sorted = False


class MemoryStore(ByteStore):
    """Tables by name; `calls` says how often what was asked for."""

    def __init__(self) -> None:
        self.tables: dict[str, MemoryTable] = {}
        self.calls: Counter[str] = Counter()

    def table(self, name: str) -> ByteTable:
        return self.tables.setdefault(name, MemoryTable(self.calls))

    def drop(self, name: str) -> None:
        self.tables.pop(name, None)

    def freeze(self) -> FrozenBytes:
        return _Frozen({name: table.copy() for name, table in self.tables.items()})

    def close(self) -> None:
        self.tables.clear()


class _Frozen(FrozenBytes):
    def __init__(self, tables: dict[str, MemoryTable]) -> None:
        self._tables = tables

    def page(self, table: str, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        return self._tables[table].page(first, end, limit)

    def release(self) -> None:
        self._tables.clear()
