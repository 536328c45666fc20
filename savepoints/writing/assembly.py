"""Assembling a savepoint from written parts, and committing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import pyarrow as pa

from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.operator_state.snapshots import (
    OperatorSlot,
    OperatorTable,
    OperatorWriter,
    StateToWrite,
)
from holdfast.backends.snapshots.neutral import (
    PARQUET_KIND,
    KeyedAttributes,
    SnapshotFuture,
    SnapshotTarget,
    TableInfo,
    keyed_snapshot,
)
from holdfast.savepoints.writing.changes import OperatorChanges
from holdfast.savepoints.writing.keyed_rows import RowColumns
from holdfast.savepoints.writing.unkeyed_rows import UnkeyedRows
from holdfast.storage import (
    CheckpointMetadata,
    Handle,
    InlineHandle,
    SavepointFolder,
    SegmentWriter,
    StateFolder,
    StateSnapshot,
)
from holdfast.storage.retries import Backoff, repeat_while_unavailable

__all__ = [
    "AttemptTarget",
    "UnkeyedTableRows",
    "clean_and_commit",
    "copy_part",
    "join_parts",
    "write_unkeyed",
]

_TRIES = 3
UnkeyedTableRows = tuple[UnkeyedRows, pa.Table, RowColumns]
"""A new state without keys, its rows, and the columns of these."""


@dataclass(frozen=True)
class AttemptTarget:
    """The target of one attempt to write tables, with file names that no other attempt uses.

    Spark may run a task twice, even at the same time, and an attempt that it has given up may go on
    for a while. One attempt counts; files of the others are deleted before the savepoint is
    committed.
    """

    folder: SavepointFolder
    token: str

    @classmethod
    def begin(cls, folder: SavepointFolder) -> AttemptTarget:
        """The target of a new attempt."""
        return cls(folder, folder.storage.entropy.token()[:8])

    def table_file(self, checkpoint_id: int, path: str) -> SegmentWriter:
        stem = path.removesuffix(".parquet")
        return self.folder.table_file(checkpoint_id, f"{stem}-{self.token}.parquet")

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        """Begin a file for segments that are not tables; creates none if there are no segments."""
        return self.folder.segments(checkpoint_id, label, compression=compression)

    shared_segments = log_segments = segments


def join_parts(
    attributes: KeyedAttributes,
    key_groups: Sequence[KeyGroupRange],
    written: Mapping[int, Iterable[StateSnapshot]],
) -> tuple[StateSnapshot, ...]:
    """The keyed state of an operator: one part for each of these ranges, also for empty ones.

    `attributes` describe the tables without segments; `written` has the snapshots of each range.
    """
    parts = []
    for number, groups in enumerate(key_groups):
        handles: dict[str, Handle] = {}
        tables: list[TableInfo] = []
        for snapshot in written.get(number, ()):
            handles |= snapshot.handles
            tables += msgspec.convert(snapshot.attributes, KeyedAttributes).tables
        there = {table.name for table in tables}
        tables += [table for table in attributes.tables if table.name not in there]
        whole = msgspec.structs.replace(attributes, tables=tuple(tables))
        parts.append(keyed_snapshot(PARQUET_KIND, whole, handles, groups))
    return tuple(parts)


def write_unkeyed(
    operator: OperatorChanges,
    new: Sequence[UnkeyedTableRows],
    target: SnapshotTarget,
    checkpoint_id: int,
) -> tuple[StateSnapshot, ...]:
    """Write the state without keys of an operator, which is small; returns one part for each slot.

    A new operator gets one slot: a restore redistributes its state.

    Raises:
        Invalid: a row does not fit its type.
        Corrupt, Unavailable: stored state cannot be read.
    """
    kept = operator.kept_unkeyed
    if not kept and not new:
        return ()
    slots = 1 if operator.unkeyed is None else operator.unkeyed.parallelism
    dealt = [(state.table, state.dealt(rows, columns, slots)) for state, rows, columns in new]
    parts = []
    for slot in range(slots):
        states = [StateToWrite(table, blocks[slot], whole=True) for table, blocks in dealt]
        for table, its in kept:
            states.append(StateToWrite(its, _kept(operator, table.info, slot)))
        place = OperatorSlot(operator.uid, slot, slots)
        writer = OperatorWriter(place, target, checkpoint_id, is_canonical=True)
        parts.append(writer.write(states, SnapshotFuture()))
    return tuple(parts)


def _kept(operator: OperatorChanges, table: OperatorTable, slot: int) -> Iterator[Block]:
    reader = operator.unkeyed
    assert reader is not None, "what is kept is stored"
    for each in reader.tables():
        if each.info == table:
            yield from reader.blocks(each, slot)


def copy_part(
    snapshot: StateSnapshot,
    source: StateFolder,
    target: SnapshotTarget,
    checkpoint_id: int,
    label: str = "copied",
) -> StateSnapshot:
    """The same bytes in another folder, streamed: a part may be longer than memory.

    Raises:
        Corrupt: a file is missing or damaged; names it.
        Unavailable: a storage failed.
    """
    handles: dict[str, Handle] = {}
    with target.segments(checkpoint_id, label) as writer:
        for name, handle in snapshot.handles.items():
            if isinstance(handle, InlineHandle):
                handles[name] = handle
                continue
            with writer.stream() as segment:
                for piece in source.stream(handle):
                    segment.write(piece)
            handles[name] = segment.handle
    return msgspec.structs.replace(snapshot, handles=handles, begun_from=None)


def clean_and_commit(folder: SavepointFolder, metadata: CheckpointMetadata) -> None:
    """Delete files that the savepoint does not refer to, such as those of lost attempts; commit.

    Raises:
        Unavailable: the storage did not answer, several times; the commit may have happened.
    """
    needed = metadata.files()
    folder.delete_own(lambda file: file not in needed)
    # After Unavailable it may be committed: only another try with the same bytes tells.
    repeat_while_unavailable(
        partial(folder.commit, metadata),
        Backoff(first_s=0.0),  # storages pause themselves before they give up
        pause=folder.storage.clock.sleep_s,
        most=_TRIES,
    )
