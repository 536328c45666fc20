"""One RocksDB database of a store: its column families, its writes, its checkpoints.

Gaps and bugs of the library are dealt with here and in `options.py`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

from rocksdict import (
    AccessType,
    Checkpoint,
    ColumnFamily,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
)

from holdfast.backends.byte_tables.contract import ByteEntry
from holdfast.backends.rocksdb.memory import SlotMemory
from holdfast.backends.rocksdb.options import RocksOptions, without_log
from holdfast.storage import Corrupt, HoldfastError, Invalid, Unavailable

__all__ = [
    "Family",
    "RocksDatabase",
    "is_at_end",
    "next_entries",
    "next_keys",
    "scan_options",
    "translated",
    "translated_error",
]

_DEFAULT_FAMILY = "default"
_FIXES = {
    "No space left": "Make room on the disk",
    "No such file": "Restore a checkpoint, and keep other programs from deleting this directory",
    "Too many open files": "Raise the limit of the process (ulimit -n), or set max_open_files",
    "/LOCK": "End the process that uses the directory, or use another one",
}
"""What to do about an error, by words in RocksDB's message."""


class Family:
    """One column family of an open database."""

    def __init__(self, name: str, table: Rdict, handle: ColumnFamily) -> None:
        self.name = name
        self.table = table
        self.handle = handle
        self.room_waits = 0
        """How often a write to it had to wait for room in memory."""
        self.room_waited_s = 0.0

    def number(self, name: str) -> int:
        """A property of RocksDB that is a number."""
        return self.table.property_int_value(f"rocksdb.{name}") or 0

    def text(self, name: str) -> str:
        """A property of RocksDB that is a text; empty if there is none."""
        return self.table.property_value(f"rocksdb.{name}") or ""

    @property
    def buffered_bytes(self) -> int:
        """What its write buffers take."""
        return self.number("cur-size-all-mem-tables")

    @property
    def buffered_entries(self) -> int:
        """How many writes are in its write buffers."""
        return sum(map(self.number, ("num-entries-active-mem-table", "num-entries-imm-mem-tables")))

    def flush(self) -> None:
        """Write its buffers to a file."""
        self.table.flush()

    def close(self) -> bool:
        """Close it, and drop its handle: a kept handle keeps the database and its files open.

        False if it may still be open, for example while another thread compacts it: call it again.
        """
        vars(self).pop("handle", None)
        is_closed = False
        with suppress(Exception):  # the disk is full, or the family is dropped or in use
            self.table.close()
            is_closed = True
        return is_closed


class RocksDatabase:
    """A database without a write-ahead log, in a directory of its own."""

    def __init__(
        self,
        path: Path,
        options: RocksOptions,
        memory: SlotMemory,
        *,
        is_there: bool = False,
        is_read_only: bool = False,
    ) -> None:
        """Make one, or open the one that is there, with all its families.

        Raises:
            Corrupt: it is damaged.
            Unavailable: it cannot be opened; or, if it is not there, made.
        """
        self.path = path
        self._options = options
        self._memory = memory
        self.batch_bytes = memory.batch_bytes
        """What one write should not exceed."""
        self.families: dict[str, Family] = {}
        self._unclosed: list[Family] = []
        with translated(f"database {path}", is_brought=is_there):
            names = [_DEFAULT_FAMILY]
            if is_there:
                names = Rdict.list_cf(str(path), options.database)
            # An existing database without its file CURRENT would be opened as a new one.
            options.database.create_if_missing(not is_there)
            self._database = Rdict(
                str(path),
                options.database,
                {name: options.family for name in names if name != _DEFAULT_FAMILY},
                AccessType.read_only(False) if is_read_only else AccessType.read_write(),
            )
            self._database.set_write_options(without_log())
            for name in names:
                if name != _DEFAULT_FAMILY:
                    self._add(name, self._database.get_column_family(name))

    def create(self, name: str) -> Family:
        """Make a family that is not there."""
        with translated(f"family {name!r}"):
            return self._add(name, self._database.create_column_family(name, self._options.family))

    def drop(self, family: Family) -> None:
        """Remove a family with all that is in it."""
        del self.families[family.name]
        self._memory.buffers_gone(family)
        with translated(f"family {family.name!r}"):
            self._database.drop_column_family(family.name)
        if not family.close():
            self._unclosed.append(family)

    def write(self, batch: WriteBatch, family: Family) -> None:
        self._database.write(batch)
        self.make_room(family)

    def make_room(self, family: Family) -> None:
        """Flush write buffers if there is no room left; the wait is counted for this family."""
        waited_s = self._memory.make_room()
        if waited_s is not None:
            family.room_waits += 1
            family.room_waited_s += waited_s

    def number(self, name: str) -> int:
        """A property of RocksDB, of the whole database, that is a number."""
        return self._database.property_int_value(f"rocksdb.{name}") or 0

    @property
    def statistics(self) -> str:
        """What RocksDB has counted since the database was opened; empty if it does not count."""
        return self._database.property_value("rocksdb.options-statistics") or ""

    def flush(self) -> None:
        """Write all buffers to files."""
        for family in self.families.values():
            if family.buffered_entries:
                family.flush()

    def checkpoint(self, path: Path) -> None:
        """Link the files of this moment into a new directory."""
        self.flush()  # the library would flush while it holds the interpreter's lock
        checkpoint = Checkpoint(self._database)
        try:
            checkpoint.create_checkpoint(str(path))
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def stop_background_work(self) -> None:
        """End running compactions soon, and begin none."""
        self._database.cancel_all_background(wait=False)

    def close(self) -> None:
        """Close the database without saving anything: its files are not used again.

        No other thread uses it or one of its families.
        """
        for family in self.families.values():
            self._memory.buffers_gone(family)
        # Otherwise compactions would go on with files that families write when they are closed,
        # while the directory is removed.
        with suppress(Exception):
            self._database.cancel_all_background(wait=True)
        # Drop and close each family. One that is only dereferenced writes its entries to files when
        # it is garbage-collected, and retries for seconds if the directory is gone. A dropped one
        # writes nothing.
        for family in self.families.values():
            with suppress(Exception):  # the database may be open for reading only
                self._database.drop_column_family(family.name)
            family.close()
        for family in self._unclosed:
            family.close()
        self.families.clear()
        self._unclosed.clear()
        with suppress(Exception):
            self._database.close()

    def _add(self, name: str, table: Rdict) -> Family:
        table.set_write_options(without_log())
        family = Family(name, table, self._database.get_column_family_handle(name))
        self.families[name] = family
        self._memory.buffers_of(family)
        return family


@contextmanager
def translated(where: str, *, is_brought: bool = False) -> Iterator[None]:
    """Turn the library's exceptions, which are plain ones with a text, into Holdfast's errors.

    With `is_brought` the files were downloaded by a restore, so a missing one is damage, too.

    Raises:
        Corrupt: a file of the database is damaged or missing.
        Invalid: the options do not go with such files, or with what is done.
        Unavailable: anything else, such as a full disk.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise translated_error(error, where, is_brought=is_brought) from error


def translated_error(error: Exception, where: str, *, is_brought: bool = False) -> HoldfastError:
    """One of Holdfast's errors for an exception of the library."""
    text = str(error)
    is_missing = is_brought and "No such file" in text
    if text.startswith("Corruption") or is_missing:
        return Corrupt("RocksDB found damage", where=where, found=text, fix="Restore a checkpoint")
    # RocksDB also reports "Invalid argument" where it cannot open a file to try options on.
    is_refused = text.startswith(("Invalid argument", "Not implemented"))
    if is_refused and "IO error" not in text:
        what, fix = "RocksDB does not do this", "Set other options of RocksDB, or other directories"
        if is_brought:
            what = "RocksDB does not open these files"
            fix = "Set the options of RocksDB as they were when these files were written"
        return Invalid(what, where=where, found=text, fix=fix)
    fix = next((fix for word, fix in _FIXES.items() if word in text), "")
    return Unavailable("RocksDB could not do its work", where=where, found=text, fix=fix)


# On average up to here, values are short: taking many more at once cannot fill a page by far.
_SHORT_BYTES = 1024
_MOST_AT_ONCE = 256


def next_entries(iterator: RdictIter, limit: int, most_bytes: int = sys.maxsize) -> list[ByteEntry]:
    """The next entries of an iterator; fewer if they are long, but at least one if there is one.

    The faster `items` of the library ends silently at damage.
    """
    key, value, step = iterator.key, iterator.value, iterator.next
    entries: list[ByteEntry] = []
    add = entries.append
    size_bytes, at_once = 0, 1
    while len(entries) < limit and size_bytes < most_bytes:
        first = len(entries)
        for found in islice(iter(key, None), min(at_once, limit - first)):
            add((found, value()))
            step()
        if len(entries) == first:
            break
        taken = sum([len(each) for _, each in entries[first:]])
        size_bytes += taken
        # Few at a time until values are known to be short: a single one might fill a page.
        is_short = taken <= _SHORT_BYTES * (len(entries) - first)
        at_once = min(2 * at_once, _MOST_AT_ONCE) if is_short else 1
    iterator.status()
    return entries


def next_keys(iterator: RdictIter, limit: int) -> list[bytes]:
    """The keys of `next_entries`, without reading their values."""
    is_at, key, step = iterator.valid, iterator.key, iterator.next
    keys: list[bytes] = []
    while len(keys) < limit and is_at():
        keys.append(key())
        step()
    iterator.status()
    return keys


def scan_options(end: bytes | None = None, *, is_once: bool = False) -> ReadOptions:
    """Options of a scan up to before `end`; one that is done once leaves the cache as it is.

    The caller keeps `end` until the scan is over: the library keeps no reference to its bytes.
    """
    options = ReadOptions()
    if end is not None:
        options.set_iterate_upper_bound(end)
    if is_once:
        cast(Any, options).fill_cache(False)  # the stubs take no argument
    return options


def is_at_end(family: Family, unseen: bytes, reading: ReadOptions) -> bool:
    """Whether a scan with these options that stopped before the key `unseen` had reached the end.

    The library's fast iterator gives no reason why it stopped. False if it skipped as much as the
    options allow, or could not read what can be read now; raises if it met damage.
    """
    iterator = family.table.iter(reading)
    iterator.seek(unseen)
    try:
        iterator.status()
    except Exception as error:
        if str(error).startswith("Result incomplete"):
            return False
        raise
    return not iterator.valid()
