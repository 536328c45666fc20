"""Operator state in the canonical form: a folder of Parquet files for each state.

As with keyed state, the attributes are those of the usual form, and each segment is a file
(`snapshots/parquet.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from holdfast.backends.arrow.rows import TYPES, RowForm, TypedTable
from holdfast.backends.blocks.block import Block
from holdfast.backends.operator_state.snapshots import (
    OPERATOR_PARQUET_KIND,
    OperatorSegment,
    OperatorSlot,
    OperatorTable,
    operator_snapshot,
)
from holdfast.backends.snapshots.neutral import Segments, SnapshotFuture, SnapshotTarget
from holdfast.backends.snapshots.parquet import write_parts
from holdfast.backends.values.codec import ValueCodec
from holdfast.storage import Handle, StateSnapshot, names

__all__ = ["CanonicalState", "typed_state", "write_canonical_states"]


@dataclass(frozen=True, slots=True)
class CanonicalState:
    """A state to be written; `codec` and `whole` are as those of `CanonicalTable`."""

    table: OperatorTable
    blocks: Iterable[Block]
    codec: ValueCodec[Any] | None = None
    whole: bool = False


def write_canonical_states(
    place: OperatorSlot,
    states: Sequence[CanonicalState],
    begin: tuple[SnapshotTarget, int],
    future: SnapshotFuture,
) -> StateSnapshot:
    """Write each state for a target and a checkpoint; the snapshot is valid at once.

    Raises:
        CancelledError: the snapshot was cancelled.
        Corrupt: state that was restored and is passed on is not as its snapshot describes it.
        Unavailable: the storage failed.
    """
    target, checkpoint_id = begin
    handles: dict[str, Handle] = {}
    written: list[OperatorTable] = []

    def begin_part(folder: str, number: int) -> Segments:
        path = names.table_file(place.uid, folder, place.slot, number)
        return target.table_file(checkpoint_id, path)

    for state in states:
        name = state.table.name
        folder = names.operator_table(name, sum(name == other.name for other in written))
        typed = typed_state(place.uid, place.slot, state.table)
        is_complete = state.codec is not None or state.whole
        form = RowForm(typed, state.codec, is_complete=is_complete)
        segments = []
        for part in write_parts(partial(begin_part, folder), form, state.blocks, future):
            handle = f"{name}/{len(handles)}"
            handles[handle] = part.handle
            segments.append(OperatorSegment(handle, part.rows))
        written.append(msgspec.structs.replace(state.table, segments=tuple(segments)))
    future.check()
    return operator_snapshot(OPERATOR_PARQUET_KIND, place, handles, written)


def typed_state(uid: str, slot: int, table: OperatorTable) -> TypedTable:
    """What the files of a state of a slot have."""
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
