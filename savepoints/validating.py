"""Validation of a snapshot: all errors that a restore would find, early or late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np

from holdfast.backends.arrow.keys import KeyForm
from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.groups import key_groups
from holdfast.backends.snapshots.in_flight import in_flight_parts, read_in_flight
from holdfast.savepoints.finding import StoredSnapshot
from holdfast.savepoints.reading.readers import KeyedReader
from holdfast.savepoints.reading.tables import KeyedTable
from holdfast.storage import Corrupt, HoldfastError, StateSnapshot, Unavailable

__all__ = ["Finding", "Validated", "validate"]


class Finding(msgspec.Struct, frozen=True):
    """One error: the part of the snapshot that has it, and its text."""

    what: str
    trouble: str


class Validated(msgspec.Struct, frozen=True):
    """What was checked, and the errors; none if the snapshot is whole."""

    path: str
    files: int
    size_bytes: int
    rows: int
    findings: tuple[Finding, ...]


def validate(snapshot: StoredSnapshot, tell: Callable[[int], None]) -> Validated:
    """Read a whole snapshot and collect all errors; an error in one part does not end the check.

    Verifies each checksum, decodes each row, and computes the key group of each key again. `tell`
    is called with the number of rows read since the last call.

    Raises:
        Unavailable: the storage did not answer.
    """
    looking = _Looking(snapshot, tell)
    looking.at_bytes()
    for uid in sorted(snapshot.metadata.operators):
        looking.at_operator(uid)
    looking.at_in_flight()
    return Validated(
        path=snapshot.path,
        files=len(snapshot.metadata.files()),
        size_bytes=snapshot.metadata.size_bytes,
        rows=looking.rows,
        findings=tuple(looking.findings),
    )


class _Table:
    """The check of one table of keyed state, over all its blocks."""

    def __init__(self, reader: KeyedReader, table: KeyedTable) -> None:
        self._reader = reader
        self.table = table
        self.what = f"state {table.name!r} of operator {reader.description.uid!r}"
        self._rows = 0
        self._last = 0

    def look_at(self, block: Block) -> None:
        """Decode the rows, and compute the groups of their keys again."""
        description = self._reader.description
        for _ in self._reader.form(self.table).batches((block,)):
            self._rows += block.count
        if description.keys is None or not block.count:
            return
        hashes = KeyForm(description.keys).hashes(block.keys, block.count)
        found = key_groups(hashes, description.max_parallelism)
        said = block.group_array
        wrong = np.flatnonzero(found != said)
        if len(wrong):
            raise Corrupt(
                f"{len(wrong)} keys are in other key groups than they belong to",
                expected=f"key group {int(found[wrong[0]])}",
                found=f"key group {int(said[wrong[0]])}",
            )
        if (np.diff(said.astype(np.int64)) < 0).any() or said[0] < self._last:
            raise Corrupt("the rows are not sorted by key group")
        self._last = int(said[-1])

    def look_at_rows(self) -> None:
        """Compare the number of rows with the one that the snapshot states."""
        if self.table.rows is not None and self._rows != self.table.rows:
            raise Corrupt(
                "the number of rows is not the one that the snapshot states",
                expected=str(self.table.rows),
                found=str(self._rows),
            )


class _Looking:
    """Checks one part after the other, and collects the errors."""

    def __init__(self, snapshot: StoredSnapshot, tell: Callable[[int], None]) -> None:
        self._snapshot = snapshot
        self._tell = tell
        self.rows = 0
        self.findings: list[Finding] = []

    def at_bytes(self) -> None:
        """Read all handles, which verifies their checksums."""
        folder = self._snapshot.folder
        for name, part in self._parts():
            for handle in part.handles.values():
                with self._finding(name):
                    for _ in folder.stream(handle):
                        pass

    def at_operator(self, uid: str) -> None:
        with self._finding(f"operator {uid!r}"):
            reader = self._snapshot.keyed(uid)
            if reader is not None:
                reader.check_covers()
                self._at_tables(reader)
        with self._finding(f"operator {uid!r}"):
            unkeyed = self._snapshot.unkeyed(uid)
            with self._finding(f"state without keys of operator {uid!r}"):
                unkeyed.check_covers()
            for each in unkeyed.tables():
                with self._finding(f"state {each.name!r} of operator {uid!r}"):
                    for slot in unkeyed.slots:
                        for batch in unkeyed.batches(each, slot):
                            self._count(batch.num_rows)

    def at_in_flight(self) -> None:
        """Read all rows in flight; a restore that misses one of them has lost it."""
        snapshot = self._snapshot
        for part in snapshot.metadata.in_flight:
            with self._finding(f"rows in flight in slot {part.slot}"):
                for each in in_flight_parts((part,)):
                    for sender in each.about.rows:
                        for batch in read_in_flight(each, sender, snapshot.folder):
                            self._count(batch.num_rows)

    def _at_tables(self, reader: KeyedReader) -> None:
        """Check all tables, part by part: one store is open at a time."""
        every = [_Table(reader, table) for table in reader.description.tables]
        right = dict.fromkeys(every, True)
        for tables in reader.open_each():
            for each in every:
                is_right = False
                with self._finding(each.what):
                    for block in tables.blocks(each.table):
                        each.look_at(block)
                        self._count(block.count)
                    is_right = True
                right[each] &= is_right
        for each in every:
            if right[each]:  # after another error, a wrong number of rows is no news
                with self._finding(each.what):
                    each.look_at_rows()

    def _count(self, rows: int) -> None:
        self.rows += rows
        self._tell(rows)

    def _parts(self) -> Iterator[tuple[str, StateSnapshot]]:
        metadata = self._snapshot.metadata
        for uid, left in sorted(metadata.operators.items()):
            for part in left.parts:
                yield f"operator {uid!r}", part
        for uid, part in sorted(metadata.sources.items()):
            yield f"source {uid!r}", part
        for name, part in sorted(metadata.parts.items()):
            yield name, part

    @contextmanager
    def _finding(self, what: str) -> Iterator[None]:
        """Turns errors of the block into findings about this part."""
        try:
            yield
        except Unavailable:
            raise  # a storage that is down says nothing about the snapshot
        except HoldfastError as error:
            found = Finding(what, str(error))
            if found not in self.findings:
                self.findings.append(found)
