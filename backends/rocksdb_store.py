"""A store of bytes in one RocksDB database: a column family for each table, no write-ahead log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rocksdict import ColumnFamily, Options, Rdict, RdictIter, ReadOptions, WriteBatch, WriteOptions

from holdfast.backends.byte_store import ByteEntry, ByteStore, ByteTable, FrozenBytes
from holdfast.backends.rocksdb_options import SlotMemory
from holdfast.backends.working_directory import WorkingDirectory
from holdfast.storage import Corrupt, HoldfastError, Unavailable

__all__ = ["RocksStore"]

_FEW = 64
"""Up to so many entries of a range are removed one by one: a range that was removed makes every
later scan near it look at one more thing."""


class RocksStore(ByteStore):
    """Tables in a database that is this object's own, in a directory of its own."""

    def __init__(
        self, directory: WorkingDirectory, options: Callable[[], Options], memory: SlotMemory
    ) -> None:
        self._directory = directory
        self._memory = memory
        self._options = options
        self._tables: dict[str, _RocksTable] = {}
        with _translated(f"database {directory.path}"):
            self._database = Rdict(str(directory.path / "db"), options())
            self._database.set_write_options(_no_log())

    def table(self, name: str) -> ByteTable:
        if name not in self._tables:
            with _translated(f"table {name!r}"):
                family = self._database.create_column_family(_family(name), self._options())
                family.set_write_options(_no_log())
                handle = self._database.get_column_family_handle(_family(name))
            self._tables[name] = _RocksTable(name, self._write, family, handle)
        return self._tables[name]

    def drop(self, name: str) -> None:
        table = self._tables.pop(name, None)
        if table is not None:
            with _translated(f"table {name!r}"):
                self._database.drop_column_family(_family(name))
            with suppress(Exception):  # that it is gone
                table.family.close()

    def freeze(self) -> FrozenBytes:
        with _translated("a snapshot"):
            return _FrozenRocks({name: table.family.iter() for name, table in self._tables.items()})

    def close(self) -> None:
        # Each family too: one that is only let go of would write its entries to files when it is
        # collected as garbage, and try so for seconds where the directory is gone.
        for closing in (*(table.family for table in self._tables.values()), self._database):
            with suppress(Exception):  # of a full disk, say: nothing of this has to last
                closing.close()
        self._tables.clear()
        self._directory.close()

    def _write(self, batch: WriteBatch) -> None:
        self._database.write(batch)
        if self._memory.is_full and self._tables:
            families = (table.family for table in self._tables.values())
            max(families, key=_unflushed_bytes).flush()


class _RocksTable(ByteTable):
    """One column family."""

    def __init__(
        self,
        name: str,
        write: Callable[[WriteBatch], None],
        family: Rdict,
        handle: ColumnFamily,
    ) -> None:
        self.family = family
        self._write_batch = write
        self._handle = handle
        self._where = f"table {name!r}"

    def get(self, key: bytes) -> bytes | None:
        try:
            found: bytes | None = self.family.get(key)
        except Exception as error:
            raise _told(error, self._where) from error
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with _translated(self._where):
            return list(self.family.get(list(keys)) or ())

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        batch = self._batch()
        for key, value in zip(keys, values, strict=True):
            batch[key] = value
        self._write(batch)

    def remove_many(self, keys: Sequence[bytes]) -> None:
        batch = self._batch()
        for key in keys:
            del batch[key]
        self._write(batch)

    def remove_range(self, first: bytes, end: bytes) -> None:
        entries = self.page(first, end, _FEW + 1)
        if len(entries) <= _FEW:
            self.remove_many([key for key, _ in entries])
            return
        batch = self._batch()
        batch.delete_range(first, end, self._handle)
        self._write(batch)

    def page(self, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)  # it keeps no reference: `end` outlives the scan
        with _translated(self._where):
            iterator = self.family.iter(options)
            iterator.seek(first)
            return _next_entries(iterator, limit)

    def _batch(self) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        batch.set_default_column_family(self._handle)
        return batch

    def _write(self, batch: WriteBatch) -> None:
        if not batch.is_empty():
            with _translated(self._where):
                self._write_batch(batch)


class _FrozenRocks(FrozenBytes):
    """An iterator over each family, all made between the same two writes: it sees no later ones.

    A snapshot of the library would be the natural thing, but its iterators see what comes later.
    """

    def __init__(self, iterators: dict[str, RdictIter]) -> None:
        self._iterators = iterators
        self._reached: dict[str, bytes] = {}

    def page(self, table: str, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        iterator = self._iterators[table]
        with _translated(f"table {table!r}"):
            if self._reached.get(table) != first:
                iterator.seek(first)
            entries = _next_entries(iterator, limit)
        if entries:
            self._reached[table] = entries[-1][0] + b"\x00"
        return entries if end is None else entries[: bisect_left(entries, (end,))]

    def release(self) -> None:
        self._iterators.clear()


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Tell errors of the library as those of the house: it raises plain exceptions, with a text.

    Raises:
        Corrupt: a file of the database is damaged or gone.
        Unavailable: anything else, such as a full disk.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise _told(error, where) from error


def _told(error: Exception, where: str) -> HoldfastError:
    text = str(error)
    if text.startswith("Corruption"):
        return Corrupt("RocksDB found damage", where=where, found=text, fix="Restore a checkpoint")
    fix = "Make room on the disk" if "No space left" in text else ""
    return Unavailable("RocksDB could not do its work", where=where, found=text, fix=fix)


def _next_entries(iterator: RdictIter, limit: int) -> list[ByteEntry]:
    """Some entries from where an iterator is. The quicker `items` would end at damage, silently."""
    is_at, key, value, step = iterator.valid, iterator.key, iterator.value, iterator.next
    entries: list[ByteEntry] = []
    while len(entries) < limit and is_at():
        entries.append((key(), value()))
        step()
    iterator.status()
    return entries


def _unflushed_bytes(family: Rdict) -> int:
    return family.property_int_value("rocksdb.cur-size-all-mem-tables") or 0


def _family(name: str) -> str:
    """The name of a table's family: any text is a name of a table, and not of a family."""
    return f"state-{name.encode(errors='surrogatepass').hex()}"


def _no_log() -> WriteOptions:
    options = WriteOptions()
    vars(WriteOptions)["disable_wal"].__set__(options, True)  # the stubs take it for a method
    options.ignore_missing_column_families = True  # one write to a dropped one would poison all
    return options
