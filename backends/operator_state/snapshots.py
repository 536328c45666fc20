"""Writing a snapshot of operator state: rows without keys, and the number of their elements.

A state may be written as several tables with types of their own: a declared state as it is declared
now, and state that was not declared as it was found. As with keyed state, both forms have the same
attributes; in the canonical one each segment is a Parquet file (`snapshots/parquet.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from holdfast.backends.arrow.rows import TYPES, RowForm, TypedTable
from holdfast.backends.blocks.block import Block
from holdfast.backends.operator_state.redistribution import Mode
from holdfast.backends.snapshots.neutral import (
    Segments,
    SnapshotFuture,
    SnapshotTarget,
    write_table,
)
from holdfast.backends.snapshots.parquet import ParquetPart, write_parts
from holdfast.backends.values.codec import ValueCodec
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import Handle, Invalid, StateSnapshot, names

__all__ = [
    "OPERATOR_KIND",
    "OPERATOR_KINDS",
    "OPERATOR_PARQUET_KIND",
    "OperatorAttributes",
    "OperatorSegment",
    "OperatorSlot",
    "OperatorTable",
    "OperatorWriter",
    "StateToWrite",
    "typed_state",
]

OPERATOR_KIND = "holdfast.operator-state/1"
"""The kind of a snapshot of operator state."""

OPERATOR_PARQUET_KIND = "holdfast.operator-parquet/1"
"""The kind of one in the canonical form: typed columns in Parquet files."""

OPERATOR_KINDS = (OPERATOR_KIND, OPERATOR_PARQUET_KIND)
"""All kinds of snapshots of operator state. Those of the slots of a checkpoint may differ."""

_Count = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class OperatorSlot:
    """One slot of an operator, and its parallelism; slots are numbered from 0."""

    uid: str
    slot: int
    parallelism: int

    def __post_init__(self) -> None:
        if not 0 <= self.slot < self.parallelism:
            raise Invalid(
                "a slot is out of range",
                where=f"operator {self.uid!r}",
                expected=f"from 0 to below the parallelism, {self.parallelism}",
                found=str(self.slot),
            )

    def __str__(self) -> str:
        return f"operator {self.uid!r}, slot {self.slot} of {self.parallelism}"


class OperatorSegment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One segment: the name of its handle, and how many elements are in it."""

    handle: str
    elements: _Count


class OperatorTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One state, or a piece of it: how it is written, and its segments in order."""

    name: str
    mode: Mode
    map_keys: Schema | None = None
    values: Schema
    segments: tuple[OperatorSegment, ...] = ()

    @property
    def elements(self) -> int:
        """How many elements, or entries of a map, there are."""
        return sum(segment.elements for segment in self.segments)


class OperatorAttributes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attributes of one slot's snapshot of operator state."""

    uid: str
    parallelism: Annotated[int, msgspec.Meta(ge=1)]
    states: tuple[OperatorTable, ...]


@dataclass(frozen=True, slots=True)
class StateToWrite:
    """A state, or a piece of it, to be written; `codec` and `whole` are as in `TableToWrite`."""

    table: OperatorTable
    blocks: Iterable[Block]
    codec: ValueCodec[Any] | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class OperatorWriter:
    """Writes operator state of one slot, in the canonical or the neutral form."""

    place: OperatorSlot
    target: SnapshotTarget
    checkpoint_id: int
    is_canonical: bool
    compression: str = ""
    """That of the neutral form; the canonical one has its own."""

    def write(self, states: Iterable[StateToWrite], future: SnapshotFuture) -> StateSnapshot:
        """Write each state; the snapshot is complete.

        Raises:
            CancelledError: the snapshot was cancelled.
            Corrupt: state that was restored and is passed on is not as its snapshot describes it.
            Unavailable: the storage failed.
        """
        handles: dict[str, Handle] = {}
        write = self._canonical if self.is_canonical else self._neutral
        attributes = OperatorAttributes(
            uid=self.place.uid,
            parallelism=self.place.parallelism,
            states=tuple(write(states, handles, future)),
        )
        return StateSnapshot(
            kind=OPERATOR_PARQUET_KIND if self.is_canonical else OPERATOR_KIND,
            handles=handles,
            attributes=msgspec.to_builtins(attributes),
            slot=self.place.slot,
        )

    def _neutral(
        self, states: Iterable[StateToWrite], handles: dict[str, Handle], future: SnapshotFuture
    ) -> Iterator[OperatorTable]:
        uid = self.place.uid
        with self.target.segments(self.checkpoint_id, uid, compression=self.compression) as writer:
            for state in states:
                name, number = state.table.name, len(handles)  # there may be twins of one name
                found, infos = write_table(writer, state.blocks, name, future, first_number=number)
                handles |= found
                segments = tuple(OperatorSegment(info.handle, info.rows) for info in infos)
                yield msgspec.structs.replace(state.table, segments=segments)
            future.check()

    def _canonical(
        self, states: Iterable[StateToWrite], handles: dict[str, Handle], future: SnapshotFuture
    ) -> Iterator[OperatorTable]:
        twins: Counter[str] = Counter()
        for state in states:
            name = state.table.name
            segments = []
            for part in self._parts(state, names.operator_table(name, twins[name]), future):
                handle = f"{name}/{len(handles)}"
                handles[handle] = part.handle
                segments.append(OperatorSegment(handle, part.rows))
            twins[name] += 1
            yield msgspec.structs.replace(state.table, segments=tuple(segments))
        future.check()

    def _parts(
        self, state: StateToWrite, folder: str, future: SnapshotFuture
    ) -> Iterator[ParquetPart]:
        typed = typed_state(self.place.uid, self.place.slot, state.table)
        form = RowForm(typed, state.codec, is_complete=state.codec is not None or state.whole)

        def begin(number: int) -> Segments:
            path = names.table_file(self.place.uid, folder, self.place.slot, number)
            return self.target.table_file(self.checkpoint_id, path)

        return write_parts(begin, form, state.blocks, future)


def typed_state(uid: str, slot: int, table: OperatorTable) -> TypedTable:
    """The columns and metadata of the files of a state of a slot."""
    types = {"map_keys": table.map_keys, "values": table.values}
    return TypedTable(
        name=table.name,
        kind=table.mode,
        slot=slot,
        map_keys=table.map_keys,
        values=table.values,
        metadata={
            "holdfast.format": OPERATOR_PARQUET_KIND,
            "holdfast.uid": uid,
            "holdfast.state": table.name,
            "holdfast.kind": table.mode.value,
            TYPES: msgspec.json.encode(types, order="sorted").decode(),
        },
    )
