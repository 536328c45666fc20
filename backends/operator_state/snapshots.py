"""Writing a snapshot of operator state: blocks without keys, and the number of their elements.

A state may be written as several tables with types of their own: a declared state as it is declared
now, and state that was not declared as it was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from holdfast.backends.blocks.block import Block
from holdfast.backends.operator_state.redistribution import Mode
from holdfast.backends.snapshots.neutral import Segments, SnapshotFuture, write_table
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import Handle, Invalid, StateSnapshot

__all__ = [
    "OPERATOR_KIND",
    "OPERATOR_KINDS",
    "OPERATOR_PARQUET_KIND",
    "OperatorAttributes",
    "OperatorSegment",
    "OperatorSlot",
    "OperatorTable",
    "operator_snapshot",
    "write_operator_snapshot",
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


def write_operator_snapshot(
    writer: Segments,
    place: OperatorSlot,
    tables: Iterable[tuple[OperatorTable, Iterable[Block]]],
    future: SnapshotFuture,
) -> StateSnapshot:
    """Write the blocks of each table; the handles are valid once the writer is closed.

    Raises:
        CancelledError: the snapshot was given up.
        Unavailable: the storage failed.
    """
    handles: dict[str, Handle] = {}
    written = []
    for table, blocks in tables:
        number = len(handles)  # a state may be written as several tables of one name
        its_handles, infos = write_table(writer, blocks, table.name, future, first_number=number)
        handles |= its_handles
        segments = tuple(OperatorSegment(info.handle, info.rows) for info in infos)
        written.append(msgspec.structs.replace(table, segments=segments))
    future.check()
    return operator_snapshot(OPERATOR_KIND, place, handles, written)


def operator_snapshot(
    kind: str, place: OperatorSlot, handles: dict[str, Handle], states: Sequence[OperatorTable]
) -> StateSnapshot:
    """The snapshot of what was written."""
    attributes = OperatorAttributes(
        uid=place.uid, parallelism=place.parallelism, states=tuple(states)
    )
    return StateSnapshot(
        kind=kind,
        handles=handles,
        attributes=msgspec.to_builtins(attributes),
        slot=place.slot,
    )
