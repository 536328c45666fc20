"""Many timers that are due at once fire in slices, between which a snapshot may be taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import StateBackend
from holdfast.runtime.api.functions import (
    BatchContext,
    KeyedBatchFunction,
    KeyedContext,
    KeyedProcessFunction,
    OnTimerContext,
    TimeDomain,
)
from holdfast.runtime.operators import KeyedBatchSpec
from holdfast.runtime.operators.keyed_batch_operator import MOST_BATCHED_TIMERS
from holdfast.runtime.operators.row_and_timer_loops import MOST_RESULTS, MOST_TIMERS
from holdfast.runtime.protocol.operator import OperatorSpec
from holdfast.storage import ManualClock, load_storage
from support.jobs.operator_runs import Collected, Slot, keyed, opened, running, snapshots_of

FIRED = pa.schema([("what", pa.string()), ("at", pa.int64())])


class Swarm(KeyedProcessFunction):
    """A timer for each key, by event time or by the clock; each makes as many rows as is said."""

    def __init__(self, results: int = 1) -> None:
        self.results = results

    def process_element(self, value: Any, ctx: KeyedContext) -> None:
        if value.amount:
            ctx.timer_service().register_processing_time_timer(value.amount)
        else:
            ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[Any]:
        for _ in range(self.results):
            yield ctx.get_current_key(), timestamp


class BatchSwarm(KeyedBatchFunction):
    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
        count = batch.num_rows
        if batch["amount"][0].as_py():
            ctx.register_processing_time_timers(batch["user"], batch["amount"])
        else:
            ctx.register_event_time_timers(batch["user"], [1] * count)

    def on_timers(
        self, timestamps: Sequence[int], keys: Sequence[Any], domain: TimeDomain, ctx: BatchContext
    ) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(timestamps)], schema=FIRED)


KINDS = [
    pytest.param(keyed(Swarm(), FIRED, has_event_time=True), MOST_TIMERS, id="rows"),
    pytest.param(
        keyed(BatchSwarm(), FIRED, has_event_time=True, cls=KeyedBatchSpec),
        MOST_BATCHED_TIMERS,
        id="batches",
    ),
]


def users(count: int) -> list[str]:
    return [f"u{number}" for number in range(count)]


@pytest.mark.parametrize(("spec", "most"), KINDS)
def test_a_call_fires_so_many_and_a_snapshot_between_has_the_rest(
    spec: OperatorSpec, most: int, backend: StateBackend
) -> None:
    job, count = load_storage("memory://").job("job"), most + 10
    with running(spec, backend=backend, job=job, shows_times=False) as slot:
        slot.feed([(user, 0) for user in users(count)])
        slot.output.taken()
        assert slot.operator.advance(1)
        before = slot.output.taken()
        assert len(before) == most
        (part,) = snapshots_of([slot], 1, job)
        rest = slot.advance(1)
        assert not slot.operator.advance(1)
    assert sorted(user for user, _ in before + rest) == sorted(users(count))
    with running(spec, backend=backend, job=job, restored=[part], shows_times=False) as slot:
        assert sorted(slot.advance(1)) == sorted(rest)


@pytest.mark.parametrize(("spec", "most"), KINDS)
def test_processing_time_timers_stay_due_until_all_have_fired(
    spec: OperatorSpec, most: int
) -> None:
    with running(spec, shows_times=False) as slot:
        slot.feed([(user, 1_500) for user in users(most + 10)])
        slot.operator.tick(1_500)
        assert len(slot.output.taken()) == most
        assert slot.operator.next_tick_ms() == 1_500
        assert len(slot.tick(1_500)) == 10
        assert slot.operator.next_tick_ms() is None


def test_of_both_kinds_some_may_be_left_at_the_same_time() -> None:
    spec = keyed(Swarm(), FIRED, has_event_time=True)
    with running(spec, shows_times=False) as slot:
        slot.feed([(user, at) for user in users(MOST_TIMERS + 1) for at in (0, 1_500)])
        slot.operator.tick(1_500)
        assert slot.operator.advance(1)
        slot.feed([("late", 0)])
        rest = slot.tick(1_500) + slot.advance(1)
        assert ("late", 1) in rest
        assert len(rest) == 3


def test_few_timers_that_make_many_rows_are_a_slice_too() -> None:
    with running(keyed(Swarm(MOST_RESULTS), FIRED, has_event_time=True), shows_times=False) as slot:
        slot.feed([("a", 0), ("b", 0)])
        assert slot.operator.advance(1)
        assert len(slot.output.taken()) == MOST_RESULTS


class Slow(ManualClock):
    """Reading it takes ten milliseconds."""

    def monotonic_s(self) -> float:
        self.advance(10)
        return super().monotonic_s()


def test_so_are_few_that_take_long() -> None:
    slot: Slot = opened(
        keyed(Swarm(), FIRED, has_event_time=True), Slow(), Collected(), shows_times=False
    )
    slot.feed([(user, 0) for user in users(100)])
    assert slot.operator.advance(1)
    assert 1 <= len(slot.output.taken()) < 10
    slot.operator.close()
