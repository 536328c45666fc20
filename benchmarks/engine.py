"""The loop of a slot: what a turn costs, and which pipeline gets the time.

Figures of issue 10: a watermark through 800 chains of one slot takes at most 50 ms; of two
pipelines, one with a hundred times the rows of the other, each gets at least 0.8 of its fair share
of the time. There is no Spark here, and no network: a slot and its channels in one thread.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from benchmarks.harness import Result, Scale, seconds
from holdfast.backends import ValueStateDescriptor, load_backend
from holdfast.runtime.api.functions import KeyedProcessFunction
from holdfast.runtime.planning.graph import Graph, Input, Node
from holdfast.runtime.planning.job_plan import plan_job, with_event_time
from holdfast.runtime.protocol.elements import Watermark
from holdfast.runtime.stream import DataStream, SourceFrame
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.slot import Slot
from holdfast.runtime.task.slot_assignment import SlotAssignment
from holdfast.storage import SystemClock, load_storage

__all__ = ["run"]

_ROWS = pa.schema([("key", pa.int64()), ("value", pa.int64())])
_LIGHT_ROWS, _HEAVY_ROWS = 100, 10_000
_WAITING_BATCHES = 4


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    yield _watermark(scale)
    yield _shares(scale)


class _Sum(KeyedProcessFunction):
    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + value.value)


class _Pipelines:
    """What streams need of an environment, without Spark; then a slot that runs them."""

    def __init__(self) -> None:
        self.graph = Graph()

    def arrow_schema(self, schema: Any, where: str) -> pa.Schema:
        del where
        return schema

    def pickled(self, function: Any, where: str) -> bytes:
        del where
        return pickle.dumps(function)

    def source(self, uid: str) -> DataStream:
        node = Node(
            uid=uid,
            name="source",
            schema=_ROWS,
            has_event_time=True,
            source=SourceFrame(SimpleNamespace(isStreaming=True), is_bounded=False),
        )
        return DataStream(self, (Input(self.graph.add(node)),))

    def slot(self) -> tuple[Slot, dict[str, Channel]]:
        """Opened, and its channels by edge."""
        plan = plan_job(self.graph, job_id="engine", parallelism=1, max_parallelism=128)
        bell = Bell()
        channels = {edge.edge_id: Channel(1 << 30, bell) for edge in plan.edges}
        assignment = SlotAssignment(
            plan=plan,
            epoch=1,
            attempt=1,
            backend=load_backend("hashmap"),
            job=load_storage("memory").job("engine"),
            first_checkpoint_id=1,
        )
        by_sender = {edge: [channel] for edge, channel in channels.items()}
        slot = Slot(assignment, 0, by_sender, _no_other, lambda _: True, bell, SystemClock())
        slot.open()
        _work(slot)
        return slot, channels


def _no_other(*_: Any) -> Any:
    raise AssertionError("there is no other slot")


def _work(slot: Slot) -> None:
    while slot.step():
        pass


def _watermark(scale: Scale) -> Result:
    """How long a watermark takes through many chains in a row."""
    count = scale.pick(800, 20)
    pipelines = _Pipelines()
    stream = pipelines.source("source")
    for number in range(count):
        stream = stream.key_by("key").process(_Sum(), _ROWS, uid=f"chain {number}")
    slot, channels = pipelines.slot()
    samples, moment = [], 0
    for _ in range(scale.repetitions + 1):  # the first one warms up
        moment += 1_000
        channels["chain 0/0"].offer(Watermark(moment))
        samples.append(1_000 * seconds(lambda: _work(slot)))
    reached = [slot.loop.metrics(place).watermark_ms for place in range(count)]
    slot.close()
    return Result(
        "engine.watermark",
        "ms through all chains",
        tuple(samples[1:]),
        f"all are there: {reached == [moment] * count}",
        "<= 50",
        {"chains": count},
    )


def _shares(scale: Scale) -> Result:
    """The smaller share of the time that two pipelines get, in parts of a fair one."""
    light_batches = scale.pick(2_000, 5)
    samples, read = [], set()
    for _ in range(scale.repetitions):
        pipelines = _Pipelines()
        for uid in ("light", "heavy"):
            pipelines.source(f"{uid} rows").key_by("key").process(_Sum(), _ROWS, uid=uid)
        slot, channels = pipelines.slot()
        light, heavy = channels["light/0"], channels["heavy/0"]
        few, many = _batch(_LIGHT_ROWS), _batch(_HEAVY_ROWS)
        left = light_batches
        while left or len(light):
            while len(heavy) < _WAITING_BATCHES:
                heavy.offer(many)
            while len(light) < _WAITING_BATCHES and left:
                light.offer(few)
                left -= 1
            slot.step()
        told = [slot.loop.metrics(place) for place in range(2)]
        busy_s = [each.busy_s for each in told]
        read.add(told[0].rows)
        samples.append(2 * min(busy_s) / sum(busy_s))
        slot.close()
    return Result(
        "engine.shares",
        "smaller share of the time of two pipelines, in parts of a fair one",
        tuple(samples),
        f"the light one was read: {read == {light_batches * _LIGHT_ROWS}}",
        ">= 0.8",
        {"light_batch_rows": _LIGHT_ROWS, "heavy_batch_rows": _HEAVY_ROWS},
    )


def _batch(rows: int) -> pa.RecordBatch:
    numbers = pa.array(range(rows), pa.int64())
    return pa.RecordBatch.from_arrays([numbers] * 3, schema=with_event_time(_ROWS))
