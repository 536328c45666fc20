"""Reading the tables of a snapshot without its job: as blocks, or typed columns.

Tables in the neutral or the canonical form are read straight from storage. Files of a store, and
changes of a log over a base, are loaded into a store of their backend, which is closed with the
reader. Nothing is written to the snapshot.

This is what a restore does, table by table, so that nothing is kept in memory for later. RocksDB
files are opened as a database on the reading machine, which downloads all files of the slot: so
there are only as many parts of such state as keep each worker busy.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import msgspec
import pyarrow as pa

from holdfast.backends.arrow.rows import RowForm, TypedTable
from holdfast.backends.arrow.values import may_lack_fields
from holdfast.backends.blocks.block import Block
from holdfast.backends.interface import OpenBackend, replaying_backend, usual_backend
from holdfast.backends.keyed.undeclared_state import UndeclaredState
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.operator_state.restores import (
    PendingPiece,
    of_all_slots,
    read_operator_snapshots,
)
from holdfast.backends.operator_state.snapshots import (
    OPERATOR_KINDS,
    OPERATOR_PARQUET_KIND,
    OperatorSlot,
    OperatorTable,
    typed_state,
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
    operator_attributes,
    unkeyed_tables,
)
from holdfast.storage import Invalid, StateFolder, StateSnapshot

__all__ = [
    "KeyedReader",
    "OpenTables",
    "OperatorReader",
    "form_to_write",
]


class KeyedReader:
    """The keyed state of an operator in a snapshot, readable by ranges of key groups.

    Light and picklable; safe to use from any thread.
    """

    def __init__(
        self,
        uid: str,
        parts: Sequence[StateSnapshot],
        folder: StateFolder,
        open_backend: OpenBackend = usual_backend,
    ) -> None:
        """`parts` are the parts of all slots.

        Raises:
            Invalid, Corrupt: as `describe_keyed`; or no part has keyed state.
        """
        found = describe_keyed(uid, parts)
        if found is None:
            raise Invalid(f"operator {uid!r} has no keyed state", where=folder.url)
        self.description: KeyedDescription = found
        self._keyed = tuple(part for part in parts if part.kind in KEYED_KINDS)
        with_groups = [part for part in self._keyed if part.key_groups]
        self.parts: tuple[StateSnapshot, ...] = tuple(sorted(with_groups, key=_first_group))
        """Sorted by their key groups."""
        self.folder = folder
        self._open_backend = open_backend

    @property
    def key_groups(self) -> KeyGroupRange:
        return KeyGroupRange(0, self.description.max_parallelism - 1)

    def check_covers(self) -> None:
        """Make sure that each key group is in exactly one part, as a restore does; reads no state.

        Reading does not call this: the parts that exist can be shown even if others are missing.

        Raises:
            Invalid: a key group is in none, or in two; or the parts do not fit each other.
            Corrupt: a part lacks handles that its attributes name.
        """
        read_snapshots(
            self._keyed,
            self.folder,
            uid=self.description.uid,
            key_groups=self.key_groups,
            max_parallelism=self.description.max_parallelism,
        )

    def open(self, key_groups: KeyGroupRange | None = None) -> OpenTables:
        """Open the tables, restricted to some key groups; a context manager.

        Raises:
            Invalid, Corrupt: the attributes of the parts are damaged, or contradict each other.
        """
        wanted = self.key_groups if key_groups is None else key_groups
        return OpenTables(self, self.parts, wanted, self._open_backend)

    def open_each(self, key_groups: KeyGroupRange | None = None) -> Iterator[OpenTables]:
        """As `open`, but part by part by key group, each closed before the next is opened.

        At most one store is open at a time on this machine.
        """
        wanted = self.key_groups if key_groups is None else key_groups
        for part in self.parts:
            with OpenTables(self, (part,), wanted, self._open_backend) as tables:
                yield tables

    def is_whole(self, table: KeyedTable) -> bool:
        """Whether all files of a table state that its records have all fields of their type.

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
        """The typed columns of a table, as in docs/savepoint-format.md.

        Raises:
            Corrupt: the snapshot does not state the type of its keys.
        """
        return form_to_write(self.typed(table))

    def typed(self, table: KeyedTable) -> TypedTable:
        """The types of a table's columns; raises as `form`."""
        found = self.description
        return typed_table(found.uid, found.max_parallelism, found.keys, table.info)


def form_to_write(typed: TypedTable) -> RowForm:
    """The typed columns in which a table was written.

    If the type does not let a record lack a field, all records have all fields.
    """
    return RowForm(typed, is_complete=not may_lack_fields(typed.values))


class OpenTables:
    """Tables that are open for reading, for one thread. `close` closes the stores it has opened."""

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
        """The rows of a table by ascending key group; elements of a list in list order.

        Raises:
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer, or this machine cannot open the store.
        """
        begun = self._read(table)
        self._begun.append(begun)
        return begun

    def batches(self, table: KeyedTable) -> Iterator[pa.RecordBatch]:
        """As `blocks`, in the columns of `KeyedReader.form`."""
        return self._reader.form(table).batches(self.blocks(table))

    def close(self) -> None:
        """Close all stores; iterators that are not exhausted end."""
        for begun in self._begun:  # a suspended iterator keeps its store open
            begun.close()
        for part in self._parts:
            part.close()

    def _read(self, table: KeyedTable) -> Generator[Block, None, None]:
        for part in self._parts:
            yield from part.blocks(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _OpenPart:
    """The part of one slot. Its store is opened for the first table that needs one."""

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
        self._carried: UndeclaredState | None = None

    def blocks(self, table: KeyedTable) -> Iterator[Block]:
        pending = [each for each in self._pending(table.name) if each.info.is_alike(table.info)]
        if len(pending) == 1:
            yield from pending[0].blocks()
            return
        # A slot that was restored from several parts keeps a table in several pieces until the job
        # accesses its state.
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

    def _opened(self) -> UndeclaredState:
        """A store with the files, and with what a log changes, loaded into it."""
        restored, description = self._restored, self._reader.description
        name = restored.files[0].backend if restored.files else replaying_backend()
        backend = self._open_backend(name)
        store = backend.open_store(description.uid, self._wanted, description.max_parallelism)
        self._closing.callback(store.close)
        carried = UndeclaredState(store, f"operator {description.uid!r}")
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
        """The slots that have a part."""
        return tuple(sorted(part.slot or 0 for part in self._own()))

    def check_covers(self) -> None:
        """Make sure that each slot has exactly one part, as a restore does; reads no state.

        Raises:
            Invalid: a slot has two parts, or the parts contradict each other.
            Corrupt: a part lacks handles that its attributes name.
        """
        place = OperatorSlot(self.uid, 0, 1)
        read_operator_snapshots(of_all_slots(self._own()), self.folder, place)

    def tables(self) -> tuple[UnkeyedTable, ...]:
        """All tables; raises as `unkeyed_tables`."""
        return unkeyed_tables(self.uid, self.parts)

    def named(self, name: str) -> tuple[UnkeyedTable, ...]:
        """The tables of a state; several if slots have stored it in several types."""
        return tuple(table for table in self.tables() if table.name == name)

    @property
    def parallelism(self) -> int:
        """The number of slots of the operator; 1 if none has left state without keys."""
        found = [operator_attributes(self.uid, part).parallelism for part in self._own()]
        return found[-1] if found else 1

    def has(self, table: UnkeyedTable, slot: int) -> bool:
        """Whether the part of a slot has this table, which may be empty."""
        return any(part.slot == slot and self._of(part, table) for part in self._own())

    def blocks(self, table: UnkeyedTable, slot: int) -> Iterator[Block]:
        """The rows that a slot has of a table, in order.

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
                    OperatorSlot(self.uid, slot, parallelism),
                    is_canonical=part.kind == OPERATOR_PARQUET_KIND,
                )
                yield from piece.blocks(0, its.elements)

    def batches(self, table: UnkeyedTable, slot: int) -> Iterator[pa.RecordBatch]:
        """As `blocks`, as typed columns."""
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
