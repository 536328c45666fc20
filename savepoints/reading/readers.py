"""Reading the tables of a snapshot without the job that it is of: as blocks, or typed columns.

What is in the neutral form or the canonical one comes straight from storage. What is files of a
store, or has changed since its base was written, goes through a store that is opened for it, and
closed with the reader. The snapshot itself is only read.

This is what a restore does, table by table, so nothing is held for a job that might ask. Files of
RocksDB are opened as a database where they are read: whoever reads a part fetches all that a slot
has left, so there are no more parts of those than keep each worker busy.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec
import pyarrow as pa

from holdfast.backends.arrow.rows import RowForm, TypedTable
from holdfast.backends.arrow.values import may_lack_fields
from holdfast.backends.blocks.block import Block
from holdfast.backends.interface import OpenBackend, usual_backend
from holdfast.backends.keyed.undeclared_state import Carried
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.operator_state.canonical import typed_state
from holdfast.backends.operator_state.restores import (
    PendingPiece,
    of_all_slots,
    read_operator_snapshots,
)
from holdfast.backends.operator_state.snapshots import (
    OPERATOR_KINDS,
    OPERATOR_PARQUET_KIND,
    OperatorPlace,
    OperatorTable,
)
from holdfast.backends.snapshots.canonical import typed_table
from holdfast.backends.snapshots.file_restores import restore_files
from holdfast.backends.snapshots.neutral import PARQUET_KIND
from holdfast.backends.snapshots.parquet import is_complete_part
from holdfast.backends.snapshots.regrouping import in_order
from holdfast.backends.snapshots.restores import (
    KEYED_KINDS,
    PendingTable,
    Restored,
    attributes_of,
    read_snapshots,
)
from holdfast.savepoints.reading.tables import (
    KeyedDescription,
    KeyedTable,
    UnkeyedTable,
    describe_keyed,
    describe_operator_state,
    operator_attributes,
)
from holdfast.storage import Invalid, StateFolder, StateSnapshot

__all__ = [
    "KeyedReader",
    "OpenTables",
    "OperatorReader",
    "form_to_write",
]

_REPLAYING = "rocksdb"
"""Through which backend changes are replayed where any would do: its state is not in memory."""


class KeyedReader:
    """The keyed state of an operator in a snapshot, to be read by the range of key groups.

    Light and picklable; safe to use from any thread.
    """

    def __init__(
        self,
        uid: str,
        parts: Sequence[StateSnapshot],
        folder: StateFolder,
        open_backend: OpenBackend = usual_backend,
    ) -> None:
        """`parts` are those of all slots.

        Raises:
            Invalid, Corrupt: as `describe_keyed`; or none of them is of keyed state.
        """
        found = describe_keyed(uid, parts)
        if found is None:
            raise Invalid(f"operator {uid!r} has no keyed state", where=folder.url)
        self.description: KeyedDescription = found
        self._keyed = tuple(part for part in parts if part.kind in KEYED_KINDS)
        with_groups = [part for part in self._keyed if part.key_groups]
        self.parts: tuple[StateSnapshot, ...] = tuple(sorted(with_groups, key=_first_group))
        """In order of their key groups."""
        self.folder = folder
        self._open_backend = open_backend

    @property
    def key_groups(self) -> KeyGroupRange:
        """All that there are."""
        return KeyGroupRange(0, self.description.max_parallelism - 1)

    def check_covers(self) -> None:
        """Make sure that each key group is in one part, as a restore does; nothing is read.

        Readers do not ask: what is there can be shown, whatever else is missing.

        Raises:
            Invalid: a key group is in none, or in two; or the parts do not fit each other.
            Corrupt: a part does not have what it says.
        """
        read_snapshots(
            self._keyed,
            self.folder,
            uid=self.description.uid,
            key_groups=self.key_groups,
            max_parallelism=self.description.max_parallelism,
        )

    def open(self, key_groups: KeyGroupRange | None = None) -> OpenTables:
        """The tables with what they have of some key groups; close it, as a context manager.

        Raises:
            Invalid, Corrupt: what the parts say is damaged, or does not fit together.
        """
        wanted = self.key_groups if key_groups is None else key_groups
        return OpenTables(self, self.parts, wanted, self._open_backend)

    def open_each(self, key_groups: KeyGroupRange | None = None) -> Iterator[OpenTables]:
        """The same part by part, in order of key groups: each is closed before the next is opened.

        So there is one store at a time on this machine. Raises as `open`.
        """
        wanted = self.key_groups if key_groups is None else key_groups
        for part in self.parts:
            with OpenTables(self, (part,), wanted, self._open_backend) as tables:
                yield tables

    def is_whole(self, table: KeyedTable) -> bool:
        """Whether all that there is of a table is in files that say that its records are whole.

        Raises:
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer.
        """
        for part in self.parts:
            if part.kind != PARQUET_KIND:
                return False
            for info in attributes_of(part, self.description.uid).tables:
                if info.is_alike(table.info) and not all(
                    is_complete_part(self.folder, part.handles[segment.handle])
                    for segment in info.segments
                    if segment.handle in part.handles
                ):
                    return False
        return True

    def form(self, table: KeyedTable) -> RowForm:
        """How rows of a table are typed columns: those of docs/savepoint-format.md.

        Raises:
            Corrupt: it is not known of which type keys are.
        """
        return form_to_write(self.typed(table))

    def typed(self, table: KeyedTable) -> TypedTable:
        """The types of a table's columns; raises as `form`."""
        found = self.description
        return typed_table(found.uid, found.max_parallelism, found.keys, table.info)


def form_to_write(typed: TypedTable) -> RowForm:
    """How the rows of a table are typed columns, as they were written.

    Where no record may lack a field, all have all of them.
    """
    return RowForm(typed, is_complete=not may_lack_fields(typed.values))


class OpenTables:
    """Tables that are open for reading. Belongs to one thread; what it has opened is closed."""

    def __init__(
        self,
        reader: KeyedReader,
        parts: Iterable[StateSnapshot],
        key_groups: KeyGroupRange,
        open_backend: OpenBackend,
    ) -> None:
        self._reader = reader
        self._begun: list[Generator[Block, None, None]] = []
        self._parts = []
        for part in parts:
            wanted = KeyGroupRange(*_groups(part)).intersection(key_groups)
            if wanted:
                self._parts.append(_OpenPart(reader, part, wanted, open_backend))

    def blocks(self, table: KeyedTable) -> Iterator[Block]:
        """The rows of a table by ascending key group; the elements of a list in their order.

        Raises:
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer, or this machine lacks what it takes.
        """
        begun = self._read(table)
        self._begun.append(begun)
        return begun

    def batches(self, table: KeyedTable) -> Iterator[pa.RecordBatch]:
        """The same rows in the columns of `KeyedReader.form`; raises as `blocks` does."""
        return self._reader.form(table).batches(self.blocks(table))

    def close(self) -> None:
        """Close what was opened; what was begun to be read has ended."""
        for begun in self._begun:  # whoever has not read to the end holds on to a store
            begun.close()
        for part in self._parts:
            part.close()

    def _read(self, table: KeyedTable) -> Generator[Block, None, None]:
        for part in self._parts:
            yield from part.blocks(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _OpenPart:
    """What one slot has left. Its store is opened when the first table needs it."""

    def __init__(
        self,
        reader: KeyedReader,
        part: StateSnapshot,
        wanted: KeyGroupRange,
        open_backend: OpenBackend,
    ) -> None:
        self._reader = reader
        self._wanted = wanted
        self._open_backend = open_backend
        self._restored: Restored = read_snapshots(
            (part,),
            reader.folder,
            uid=reader.description.uid,
            key_groups=wanted,
            max_parallelism=reader.description.max_parallelism,
        )
        self._closing = ExitStack()
        self._carried: Carried | None = None

    def blocks(self, table: KeyedTable) -> Iterator[Block]:
        pending = [each for each in self._pending(table.name) if each.info.is_alike(table.info)]
        if len(pending) == 1:
            yield from pending[0].blocks()
            return
        # A part keeps what it has of a table in two places only while nobody has asked for it.
        yield from in_order([block for each in pending for block in each.blocks() if block.count])

    def close(self) -> None:
        self._carried = None
        self._closing.close()

    def _pending(self, name: str) -> Sequence[PendingTable]:
        restored = self._restored
        if not restored.files and name not in restored.changes:
            return restored.tables.get(name, ())
        carried = self._carried
        if carried is None:
            carried = self._carried = self._opened()
        carried.replay(name, self._reader.description.keys)
        return carried.pending(name)

    def _opened(self) -> Carried:
        """What is in files of a store, or has changed, in a store that is opened for it."""
        restored, description = self._restored, self._reader.description
        name = restored.files[0].backend if restored.files else _REPLAYING
        backend = self._open_backend(name)
        store = backend.open_store(description.uid, self._wanted, description.max_parallelism)
        self._closing.callback(store.close)
        carried = Carried(store, f"operator {description.uid!r}")
        carried.add_tables(restored.tables)
        if restored.files:
            carried.add_tables(restore_files(restored.files, store, self._reader.folder).tables)
        carried.add_changes(restored.changes)
        return carried


@dataclass(frozen=True, slots=True)
class OperatorReader:
    """The state without keys of an operator in a snapshot. Light and picklable."""

    uid: str
    parts: Sequence[StateSnapshot]
    folder: StateFolder

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots that have left something."""
        return tuple(sorted(part.slot or 0 for part in self._own()))

    def check_covers(self) -> None:
        """Make sure that each slot is there once, as a restore does; nothing is read.

        Raises:
            Invalid: one is there twice, or the parts do not fit each other.
            Corrupt: a part does not have what it says.
        """
        place = OperatorPlace(self.uid, 0, 1)
        read_operator_snapshots(of_all_slots(self._own()), self.folder, place)

    def tables(self) -> tuple[UnkeyedTable, ...]:
        """Which there are; raises as `describe_operator_state`."""
        found = describe_operator_state(self.uid, self.parts)
        return () if found is None else found.tables

    def has(self, table: UnkeyedTable, slot: int) -> bool:
        """Whether a slot has left such a table, which may be empty."""
        return any(part.slot == slot and self._of(part, table) for part in self._own())

    def blocks(self, table: UnkeyedTable, slot: int) -> Iterator[Block]:
        """What a slot has of a table, in order.

        Raises:
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer.
        """
        for part in self._own():
            if part.slot != slot:
                continue
            parallelism = operator_attributes(self.uid, part).parallelism
            for its in self._of(part, table):
                piece = PendingPiece(
                    its,
                    slot,
                    part.handles,
                    self.folder,
                    OperatorPlace(self.uid, slot, parallelism),
                    is_canonical=part.kind == OPERATOR_PARQUET_KIND,
                )
                yield from piece.blocks(0, its.elements)

    def batches(self, table: UnkeyedTable, slot: int) -> Iterator[pa.RecordBatch]:
        """The same rows as typed columns; raises as `blocks` does."""
        form = form_to_write(typed_state(self.uid, slot, table.info))
        return form.batches(self.blocks(table, slot))

    def _of(self, part: StateSnapshot, table: UnkeyedTable) -> list[OperatorTable]:
        states = operator_attributes(self.uid, part).states
        written = table.info
        return [its for its in states if msgspec.structs.replace(its, segments=()) == written]

    def _own(self) -> list[StateSnapshot]:
        return [part for part in self.parts if part.kind in OPERATOR_KINDS]


def _groups(part: StateSnapshot) -> tuple[int, int]:
    assert part.key_groups is not None
    return part.key_groups


def _first_group(part: StateSnapshot) -> int:
    return _groups(part)[0]
