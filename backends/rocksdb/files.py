"""The files of a RocksDB store: its database, snapshots by hard links, and restored files.

    <working directory>/db-<n>         the database
    <working directory>/snapshot-<n>   links to its files at one moment, until they are uploaded
    <working directory>/brought-<n>    files of a snapshot that is being restored

After a change of parallelism a database has key groups of other slots: they are removed as ranges,
and compacted away in the background. Rows of this slot's key groups in other databases are read
from them and ingested as files.

Small table files go into the slot's own file each time: a storage charges more for an object than
for such bytes. The source with most of what is wanted becomes the database. The files of the others
cannot be ingested as they are, since rocksdict exports no column family and RocksDB refuses table
files of another database; as new sorted files 2 to 3 million entries come over in a second.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count, islice, starmap
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pyarrow as pa
from rocksdict import IngestExternalFileOptions, SstFileWriter, WriteBatch

from holdfast.backends.blocks.block import listed
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.rocksdb.database import (
    Family,
    RocksDatabase,
    is_at_end,
    scan_options,
    translated,
)
from holdfast.backends.rocksdb.memory import SlotMemory
from holdfast.backends.rocksdb.options import RocksOptions
from holdfast.backends.tables.files import ByteFiles, FrozenFiles, SourceFiles, StoreFile
from holdfast.storage import Corrupt, Unavailable

__all__ = ["RocksFiles"]

_NOT_NEEDED = ("OPTIONS-", "LOG", "IDENTITY", "LOCK", "rocksdict-config.json")
"""A database opens without these files, with the options that it is given."""
_LASTING = (".sst", ".blob")
_CACHED_ENTRIES = 4096
"""How many objects are made of columns before they are written: they fit the processor's cache."""
_PIECE_ENTRIES = 16
"""How many entries of another database are in memory at once; more are no faster."""
_FILE_PIECES = 64 * 1024
_FILE_BYTES = 64 * 1024 * 1024
"""How many pieces, or bytes, make one file."""
_AFTER_ALL = b"\xff\xff\xff"
"""Greater than every key: no key group's number begins with these bytes."""


class RocksFiles(ByteFiles):
    """The database of a store, and which table is in which of its families."""

    format = "rocksdb/1"

    def __init__(
        self, directory: Path, options: RocksOptions, memory: SlotMemory, *, is_preferred: bool
    ) -> None:
        self.is_preferred = is_preferred
        self._directory = directory
        self._options = options
        self._memory = memory
        self._numbers = count(1)
        self._database: RocksDatabase | None = None
        self.families: dict[str, Family] = {}
        """By the name of the table."""
        self._compacting: Thread | None = None

    @property
    def database(self) -> RocksDatabase:
        """The database. It is made on first use, since a restore brings one of its own."""
        if self._database is None:
            self._database = RocksDatabase(self._new("db"), self._options, self._memory)
        return self._database

    def family_of(self, table: str) -> Family:
        """The family of a table; it is made if there is none."""
        family = self.families.get(table)
        if family is None:
            family = self.families[table] = self.database.create(self._free_name(table))
        return family

    def take_in(
        self, family: Family, keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray
    ) -> None:
        """Add entries to a family as a file; the keys ascend, and each is there once."""
        path = self._new("loaded")
        writer = SstFileWriter(self._options.family)
        writer.open(str(path))
        for first in range(0, len(keys), _CACHED_ENTRIES):
            some = (each.slice(first, _CACHED_ENTRIES) for each in (keys, values))
            deque(map(writer.__setitem__, *map(listed, some)), 0)
        writer.finish()
        family.table.ingest_external_file([str(path)], _moving())

    def drop(self, table: str) -> None:
        """Remove a table, if there is one."""
        family = self.families.pop(table, None)
        if family is not None:
            self.database.drop(family)

    def rename(self, name: str, new_name: str) -> None:
        self.families[new_name] = self.families.pop(name)

    def freeze(self) -> FrozenFiles:
        path = self._new("snapshot")
        places = {table: family.name for table, family in self.families.items()}
        with translated("a snapshot"):
            self.database.checkpoint(path)
            return _FrozenRocksFiles(path, places)

    def directory(self) -> Path:
        path = self._new("brought")
        with translated("a directory for files to restore"):
            path.mkdir()
        return path

    def restore(
        self, sources: Sequence[SourceFiles], wanted: KeyGroupRange, prefixes: Sequence[bytes]
    ) -> SourceFiles | None:
        clips = _Clips(wanted, prefixes)
        with translated("a restore"):
            for source in sources:
                _remove_not_needed(source.directory)
            base = max(sources, key=lambda source: _share_bytes(source, wanted))
            self._open(base)
            self._clip(clips.outside(base.key_groups))
            for source in sources:
                if source is not base:
                    self._move_in(source, clips.inside(source.key_groups))
        return base

    def close(self) -> None:
        """Close everything; the owner of the directory removes the files."""
        if self._compacting is not None:
            self.database.stop_background_work()
            self._compacting.join()
        self.families.clear()
        if self._database is not None:
            self._database.close()

    def _new(self, what: str) -> Path:
        return self._directory / f"{what}-{next(self._numbers)}"

    def _free_name(self, table: str) -> str:
        """A new family's name for a table. A table's name is any text; a family's is not."""
        first = f"state-{table.encode(errors='surrogatepass').hex()}"
        names = (f"{first}.{number}" if number else first for number in count())
        return next(name for name in names if name not in self.database.families)

    def _open(self, source: SourceFiles) -> None:
        """Go on in the database of a source."""
        if self._database is not None:
            self._database.close()
            shutil.rmtree(self._database.path, ignore_errors=True)
            self._database = None
        path = self._new("db")
        source.directory.rename(path)
        self._database = RocksDatabase(path, self._options, self._memory, is_there=True)
        self.families = _families(self.database, source)

    def _clip(self, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        """Remove key groups of other slots, and compact them away in the background."""
        if not ranges:
            return
        for family in self.families.values():
            batch = WriteBatch(raw_mode=True)
            for first, end in ranges:
                batch.delete_range(first, end, family.handle)
            self.database.write(batch, family)
        families = [family.table for family in self.families.values()]
        if self._options.compacts_all:
            ranges = [(ranges[0][0], ranges[-1][1])]

        def compact() -> None:
            for family in families:
                with suppress(Exception):  # the table may be dropped meanwhile
                    for first, end in ranges:
                        family.compact_range(first, end)

        self._compacting = Thread(target=compact, name="holdfast-compaction", daemon=True)
        self._compacting.start()

    def _move_in(self, source: SourceFiles, bounds: tuple[bytes, bytes]) -> None:
        """Ingest what another database has within the bounds."""
        other = RocksDatabase(
            source.directory, self._options, self._memory, is_there=True, is_read_only=True
        )
        try:
            for table, family in _families(other, source).items():
                target = self.family_of(table)
                with translated(f"table {table!r} of another slot"):
                    for file in self._exported(family, bounds):
                        target.table.ingest_external_file([str(file)], _moving())
        finally:
            other.close()
        shutil.rmtree(source.directory, ignore_errors=True)

    def _exported(self, family: Family, bounds: tuple[bytes, bytes]) -> Iterator[Path]:
        """Files with the entries of a family, in order."""
        first, end = bounds
        reading = scan_options(end, is_once=True)
        entries: Iterator[tuple[bytes, bytes]] = iter(
            cast(Any, family.table).items(from_key=first, read_opt=reading)
        )
        pieces = iter(lambda: list(islice(entries, _PIECE_ENTRIES)), [])
        unseen = first
        for head in pieces:
            path = self._new("moved")
            writer = SstFileWriter(self._options.family)
            writer.open(str(path))
            for piece in chain([head], islice(pieces, _FILE_PIECES - 1)):
                deque(starmap(writer.__setitem__, piece), 0)
                unseen = piece[-1][0] + b"\x00"
                if writer.file_size() >= _FILE_BYTES:
                    break
            writer.finish()
            yield path
        if not is_at_end(family, unseen, reading):
            raise Unavailable(
                "not all entries of another slot's files could be read",
                where=str(family.table.path()),
                expected="the last entry of these key groups",
                found=f"more behind {unseen.hex()}, where reading ended",
                fix="Restore again; see that this machine has files to open, and that its disk "
                "can be read",
            )


class _Clips:
    """Ranges of keys inside and outside of the wanted key groups."""

    def __init__(self, wanted: KeyGroupRange, prefixes: Sequence[bytes]) -> None:
        self._wanted = wanted
        self._starts = [*prefixes, _AFTER_ALL]

    def inside(self, key_groups: KeyGroupRange) -> tuple[bytes, bytes]:
        """The bounds of the wanted keys of these key groups, some of which are wanted."""
        both = self._wanted.intersection(key_groups)
        return self._starts[both.first], self._starts[both.last + 1]

    def outside(self, key_groups: KeyGroupRange) -> list[tuple[bytes, bytes]]:
        """The bounds of the other keys of these key groups."""
        first, end = self.inside(key_groups)
        ranges = ((self._starts[key_groups.first], first), (end, self._starts[key_groups.last + 1]))
        return [(start, stop) for start, stop in ranges if start < stop]


def _families(database: RocksDatabase, source: SourceFiles) -> dict[str, Family]:
    """The family of each table of a source."""
    lost = sorted({kept.place for kept in source.tables.values()} - database.families.keys())
    if lost:
        raise Corrupt(
            "files of a snapshot do not hold the tables that it names",
            expected=", ".join(lost),
            found=", ".join(sorted(database.families)) or "none",
            fix="Restore another checkpoint",
        )
    return {table: database.families[kept.place] for table, kept in source.tables.items()}


def _share_bytes(source: SourceFiles, wanted: KeyGroupRange) -> float:
    """About how many bytes of a source are wanted."""
    both = wanted.intersection(source.key_groups)
    share = len(both) / len(source.key_groups)
    return share * sum(file.stat().st_size for file in source.directory.iterdir())


def _moving() -> IngestExternalFileOptions:
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    return options


def _is_needed(file: Path) -> bool:
    return not file.name.startswith(_NOT_NEEDED) and file.suffix != ".log"


def _remove_not_needed(directory: Path) -> None:
    """Delete files that our snapshots do not contain, such as options that set other paths."""
    for file in directory.iterdir():
        if not _is_needed(file):
            file.unlink()


class _FrozenRocksFiles(FrozenFiles):
    """A directory of links."""

    def __init__(self, path: Path, places: Mapping[str, str]) -> None:
        self._path = path
        self.places = places
        self.files = [
            StoreFile(file.name, file, file.stat().st_size, file.suffix in _LASTING)
            for file in sorted(path.iterdir())
            if _is_needed(file)
        ]

    def release(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
