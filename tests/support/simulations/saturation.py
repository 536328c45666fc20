"""Two pipelines in one job, simulated, whose sources always have more.

One works long for its rows, and its sink is slow to write and to commit; the other is not. No
barrier may wait longer in a slot than the share of its own chain lets it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from holdfast.runtime.api.functions import KeyedContext, OnTimerContext
from holdfast.runtime.planning.job_plan import JobPlan, plan_job
from holdfast.runtime.protocol.elements import Barrier, Element
from holdfast.runtime.sinks import SinkWriter, WriterContext
from support.simulations.cluster import SimulatedSlot
from support.simulations.jobs import (
    MAX_PARALLELISM,
    ORDERS,
    SOURCES,
    TOTALS,
    Batch,
    Builder,
    Order,
    Row,
    ShelfSink,
    Spend,
    town_of,
    window_of,
)
from support.simulations.missed_chains import checked_step
from support.simulations.runs import Simulation
from support.simulations.world import Broken, World

__all__ = ["SaturatedSimulation"]

_ROW_MS = 1
_WRITE_MS = 1
_COMMIT_MS = 50
_ALL_ROWS_MS = 5_000
_SPLIT_ROWS = 30


class Toil(Spend):
    """The same, and each row and each timer takes a millisecond."""

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        World.current().toil(_ROW_MS)
        return super().process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        World.current().toil(_ROW_MS)
        return super().on_timer(timestamp, ctx)


class SlowSink(ShelfSink):
    """Takes its time for each row, and for each commit."""

    def open_writer(self, context: WriterContext) -> SinkWriter[str]:
        return _SlowWriter(super().open_writer(context))

    def commit(self, committables: Sequence[str], context: WriterContext) -> None:
        World.current().toil(_COMMIT_MS)
        super().commit(committables, context)


class _SlowWriter(SinkWriter[str]):
    def __init__(self, writer: SinkWriter[str]) -> None:
        self._writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        World.current().toil(_WRITE_MS * batch.num_rows)
        self._writer.write(batch)

    def prepare(self, checkpoint_id: int) -> Sequence[str]:
        return self._writer.prepare(checkpoint_id)

    def close(self) -> None:
        self._writer.close()


class SaturatedSimulation(Simulation):
    """Light rows and heavy ones; the chain of the heavy ones is the last one of each slot."""

    keyed = ("light", "heavy")
    sinks = ("light-out", "heavy-out")
    eagerness = 5.0

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.cluster.watch = self._watched
        self._bounds_ms: dict[tuple[SimulatedSlot, str, Barrier], int] = {}
        self._waited_ms: Counter[tuple[SimulatedSlot, str, Barrier]] = Counter()
        self.passed = 0
        """How many barriers were seen to wait, and then to pass."""

    def drawn(self, chance: random.Random) -> dict[str, list[Batch]]:
        web, shop = SOURCES
        return {web: _orders(chance, 25, 1), shop: _orders(chance, 25, _SPLIT_ROWS)}

    def answer(self, batches: dict[str, list[Batch]]) -> dict[str, Counter[Row]]:
        return {sink: _answer(batches[uid]) for uid, sink in zip(SOURCES, self.sinks, strict=True)}

    def _least_timeout_ms(self) -> int:
        """And all rows may be in front of the first barrier, which slots process by turns."""
        return super()._least_timeout_ms() + _ALL_ROWS_MS

    def planned(self) -> JobPlan:
        builder = Builder()
        pipelines = ((Spend(), ShelfSink(self.shelf)), (Toil(), SlowSink(self.shelf)))
        for uid, name, (function, sink) in zip(SOURCES, self.keyed, pipelines, strict=True):
            source = builder.source(uid, ORDERS, has_event_time=True)
            spent = source.key_by("user").process(function, TOTALS, uid=name)
            spent.sink_to(sink, uid=f"{name}-out")
        return plan_job(
            builder.graph,
            job_id="job",
            parallelism=self.parallelism,
            max_parallelism=MAX_PARALLELISM,
        )

    def _watched(self, slot: SimulatedSlot) -> bool:
        """A step; barriers that might have been read meanwhile, and were not, have waited."""
        waiting = [
            (slot, edge, element)
            for chain in slot.slot.chains
            if chain.has_room
            for edge in chain.plan.inputs
            for element, _ in slot.channel(edge)._elements
            if isinstance(element, Barrier)
        ]
        for each in waiting:
            if each not in self._bounds_ms:
                self._bounds_ms[each] = self._bound_ms(*each)
        # Only what chains do: the clock goes on also where a sink waits to commit once more.
        before_ms = self.world.toiled_ms
        has_done = checked_step(slot.slot)
        took_ms = self.world.toiled_ms - before_ms
        for each in waiting:
            self._waited_ms[each] += took_ms
            if self._waited_ms[each] > self._bounds_ms[each]:
                raise Broken(f"{each[2]} starves in front of {each[1]} of {slot.process.name}")
            if all(element is not each[2] for element, _ in slot.channel(each[1])._elements):
                self.passed += 1
        return has_done

    def _bound_ms(self, slot: SimulatedSlot, edge: str, barrier: Barrier) -> int:
        """What its chain has to do before, and as much for each other chain; a turn more of each.

        What a chain does for a watermark is not known before: each key may have a timer for each.
        Where a slow file took a chain's time, the others get as much before its next turn.
        """
        chains = slot.slot.chains
        (chain,) = (each for each in chains if edge in each.plan.inputs)
        is_heavy = chain.plan.chain_id == "heavy"
        own_ms = is_heavy * sum(_cost_ms(each) for each, _ in _before(slot, edge, barrier))
        turn_ms = max(_SPLIT_ROWS * _ROW_MS, _TIMERS_MS)
        turns = slot.slot.loop.turns
        least_s = max(turns._least, min(turns._spent))
        ahead_ms = round(1_000 * max(turns._spent[chains.index(chain)] - least_s, 0))
        return len(chains) * (own_ms + turn_ms) + ahead_ms


_USERS = 12
_TIMERS_MS = 2 * _USERS * (_ROW_MS + _WRITE_MS)


def _before(slot: SimulatedSlot, edge: str, barrier: Barrier) -> list[Any]:
    elements = [*slot.channel(edge)._elements]
    place = next(place for place, (each, _) in enumerate(elements) if each is barrier)
    return elements[:place]


def _cost_ms(element: Element) -> int:
    """What the heavy chain does for it at most: each mark may be a watermark."""
    return _ROW_MS * element.num_rows if isinstance(element, pa.RecordBatch) else _TIMERS_MS


def _orders(chance: random.Random, count: int, most: int) -> list[Batch]:
    at, batches = 1_000, []
    for _ in range(count):
        splits: Batch = []
        for _ in range(chance.randint(1, 2)):
            at += 40
            rows = range(chance.randint((most + 1) // 2, most))
            splits.append([Order(str(chance.randrange(_USERS)), 1, at) for _ in rows])
        batches.append(splits)
    return batches


def _answer(batches: list[Batch]) -> Counter[Row]:
    sums: Counter[tuple[str, int]] = Counter()
    for batch in batches:
        for split in batch:
            for order in split:
                sums[order.user, window_of(order.at)] += order.amount
    return Counter((town_of(user), end, total) for (user, end), total in sums.items())
