"""The job that is simulated: two sources, two keyed operators in a row, a union, three sinks.

What it answers does not depend on the order in which rows of different channels meet, so there is
one right answer, which `expected` finds without any of the house's code.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa

from holdfast.backends import MapStateDescriptor
from holdfast.runtime.api.functions import (
    KeyedContext,
    KeyedProcessFunction,
    OnTimerContext,
    OutputTag,
    RuntimeContext,
)
from holdfast.runtime.planning.graph import Graph, Input, Node
from holdfast.runtime.planning.job_plan import JobPlan, plan_job
from holdfast.runtime.sinks import SinkWriter, TwoPhaseCommitSink, WriterContext
from holdfast.runtime.stream import DataStream, SourceFrame
from holdfast.storage import Corrupt, Unavailable
from support.simulations.world import World

ORDERS = pa.schema([("user", pa.string()), ("amount", pa.int64())])
TOTALS = pa.schema([("town", pa.string()), ("at", pa.int64()), ("total", pa.int64())])
LARGE = OutputTag("large", TOTALS)
MAX_PARALLELISM = 16
SOURCES = ("web", "shop")
SINKS = ("out", "large", "all")
_WINDOW_MS = 100
_TOWNS = 3


class Order(NamedTuple):
    """A row, and when it happened."""

    user: str
    amount: int
    at: int


Batch = list[list[Order]]
"""By split."""
Row = tuple[Any, ...]


def town_of(user: str) -> str:
    return f"town {int(user) % _TOWNS}"


def window_of(at: int) -> int:
    return at - at % _WINDOW_MS + _WINDOW_MS - 1


class Spend(KeyedProcessFunction):
    """What each user spends in each window; large orders at once, on the side."""

    def open(self, ctx: RuntimeContext) -> None:
        self.sums = ctx.get_map_state(MapStateDescriptor("sums", int, int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        at = ctx.timestamp()
        assert at is not None
        end = window_of(at)
        self.sums.put(end, (self.sums.get(end) or 0) + value.amount)
        ctx.timer_service().register_event_time_timer(end)
        return [(LARGE, (town_of(value.user), at, value.amount))] if value.amount >= 90 else None

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        total = self.sums.get(timestamp)
        self.sums.remove(timestamp)
        return [(town_of(ctx.get_current_key()), timestamp, total)]


class Towns(KeyedProcessFunction):
    """What all users of a town spend in each window."""

    def open(self, ctx: RuntimeContext) -> None:
        self.sums = ctx.get_map_state(MapStateDescriptor("sums", int, int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        assert ctx.timestamp() == value.at
        self.sums.put(value.at, (self.sums.get(value.at) or 0) + value.total)
        ctx.timer_service().register_event_time_timer(value.at)
        return None

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        total = self.sums.get(timestamp)
        self.sums.remove(timestamp)
        return [(ctx.get_current_key(), timestamp, total)]


def doubled(row: Any) -> Row:
    return (row.town, row.at, row.total * 2)


class Builder:
    """What streams need of an environment, without Spark."""

    def __init__(self) -> None:
        self.graph = Graph()

    def arrow_schema(self, schema: Any, where: str) -> pa.Schema:
        assert isinstance(schema, pa.Schema), where
        return schema

    def pickled(self, function: Any, where: str) -> bytes:
        return pickle.dumps(function)

    def source(
        self,
        uid: str,
        schema: pa.Schema,
        *,
        has_event_time: bool = False,
        is_streaming: bool = True,
    ) -> DataStream:
        frame = SimpleNamespace(isStreaming=is_streaming)
        node = Node(
            uid=uid,
            name="source",
            schema=schema,
            has_event_time=has_event_time,
            source=SourceFrame(frame, is_bounded=not is_streaming),
        )
        return DataStream(self, (Input(self.graph.add(node)),))


def job_plan(place: Shelf, parallelism: int) -> JobPlan:
    builder = Builder()
    web, shop = (builder.source(uid, ORDERS, has_event_time=True) for uid in SOURCES)
    spend = web.union(shop).key_by("user").process(Spend(), TOTALS, uid="spend")
    large = spend.get_side_output(LARGE)
    large.sink_to(ShelfSink(place), uid="large")
    towns = spend.key_by("town").process(Towns(), TOTALS, uid="towns")
    twice = towns.map(doubled, TOTALS, uid="twice")
    twice.sink_to(ShelfSink(place), uid="out")
    twice.union(large).sink_to(ShelfSink(place), uid="all")
    return plan_job(
        builder.graph, job_id="job", parallelism=parallelism, max_parallelism=MAX_PARALLELISM
    )


def orders_of(chance: random.Random) -> dict[str, list[Batch]]:
    """The batches of each source, in order of time."""
    return {uid: _batches(chance) for uid in SOURCES}


def _batches(chance: random.Random) -> list[Batch]:
    at, batches = 1_000, []
    for _ in range(chance.randint(4, 10)):
        splits: Batch = []
        for _ in range(chance.randint(1, 2)):
            split = []
            for _ in range(chance.randint(0, 4)):
                at += chance.randint(0, 40)
                split.append(Order(str(chance.randrange(12)), chance.randint(1, 99), at))
            splits.append(split)
        batches.append(splits)
    return batches


def expected(sources: dict[str, list[Batch]]) -> dict[str, Counter[Row]]:
    """The right answer of each sink."""
    orders = [
        order for batches in sources.values() for batch in batches for split in batch
        for order in split
    ]  # fmt: skip
    large = Counter((town_of(each.user), each.at, each.amount) for each in orders
                    if each.amount >= 90)  # fmt: skip
    sums: Counter[tuple[str, int]] = Counter()
    for order in orders:
        sums[town_of(order.user), window_of(order.at)] += order.amount
    out = Counter((town, end, total * 2) for (town, end), total in sums.items())
    return {"out": out, "large": large, "all": out + large}


@dataclass
class Shelf:
    """Where sinks write to: rows that are prepared, and those that readers see."""

    world: World
    on_commit: Callable[[str, str], None]
    """Told of each part before it is seen: the sink's uid, and the part's name."""
    prepared: dict[str, list[Row]] = field(default_factory=dict)
    committed: dict[str, list[Row]] = field(default_factory=dict)
    seen: dict[str, Counter[Row]] = field(default_factory=lambda: {uid: Counter() for uid in SINKS})

    def commit(self, uid: str, part: str) -> None:
        if part in self.committed:
            return
        if part not in self.prepared:
            raise Corrupt(f"what was prepared is not there any more: {part}")
        self.on_commit(uid, part)
        self.committed[part] = self.prepared.pop(part)
        self.seen[uid].update(self.committed[part])


def part_name(context: WriterContext, checkpoint_id: int) -> str:
    return f"{context.uid}/{context.attempt}/{checkpoint_id}/{context.slot}"


class ShelfSink(TwoPhaseCommitSink[str]):
    """Rows on a shelf; commits fail now and then, before or after they took effect."""

    committable_type = str

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    def __getstate__(self) -> dict[str, Any]:
        return {}  # it is pickled, as all sinks are, and never unpickled: slots are in this process

    def check(self, schema: pa.Schema) -> None:
        pass

    def open_writer(self, context: WriterContext) -> SinkWriter[str]:
        return _ShelfWriter(self.shelf, context)

    def commit(self, committables: Sequence[str], context: WriterContext) -> None:
        for part in committables:
            mishap = self.shelf.world.mishap("commit fails", "commit's answer is lost", rate=0.01)
            if mishap != "commit fails":
                self.shelf.commit(context.uid, part)
            if mishap is not None:
                raise Unavailable(mishap)

    def clean(self, keep: Sequence[str], context: WriterContext) -> None:
        for part in [*self.shelf.prepared]:
            uid, attempt, _, _ = part.split("/")
            if uid == context.uid and attempt < context.attempt and part not in keep:
                del self.shelf.prepared[part]


class _ShelfWriter(SinkWriter[str]):
    def __init__(self, shelf: Shelf, context: WriterContext) -> None:
        self._shelf = shelf
        self._context = context
        self._rows: list[Row] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += zip(*map(pa.Array.to_pylist, batch.columns), strict=True)

    def prepare(self, checkpoint_id: int) -> Sequence[str]:
        rows, self._rows = self._rows, []
        if not rows:
            return []
        name = part_name(self._context, checkpoint_id)
        assert name not in self._shelf.prepared
        assert name not in self._shelf.committed
        self._shelf.prepared[name] = rows
        return [name]

    def close(self) -> None:
        self._rows.clear()
