"""Runs in tasks of Spark: pushes the rows of a source into the slots, and returns a summary.

A slot that cannot be reached is reported in the summary and does not fail the task: another
attempt of the task would not reach it either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from holdfast.runtime.columns.event_time import event_times
from holdfast.runtime.columns.types import cast_to
from holdfast.runtime.network import Credentials, PushStream, SlotClient
from holdfast.runtime.planning.job_plan import EdgePlan
from holdfast.runtime.planning.partitioning import Partitioner
from holdfast.runtime.protocol.messages import PushKey, RoomFor
from holdfast.runtime.task.staging import Superseded
from holdfast.storage import Fenced, Unavailable

__all__ = ["PUSHED_SCHEMA", "Pushed", "Pusher"]

PUSHED_SCHEMA = "split int, attempt long, rows long, latest long, is_void boolean, lost string"
_REACH_S = 1.0
# The restore waits for this task: a slot's server is there until its process ends.
_TRIED_FOR_S = 0.3


class Pushed(NamedTuple):
    """The summary of a task: its split and attempt, how many rows it pushed, the latest event time.

    `is_void`: the slots have left this attempt of the job, and did not take the rows. `lost`: why a
    slot cannot be reached. Neither fails the task: Spark would log it, and retry in vain while the
    job waits to start anew.
    """

    split: int
    attempt: int
    rows: int
    latest: int | None
    is_void: bool = False
    lost: str = ""


@dataclass(frozen=True, kw_only=True)
class Pusher:
    """Pushes the rows of one split. `batch` None: each split is a batch of its own."""

    source: str
    batch: int | None
    edges: tuple[EdgePlan, ...]
    time_column: str | None
    slots: Mapping[int, str]
    max_parallelism: int
    credentials: Credentials

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        split, attempt = context.partitionId(), context.taskAttemptId()
        try:
            pushed = self._push(split, attempt, batches)
        except Superseded:
            pushed = Pushed(split, attempt, 0, None)  # not read: another attempt has won
        except Fenced:  # such as `Closed`; at its port may be another attempt by now
            pushed = Pushed(split, attempt, 0, None, is_void=True)
        except Unavailable as error:
            pushed = self._slot_lost(Pushed(split, attempt, 0, None), error)
        values = zip(Pushed._fields, pushed, _PUSHED_TYPES, strict=True)
        yield pa.RecordBatch.from_pydict(
            {name: pa.array([one], kind) for name, one, kind in values}
        )

    def _slot_lost(self, pushed: Pushed, error: Unavailable) -> Pushed:
        """The summary if a slot is gone, or has left the attempt.

        Raises:
            Unavailable: all slots can be reached, so another attempt of the task may succeed.
        """
        message = RoomFor(source=self.source, limit_bytes=_NO_LIMIT, timeout_s=0.0)
        for _, address in sorted(self.slots.items()):
            try:
                with SlotClient(
                    address, self.credentials, timeout_s=_REACH_S, retry_for_s=_TRIED_FOR_S
                ) as client:
                    client.call(message)
            except Fenced:
                return pushed._replace(is_void=True)
            except Unavailable:
                return pushed._replace(lost=str(error))
        raise error

    def _push(self, split: int, attempt: int, batches: Iterable[pa.RecordBatch]) -> Pushed:
        clients = _clients(self.credentials, self.slots)
        rows = 0
        latest: int | None = None
        batch_id = split if self.batch is None else self.batch
        with ExitStack() as stack:
            lanes = []
            for edge in self.edges:
                key = PushKey(self.source, edge.edge_id, batch_id, split, attempt)
                streams = [stack.enter_context(client.push(key, edge.schema)) for client in clients]
                lanes.append(_Lane(edge, streams, self.max_parallelism, split))
            for batch in batches:
                if batch.num_rows:
                    rows += batch.num_rows
                    columns, times = list(batch.columns), None
                    if self.time_column is not None:
                        times = event_times(
                            batch.column(self.time_column),
                            name=self.time_column,
                            where=f"source {self.source!r}",
                        )
                        last = pc.max(times).as_py()
                        latest = last if latest is None else max(latest, last)
                    for lane in lanes:
                        lane.push(columns, times)
            for lane in lanes:
                lane.finish()
        return Pushed(split, attempt, rows, latest)


_PUSHED_TYPES = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.bool_(), pa.string())
_NO_LIMIT = 2**62


class _Lane:
    """One edge of the source, to all slots."""

    def __init__(
        self, edge: EdgePlan, streams: list[PushStream], max_parallelism: int, split: int
    ) -> None:
        self._schema = edge.schema
        self._streams = streams
        self._next = split
        self._partitioner: Partitioner | None = None
        if edge.key_columns:
            self._partitioner = edge.partitioner(len(streams), max_parallelism)

    def push(self, columns: list[Any], times: pa.Array | None) -> None:
        if times is not None:
            columns = [*columns, times]
        batch = cast_to(columns, self._schema)
        if self._partitioner is None:
            self._streams[self._next % len(self._streams)].add(batch)
            self._next += 1
            return
        for stream, part in zip(self._streams, self._partitioner.split(batch), strict=True):
            if part is not None:
                stream.add(part)

    def finish(self) -> None:
        for stream in self._streams:
            stream.finish()


_cached: tuple[tuple[Credentials, tuple[tuple[int, str], ...]], list[SlotClient]] | None = None


def _clients(credentials: Credentials, slots: Mapping[int, str]) -> list[SlotClient]:
    """Clients of all slots, by slot. Kept between tasks: Spark uses a process for many of them."""
    global _cached  # noqa: PLW0603 - one process works for one attempt after the other
    key = (credentials, tuple(sorted(slots.items())))
    if _cached is None or _cached[0] != key:
        if _cached is not None:
            for client in _cached[1]:
                client.close()
        _cached = (key, [SlotClient(address, credentials) for _, address in key[1]])
    return _cached[1]
