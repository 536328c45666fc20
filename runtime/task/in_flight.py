"""Rows in flight in a slot's part of a checkpoint: what barriers have overtaken, and its restore.

After a restore these rows are at the head of the channels of their edge, so a checkpoint that is
taken while they are still being processed treats them as it treats all rows that wait.

At another parallelism they are cut anew. Rows of an edge with keys go to the slots that have their
keys now. Other rows of a slot stay together, and in order. No edge is read by its key then, so any
slot may process them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from holdfast.backends import KeyGroupRange, Segments, SnapshotTarget, key_groups_of_slots
from holdfast.backends.snapshots.in_flight import (
    InFlight,
    InFlightPart,
    Segment,
    StoredRows,
    in_flight_parts,
    read_in_flight,
    write_in_flight,
)
from holdfast.runtime.api.errors import NotOpened, operator_named
from holdfast.runtime.columns.types import cast_to, detached, listed
from holdfast.runtime.planning.job_plan import EdgePlan, JobPlan
from holdfast.runtime.protocol.elements import size_bytes
from holdfast.runtime.task.channel import WaitingRows
from holdfast.runtime.task.spill import Spill, SpillFile
from holdfast.storage import StateFolder, StateSnapshot

__all__ = ["InFlightWriter", "OvertakenRows", "WriteInFlight", "read_restored"]

WriteInFlight: TypeAlias = Callable[[SnapshotTarget, Callable[[], None]], Sequence[StateSnapshot]]
"""Writes rows that barriers have overtaken, and returns a part for each edge that has any. The
function is called for each batch, and raises `CancelledError` if they are not wanted any more.
"""


@dataclass(frozen=True, slots=True)
class OvertakenRows:
    """Rows of one channel that belong to a checkpoint, and are processed behind its barrier.

    The first `skipped` of them were processed before the checkpoint cut. `first` is the number of
    the first of the others among all rows that the channel ever had.
    """

    edge: str
    sender: int
    waiting: Sequence[WaitingRows]
    skipped: int = 0
    first: int = 0

    def batches(
        self, but: int = 0, check_wanted: Callable[[], None] = lambda: None
    ) -> Iterator[pa.RecordBatch]:
        """The rows but the first ones, in batches that are read when they are asked for.

        `check_wanted` is called for each that is read.
        """
        to_skip = self.skipped + but
        for each in self.waiting:
            for batch in (each,) if isinstance(each, pa.RecordBatch) else each.batches():
                check_wanted()
                if to_skip < batch.num_rows:
                    yield batch.slice(to_skip)
                to_skip = max(to_skip - batch.num_rows, 0)


_Channel = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a checkpoint refers to of a channel: segments, and the number of their first row."""

    first: int
    segments: tuple[Segment, ...]

    @property
    def end(self) -> int:
        return self.first + sum(each.rows for each in self.segments)

    def since(self, row: int) -> _Stored:
        """The segments that have this row or later ones; none if it is not in them."""
        first, segments = self.first, deque(self.segments)
        while segments and first + segments[0].rows <= row:
            first += segments.popleft().rows
        if first > row or not segments:
            return _Stored(row, ())
        return _Stored(first, tuple(segments))


class InFlightWriter:
    """Writes the rows in flight of one slot's checkpoints, each row once.

    Rows that the newest completed checkpoint has stored are referred to: what waits long would be
    written by each checkpoint else. So they are in files that checkpoints share.
    """

    def __init__(self, plan: JobPlan, slot: int) -> None:
        self._plan = plan
        self._slot = slot
        self._groups = _groups(plan.parallelism, plan.max_parallelism)[slot]
        self._by_checkpoint: dict[int, dict[_Channel, _Stored]] = {}

    def begin(
        self, checkpoint_id: int, completed: int | None, overtaken: Sequence[OvertakenRows]
    ) -> WriteInFlight | None:
        """What writes these rows, later and in another thread; None if there are none.

        `completed` is the newest checkpoint that is known to be complete.
        """
        # No other one counts: files of those before it may be deleted, if it does not need them.
        base = {} if completed is None else self._by_checkpoint.get(completed, {})
        for number in [*self._by_checkpoint]:
            if completed is not None and number < completed:
                self._by_checkpoint.pop(number, None)
        return partial(self._write, checkpoint_id, base, overtaken) if overtaken else None

    def _write(
        self,
        checkpoint_id: int,
        base: Mapping[_Channel, _Stored],
        overtaken: Sequence[OvertakenRows],
        target: SnapshotTarget,
        check_wanted: Callable[[], None],
    ) -> list[StateSnapshot]:
        """Write rows of one chain, a part for each edge.

        Raises:
            CancelledError: they are not wanted any more.
            Unavailable: the storage failed.
        """
        by_edge: dict[str, list[OvertakenRows]] = {}
        for each in overtaken:
            by_edge.setdefault(each.edge, []).append(each)
        stored = self._by_checkpoint.setdefault(checkpoint_id, {})
        with target.shared_segments(checkpoint_id) as segments:
            written = [
                self._write_edge(edge, senders, base, stored, segments, check_wanted)
                for edge, senders in by_edge.items()
            ]
        return [part for part in written if part is not None]

    def _write_edge(
        self,
        edge: str,
        senders: Sequence[OvertakenRows],
        base: Mapping[_Channel, _Stored],
        stored: dict[_Channel, _Stored],
        target: Segments,
        check_wanted: Callable[[], None],
    ) -> StateSnapshot | None:
        plan = self._plan
        kept = {
            each.sender: base.get((edge, each.sender), _Stored(0, ())).since(each.first)
            for each in senders
        }
        part = write_in_flight(
            InFlight(
                edge=edge,
                columns=listed(plan.edge(edge).schema),
                parallelism=plan.parallelism,
                max_parallelism=plan.max_parallelism,
                rows={},
                kind=plan.edge(edge).kind.value,
                key_columns=plan.edge(edge).key_columns,
            ),
            {
                str(each.sender): each.batches(kept[each.sender].end - each.first, check_wanted)
                for each in senders
            },
            target,
            self._slot,
            (self._groups.first, self._groups.last) if plan.edge(edge).key_columns else None,
            {
                str(each.sender): StoredRows(
                    kept[each.sender].segments, each.first - kept[each.sender].first
                )
                for each in senders
            },
        )
        for described in in_flight_parts(() if part is None else (part,)):
            for each in senders:
                stored[edge, each.sender] = _now(kept[each.sender], described, each)
        return part


def _now(before: _Stored, part: InFlightPart, each: OvertakenRows) -> _Stored:
    """What is stored of a channel now that a part of it was written."""
    sender = str(each.sender)
    handles = part.segments(sender)
    if len(handles) == len(before.segments):
        return before
    new = each.first + part.about.rows[sender] - before.end
    return _Stored(before.first, (*before.segments, Segment(handles[-1], new)))


class _Restored:
    """Restored rows of one channel, in order: in memory, and beyond its share on local disk."""

    def __init__(self, memory_bytes: int, spill: Spill | None) -> None:
        self.rows: list[pa.RecordBatch | SpillFile] = []
        self._left_bytes = memory_bytes
        self._spill = spill
        self._file: SpillFile | None = None
        self._schema: pa.Schema = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep rows that follow."""
        self._left_bytes -= size_bytes(batch)
        # Behind rows on disk all others are there too: the budget is used up for good.
        if self._spill is None or self._left_bytes >= 0:
            self.rows.append(detached(batch))
            return
        if self._file is None or self._file.is_full or not self._schema.equals(batch.schema):
            self.seal()
            self._file, self._schema = self._spill.file(batch.schema), batch.schema
            self.rows.append(self._file)
        self._file.write(batch)

    def seal(self) -> None:
        """No more rows follow, or not in this file."""
        if self._file is not None:
            self._file.seal()
            self._file = None


def read_restored(
    parts: Collection[StateSnapshot],
    folder: StateFolder,
    plan: JobPlan,
    slot: int,
    *,
    memory_bytes: int = 0,
    spill: Spill | None = None,
) -> Mapping[tuple[str, int], Sequence[pa.RecordBatch | SpillFile]]:
    """The rows in flight that are this slot's, by edge and sender; they are in order.

    Rows of a channel beyond `memory_bytes` go to `spill`: they may be longer than memory. Without
    it all stay in memory. They are not left in the storage, which may lose its files when the next
    checkpoint is complete.

    Rows of edges that the job does not have are left out: a restore that may not drop them was
    refused before.

    Raises:
        NotOpened: they are damaged, the storage did not answer, or the local disk is full; names
            the operator before which they waited.
    """
    edges = {edge.edge_id: edge for edge in plan.edges}
    restored: dict[tuple[str, int], _Restored] = {}
    for each in in_flight_parts(parts):
        edge = edges.get(each.about.edge)
        if edge is None or not _may_have(each, edge, plan, slot):
            continue
        with operator_named(edge.target, NotOpened):
            partitioner = None
            if edge.key_columns and _is_cut_anew(each, plan):
                partitioner = edge.partitioner(plan.parallelism, plan.max_parallelism)
            for sender in each.about.rows:
                # Any channel of the edge will do at another parallelism: the rows of a sender stay
                # in order there.
                place = (edge.edge_id, int(sender) % edge.channels(plan.parallelism))
                rows = restored.setdefault(place, _Restored(memory_bytes, spill))
                for stored in read_in_flight(each, sender, folder):
                    batch = stored
                    if not stored.schema.equals(edge.schema):  # more may be null today
                        batch = cast_to(stored.columns, edge.schema)
                    part = batch if partitioner is None else partitioner.split(batch)[slot]
                    if part is not None and part.num_rows:
                        rows.add(part)
                rows.seal()
    return {place: each.rows for place, each in restored.items()}


def _is_cut_anew(each: InFlightPart, plan: JobPlan) -> bool:
    before = (each.about.parallelism, each.about.max_parallelism)
    return before != (plan.parallelism, plan.max_parallelism)


def _may_have(each: InFlightPart, edge: EdgePlan, plan: JobPlan, slot: int) -> bool:
    """Whether some of the rows may be this slot's, so that reading them is worth it."""
    about = each.about
    if not _is_cut_anew(each, plan):
        return each.slot == slot
    if not edge.key_columns:
        return each.slot * plan.parallelism // about.parallelism == slot
    if about.max_parallelism != plan.max_parallelism:
        return True
    before = _groups(about.parallelism, about.max_parallelism)[each.slot]
    now = _groups(plan.parallelism, plan.max_parallelism)[slot]
    return before.first <= now.last and now.first <= before.last


def _groups(parallelism: int, max_parallelism: int) -> Sequence[KeyGroupRange]:
    return key_groups_of_slots(parallelism, max_parallelism)
