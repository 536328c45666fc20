"""Rows in flight in a slot's part of a checkpoint: what barriers have overtaken, and its restore.

After a restore these rows are at the head of the channels of their edge, so a checkpoint that is
taken while they are still being processed treats them as it treats all rows that wait.

At another parallelism they are cut anew. Rows of an edge with keys go to the slots that have their
keys now. Other rows of a slot stay together, and in order. No edge is read by its key then, so any
slot may process them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.backends import KeyGroupRange, Segments, key_groups_of_slots
from holdfast.backends.snapshots.in_flight import (
    InFlight,
    InFlightPart,
    in_flight_parts,
    read_in_flight,
    write_in_flight,
)
from holdfast.runtime.api.errors import NotOpened, operator_named
from holdfast.runtime.columns.types import listed
from holdfast.runtime.planning.job_plan import EdgePlan, JobPlan
from holdfast.runtime.task.channel import WaitingRows
from holdfast.storage import StateFolder, StateSnapshot

__all__ = ["OvertakenRows", "are_cut_anew", "read_restored", "write_overtaken"]


@dataclass(frozen=True, slots=True)
class OvertakenRows:
    """Rows of one channel that belong to a checkpoint, and are processed behind its barrier.

    The first `skipped` of them were processed before the checkpoint cut.
    """

    edge: str
    sender: int
    waiting: Sequence[WaitingRows]
    skipped: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches that are read when they are asked for."""
        to_skip = self.skipped
        for each in self.waiting:
            for batch in (each,) if isinstance(each, pa.RecordBatch) else each.batches():
                if to_skip < batch.num_rows:
                    yield batch.slice(to_skip)
                to_skip = max(to_skip - batch.num_rows, 0)


def write_overtaken(
    plan: JobPlan, slot: int, overtaken: Iterable[OvertakenRows], target: Segments
) -> list[StateSnapshot]:
    """Write these rows, a part for each edge.

    Raises:
        TooLarge: the storage keeps state in memory only, and this is past its limit.
        Unavailable: the storage failed.
    """
    by_edge: dict[str, dict[str, Iterator[pa.RecordBatch]]] = {}
    for each in overtaken:
        by_edge.setdefault(each.edge, {})[str(each.sender)] = each.batches()
    groups = _groups(plan.parallelism, plan.max_parallelism)[slot]
    written = (
        write_in_flight(
            InFlight(
                edge=edge,
                columns=listed(plan.edge(edge).schema),
                parallelism=plan.parallelism,
                max_parallelism=plan.max_parallelism,
                rows={},
            ),
            senders,
            target,
            slot,
            (groups.first, groups.last) if plan.edge(edge).key_columns else None,
        )
        for edge, senders in by_edge.items()
    )
    return [part for part in written if part is not None]


def read_restored(
    parts: Collection[StateSnapshot], folder: StateFolder, plan: JobPlan, slot: int
) -> Mapping[tuple[str, int], Sequence[pa.RecordBatch]]:
    """The rows in flight that are this slot's, by edge and sender; they are in order.

    Rows of edges that the job does not have are left out: a restore that may not drop them was
    refused before.

    Raises:
        NotOpened: they are damaged, or the storage did not answer; names the operator before
            which they waited.
    """
    edges = {edge.edge_id: edge for edge in plan.edges}
    restored: dict[tuple[str, int], list[pa.RecordBatch]] = {}
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
                rows = restored.setdefault(place, [])
                for batch in read_in_flight(each, sender, folder):
                    part = batch if partitioner is None else partitioner.split(batch)[slot]
                    if part is not None and part.num_rows:
                        rows.append(part)
    return restored


def are_cut_anew(parts: Iterable[StateSnapshot], plan: JobPlan) -> bool:
    """Whether rows in flight go to other slots than they were in."""
    return any(_is_cut_anew(each, plan) for each in in_flight_parts(parts))


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
