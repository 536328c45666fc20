"""A store of bytes in one RocksDB database: a column family for each table.

Batches meet the database in the order of keys: neighbours are found in one block, and a hint finds
most of the way into the write buffer, so a sorted batch goes in twice as fast, which pays for
sorting. A batch with more than an eighth of a table's keys is answered by a walk over the table,
many times faster than look-ups. Tried, and of no use: a cache of hot keys, hash indexes, other
block sizes.

Rows that are loaded in bulk become sorted files that are ingested, past write buffers and
compactions. Up to then they stay columns; Python objects are made for a few thousand of them at a
time, since lists of all would leave the processor's cache.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import RdictIter, WriteBatch

from holdfast.backends.byte_tables.contract import (
    ByteColumns,
    ByteEntry,
    ByteStore,
    ByteTable,
    FrozenBytes,
    in_columns,
)
from holdfast.backends.byte_tables.keys import WORTH_SORTING, in_places, is_in_order, order_of
from holdfast.backends.rocksdb.database import (
    Family,
    is_at_end,
    next_entries,
    next_keys,
    scan_options,
    translated,
    translated_error,
)
from holdfast.backends.rocksdb.files import RocksFiles
from holdfast.backends.rocksdb.memory import SlotMemory
from holdfast.backends.rocksdb.metrics import rocks_metrics
from holdfast.backends.rocksdb.options import RocksOptions
from holdfast.backends.tables.metrics import StateMetrics
from holdfast.backends.working_directory import WorkingDirectory
from holdfast.storage import Unavailable

__all__ = ["RocksStore"]

_BATCH_ENTRIES = 32 * 1024
"""How many entries one write has: between writes other threads get memory and the interpreter."""

_WORTH_A_FILE = 32 * 1024
"""From so many loaded entries on, they become a file of their own, past the write buffer."""

_FIRST_WALKED, _MOST_WALKED = 16, 256
"""How many entries a walk takes at once, first and at most: they might be long."""

_LONG_BYTES = 1024
"""Values of this size are looked up one by one: a block of RocksDB has few of them."""

_PAGE_BYTES = 1024 * 1024

_WALKED = 8
"""A look-up of one key takes at least as long as a walk over so many entries."""

_FEW = 64
"""Up to so many entries of a range are removed one by one: every range that was removed as a whole
slows down later scans near it."""

_T = TypeVar("_T")


class RocksStore(ByteStore):
    """Tables in a database that is this object's own, in a directory of its own."""

    def __init__(
        self,
        directory: WorkingDirectory,
        options: RocksOptions,
        memory: SlotMemory,
        *,
        is_incremental: bool,
    ) -> None:
        self._directory = directory
        self._tables: dict[str, _RocksTable] = {}
        self._rocks = RocksFiles(directory.path, options, memory, is_preferred=is_incremental)
        self.files = self._rocks

    def table(self, name: str) -> ByteTable:
        family = self._rocks.family_of(name)
        table = self._tables.get(name)
        if table is None or table.family is not family:
            table = self._tables[name] = _RocksTable(name, self._rocks, family)
        return table

    def drop(self, name: str) -> None:
        self._tables.pop(name, None)
        self._rocks.drop(name)

    def freeze(self) -> FrozenBytes:
        with translated("a snapshot"):
            self._rocks.database.flush()  # frozen tables would keep write buffers in memory
            return _FrozenRocks(self._rocks.families)

    def metrics(self) -> StateMetrics:
        with translated("metrics"):
            return rocks_metrics(self._rocks.database, self._rocks.families)

    def close(self) -> None:
        self._tables.clear()
        self._rocks.close()
        self._directory.close()


class _RocksTable(ByteTable):
    """One column family."""

    def __init__(self, name: str, files: RocksFiles, family: Family) -> None:
        self.family = family
        self._files = files
        self._rocks = family.table
        self._database = files.database
        self._where = f"table {name!r}"

    def get(self, key: bytes) -> bytes | None:
        try:
            found: bytes | None = self._rocks.get(key)
        except Exception as error:
            raise translated_error(error, self._where) from error
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with translated(self._where):
            if len(keys) < WORTH_SORTING:
                return list(self._rocks.get(list(keys)) or ())
            if is_in_order(keys):
                return self._get_in_order(keys)
            order = order_of(keys)
            found = self._get_in_order(in_places(keys, order))
        answers = np.empty(len(found), object)
        answers[order] = np.fromiter(found, object, len(found))
        listed: list[bytes | None] = answers.tolist()
        return listed

    def put(self, key: bytes, value: bytes) -> None:
        try:
            self._rocks.put(key, value)
            self._database.make_room(self.family)
        except Exception as error:
            raise translated_error(error, self._where) from error

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        if len(keys) >= WORTH_SORTING and not is_in_order(keys):
            # In order, an insertion hint finds most of the way into the write buffer.
            order = order_of(keys)
            keys, values = (in_places(each, order) for each in (keys, values))
        for piece in _pieces(self._database.batch_bytes, keys, values):
            batch = self._batch()
            deque(map(batch.put, keys[piece], values[piece]), 0)
            self._write(batch)

    def load_many(self, keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray) -> None:
        if len(keys) < _WORTH_A_FILE:
            super().load_many(keys, values)
            return
        if not _ascend(keys):
            order = pa.array(order_of(keys))
            keys, values = (each.take(order) for each in (keys, values))
            if not _ascend(keys):
                super().load_many(keys, values)  # a key repeats; a file can have each key once
                return
        with translated(self._where):
            self._files.take_in(self.family, keys, values)

    def remove_many(self, keys: Sequence[bytes]) -> None:
        ordered = sorted(set(keys))
        for piece in _pieces(self._database.batch_bytes, ordered):
            batch = self._batch()
            deque(map(batch.__delitem__, ordered[piece]), 0)
            self._write(batch)

    def remove_range(self, first: bytes, end: bytes) -> None:
        keys = self.key_page(first, end, _FEW + 1)
        if len(keys) <= _FEW:
            self.remove_many(keys)
            return
        batch = self._batch()
        batch.delete_range(first, end, self.family.handle)
        self._write(batch)

    def page(self, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        return self._scan(first, end, partial(next_entries, limit=limit))

    def key_page(self, first: bytes, end: bytes | None, limit: int) -> Sequence[bytes]:
        return self._scan(first, end, partial(next_keys, limit=limit))

    def walk(self, limit: Callable[[], int]) -> Iterator[ByteColumns]:
        options = scan_options(is_once=True)
        unseen = b""
        with translated(self._where):
            entries = iter(cast(Any, self._rocks).items(read_opt=options))
        while True:
            with translated(self._where):
                keys, values = in_columns(islice(entries, limit()))
            if not len(keys):
                break
            yield keys, values
            unseen = keys[-1].as_py() + b"\x00"
        with translated(self._where):
            if not is_at_end(self.family, unseen, options):
                raise Unavailable(
                    "not all entries of a table could be read",
                    where=self._where,
                    expected="the last entry",
                    found=f"more behind {unseen.hex()}, where reading ended",
                    fix="Read it again; see that this machine has files to open, and that its disk "
                    "can be read",
                )

    def _scan(
        self, first: bytes, end: bytes | None, taken: Callable[[RdictIter], list[_T]]
    ) -> list[_T]:
        """What `taken` takes from an iterator that is at the first key from `first` on."""
        with translated(self._where):
            iterator = self._rocks.iter(scan_options(end))
            iterator.seek(first)
            return taken(iterator)

    def _get_in_order(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of sorted keys: by a walk where they are dense, else by look-ups."""
        found: list[bytes | None] = []
        if len(keys) * _WALKED > self.family.number("estimate-num-keys"):
            found = self._walk(keys)
        if len(found) < len(keys):
            found += self._rocks.get(list(keys[len(found) :])) or ()
        return found

    def _walk(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys; only of the first ones if far more entries lie between them."""
        found: list[bytes | None] = []
        left = 2 * _WALKED * len(keys)  # twice, since the number of entries is an estimate
        end = keys[-1] + b"\x00"
        options = scan_options(end)
        # Removed entries that are not yet compacted away are skipped, and in no estimate.
        options.set_max_skippable_internal_keys(_WALKED * len(keys))
        entries = iter(cast(Any, self._rocks).items(from_key=keys[0], read_opt=options))
        unseen, count = keys[0], _FIRST_WALKED
        while len(found) < len(keys) and left > 0:
            left -= count
            page: dict[bytes, bytes] = dict(islice(entries, count))
            if not page:
                if not is_at_end(self.family, unseen, options):
                    break
                return found + [None] * (len(keys) - len(found))
            reached = next(reversed(page))
            unseen = reached + b"\x00"
            until = bisect_right(keys, reached, len(found))
            found += map(page.get, keys[len(found) : until])
            if sum(map(len, page.values())) > _LONG_BYTES * len(page):
                break
            count = min(count * 2, _MOST_WALKED)
        return found

    def _batch(self) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        batch.set_default_column_family(self.family.handle)
        return batch

    def _write(self, batch: WriteBatch) -> None:
        if not batch.is_empty():
            with translated(self._where):
                self._database.write(batch, self.family)


def _ascend(keys: pa.LargeBinaryArray) -> bool:
    """Whether each key is greater than the one before."""
    return bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def _pieces(most_bytes: int, *columns: Sequence[bytes]) -> Iterator[slice]:
    """Runs of rows that are limited in number and bytes; a long row is a run by itself."""
    count = len(columns[0])
    if sum(sum(map(len, column)) for column in columns) <= most_bytes:
        for first in range(0, count, _BATCH_ENTRIES):
            yield slice(first, first + _BATCH_ENTRIES)
        return
    ends = list(accumulate(map(sum, zip(*(map(len, column) for column in columns), strict=True))))
    first, done = 0, 0
    while first < count:
        last = min(first + _BATCH_ENTRIES, count)
        end = max(bisect_right(ends, done + most_bytes, first, last), first + 1)
        yield slice(first, end)
        first, done = end, ends[end - 1]


class _FrozenRocks(FrozenBytes):
    """An iterator over each family, all made between the same two writes: they see no later ones.

    A snapshot object of the library cannot be used: its iterators do see later writes.
    """

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._iterators: dict[str, RdictIter] = {
            name: family.table.iter() for name, family in families.items()
        }
        # An iterator would read freed memory once its family is dropped and all handles are gone.
        self._handles = [family.handle for family in families.values()]
        self._reached: dict[str, bytes] = {}

    def page(self, table: str, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        iterator = self._iterators[table]
        with translated(f"table {table!r}"):
            if self._reached.get(table) != first:
                iterator.seek(first)
            entries = next_entries(iterator, limit, _PAGE_BYTES)
        if entries:
            self._reached[table] = entries[-1][0] + b"\x00"
        return entries if end is None else entries[: bisect_left(entries, (end,))]

    def release(self) -> None:
        self._iterators.clear()
        self._handles.clear()
