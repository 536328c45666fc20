"""Timers of functions over rows and over batches: order, both domains, event time of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import StateBackend, ValueStateDescriptor
from holdfast.runtime.api.errors import UserCodeFailed
from holdfast.runtime.api.functions import (
    BatchContext,
    KeyedBatchFunction,
    KeyedContext,
    KeyedProcessFunction,
    OnTimerContext,
    RuntimeContext,
    TimeDomain,
)
from holdfast.runtime.operators import KeyedBatchSpec, KeyedProcessSpec
from holdfast.runtime.protocol.elements import MAX_WATERMARK, MIN_WATERMARK
from holdfast.runtime.protocol.operator import OperatorSpec
from holdfast.storage import Invalid, load_storage
from support.jobs.operator_runs import Fleet, keyed, running

FIRED = pa.schema([("what", pa.string()), ("at", pa.int64())])
Results = Iterator[Any]


class Alarm(KeyedProcessFunction):
    """An amount is when to be called: in event time, or as a negative number by the clock."""

    def process_element(self, value: Any, ctx: KeyedContext) -> None:
        timers = ctx.timer_service()
        if value.amount > 0:
            timers.register_event_time_timer(value.amount)
        elif value.amount < 0:
            timers.register_processing_time_timer(-value.amount)
        else:
            timers.delete_event_time_timer(5)
            timers.delete_processing_time_timer(2_000)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Results:
        assert ctx.timestamp() == timestamp
        yield f"{ctx.time_domain().value} {ctx.get_current_key()}", timestamp
        timers = ctx.timer_service()
        if timestamp == 7:
            timers.register_event_time_timer(8)
            timers.register_event_time_timer(1)
            timers.register_event_time_timer(99)
            yield f"watermark {timers.current_watermark()}", timers.current_processing_time()


class BatchAlarm(KeyedBatchFunction):
    """The same for batches."""

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
        keys, amounts = batch["user"], batch["amount"].to_pylist()
        is_event = pa.array([amount > 0 for amount in amounts])
        by_clock = pa.array([amount < 0 for amount in amounts])
        event = pa.array([amount for amount in amounts if amount > 0], pa.int64())
        ctx.register_event_time_timers(keys.filter(is_event), event)
        clock = [-amount for amount in amounts if amount < 0]
        ctx.register_processing_time_timers(keys.filter(by_clock).to_pylist(), clock)
        gone = [key for key, amount in zip(keys.to_pylist(), amounts, strict=True) if not amount]
        ctx.delete_event_time_timers(gone, [5] * len(gone))
        ctx.delete_processing_time_timers(gone, [2_000] * len(gone))

    def on_timers(
        self, timestamps: Sequence[int], keys: Sequence[Any], domain: TimeDomain, ctx: BatchContext
    ) -> Results:
        assert ctx.timestamps() is None
        with pytest.raises(Invalid, match="there is no batch while timers fire"):
            ctx.keys()
        what = [f"{domain.value} {key}" for key in keys]
        at = list(timestamps)
        for key, moment in zip(keys, timestamps, strict=True):
            if moment == 7:
                ctx.register_event_time_timers([key] * 3, [8, 1, 99])
                what.append(f"watermark {ctx.current_watermark()}")
                at.append(ctx.current_processing_time())
        yield pa.RecordBatch.from_arrays([pa.array(what), pa.array(at)], schema=FIRED)


def alarms() -> list[OperatorSpec]:
    return [
        keyed(Alarm(), FIRED, has_event_time=True),
        keyed(BatchAlarm(), FIRED, has_event_time=True, cls=KeyedBatchSpec),
    ]


ROWS = [("b", 20), ("a", 5), ("a", 20), ("b", 5), ("a", 5), ("c", 7), ("c", -2_000), ("a", -1_500)]


@pytest.mark.parametrize("spec", alarms(), ids=["rows", "batches"])
def test_event_time_timers_fire_in_order_once_and_those_that_they_register(
    spec: OperatorSpec, backend: StateBackend
) -> None:
    with running(spec, backend=backend, shows_times=False) as slot:
        assert slot.feed(ROWS) == []
        assert slot.advance(4) == []
        assert sorted(slot.advance(5)) == [("event a", 5), ("event b", 5)]
        fired = slot.advance(19)
        assert sorted(fired) == sorted(
            [("event c", 7), ("watermark 19", 1_000), ("event c", 1), ("event c", 8)]
        )
        assert sorted(slot.advance(20)) == [("event a", 20), ("event b", 20)]
        assert slot.advance(MAX_WATERMARK) == [("event c", 99)]
        assert slot.advance(MAX_WATERMARK) == []


def test_a_row_timer_registers_timers_that_fire_in_order_of_time(backend: StateBackend) -> None:
    with running(alarms()[0], backend=backend, shows_times=False) as slot:
        slot.feed([("c", 7), ("d", 9)])
        fired = slot.advance(10)
        expected = [("event c", 7), ("watermark 10", 1_000), ("event c", 1), ("event c", 8)]
        assert fired == [*expected, ("event d", 9)]


@pytest.mark.parametrize("spec", alarms(), ids=["rows", "batches"])
def test_processing_time_timers_fire_by_the_clock(
    spec: OperatorSpec, backend: StateBackend
) -> None:
    with running(spec, backend=backend, shows_times=False) as slot:
        assert slot.operator.next_tick_ms() is None
        slot.feed(ROWS)
        assert slot.operator.next_tick_ms() == 1_500
        assert slot.tick(1_499) == []
        assert slot.tick(1_500) == [("processing a", 1_500)]
        assert slot.operator.next_tick_ms() == 2_000
        assert slot.tick(3_000) == [("processing c", 2_000)]
        assert slot.operator.next_tick_ms() is None


@pytest.mark.parametrize("spec", alarms(), ids=["rows", "batches"])
def test_a_timer_of_the_past_fires_with_the_next_watermark_or_tick(
    spec: OperatorSpec, backend: StateBackend
) -> None:
    with running(spec, backend=backend, shows_times=False) as slot:
        slot.advance(50)
        assert slot.feed([("a", 5), ("b", -900), ("c", 50)]) == []
        assert slot.operator.next_tick_ms() == 900
        assert slot.tick(1_000) == [("processing b", 900)]
        assert slot.advance(51) == [("event a", 5), ("event c", 50)]
        assert slot.advance(52) == []
        assert slot.operator.next_tick_ms() is None


@pytest.mark.parametrize("spec", alarms(), ids=["rows", "batches"])
def test_a_deleted_timer_does_not_fire(spec: OperatorSpec, backend: StateBackend) -> None:
    with running(spec, backend=backend, shows_times=False) as slot:
        slot.feed(ROWS)
        slot.feed([("a", 0), ("c", 0), ("nobody", 0)])
        assert slot.advance(6) == [("event b", 5)]
        assert slot.tick(9_000) == [("processing a", 1_500)]


@pytest.mark.parametrize("spec", alarms(), ids=["rows", "batches"])
def test_event_time_of_what_timers_make(spec: OperatorSpec, backend: StateBackend) -> None:
    with running(spec, backend=backend) as slot:
        slot.feed([("a", 5), ("b", 6), ("b", -2_000)], [100, 200, 300])
        fired = slot.advance(10)
        is_batch = isinstance(spec, KeyedBatchSpec)
        assert fired == [("event a", 5, 6 if is_batch else 5), ("event b", 6, 6)]
        # As in Flink: nothing tells when it happened.
        assert slot.tick(2_000) == [("processing b", 2_000, None)]
        assert slot.feed([("a", 1)], [None]) == []


class Watching(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedContext) -> Results:
        timers = ctx.timer_service()
        yield f"{ctx.timestamp()}", timers.current_watermark()
        yield "clock", timers.current_processing_time()


def test_contexts_tell_watermark_clock_and_event_time() -> None:
    with running(keyed(Watching(), FIRED, has_event_time=True)) as slot:
        assert slot.feed([("a", 1)], [17]) == [("17", MIN_WATERMARK, 17), ("clock", 1_000, 17)]
        slot.advance(15)
        slot.clock.advance(5)
        assert slot.feed([("a", 1)], [None]) == [("None", 15, None), ("clock", 1_005, None)]


class AlarmAt(KeyedProcessFunction):
    """A timer at one moment."""

    def __init__(self, moment: int) -> None:
        self.moment = moment

    def process_element(self, value: Any, ctx: KeyedContext) -> None:
        ctx.timer_service().register_event_time_timer(self.moment)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Results:
        yield ctx.get_current_key(), timestamp


class Restartable(KeyedProcessFunction):
    """Counts rows, and tells how many when its timer of either kind is due."""

    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value: Any, ctx: KeyedContext) -> None:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value.amount)
        ctx.timer_service().register_processing_time_timer(value.amount + 10_000)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Results:
        yield f"{ctx.get_current_key()} {self.count.value()}", timestamp


def test_timers_of_both_kinds_are_restored_into_any_number_of_slots(backend: StateBackend) -> None:
    job = load_storage("memory://").job("job")
    spec = keyed(Restartable(), FIRED, has_event_time=True)
    users = [f"user-{number}" for number in range(40)]
    fleet = Fleet(spec, 1, job, backend=backend, shows_times=False)
    fleet.feed([(user, 10 + place) for place, user in enumerate(users)])
    snapshots = fleet.stop(1)
    for parallelism in (2, 3, 1):
        fleet = Fleet(spec, parallelism, job, snapshots, backend=backend, shows_times=False)
        assert sum(len(slot.advance(9)) for slot in fleet.slots) == 0
        snapshots = fleet.stop(parallelism)
    fleet = Fleet(spec, 3, job, snapshots, backend=backend, shows_times=False)
    expected = {(f"{user} 1", 10 + place) for place, user in enumerate(users)}
    assert min(slot.operator.next_tick_ms() or 0 for slot in fleet.slots) == 10_010
    fired = fleet.advance(29)
    assert set(fired) == {row for row in expected if row[1] <= 29}
    assert len(fired) == 20
    assert set(fleet.advance(1_000)) == expected - set(fired)
    assert set(fleet.tick(20_000)) == {(what, at + 10_000) for what, at in expected}
    fleet.stop(9)


def test_timers_that_came_due_while_the_job_was_down_fire_once(backend: StateBackend) -> None:
    job = load_storage("memory://").job("job")
    spec = keyed(Restartable(), FIRED, has_event_time=True)
    fleet = Fleet(spec, 2, job, backend=backend, shows_times=False)
    fleet.feed([("a", 10), ("b", 11), ("c", 9_000)])
    fleet = Fleet(spec, 3, job, fleet.stop(1), backend=backend, shows_times=False)
    due = [("a 1", 10), ("b 1", 11), ("c 1", 9_000)]
    assert sorted(fleet.tick(1_000_000)) == [(what, at + 10_000) for what, at in due]
    assert sorted(fleet.advance(8_000)) == due[:2]
    assert fleet.tick(2_000_000) == []
    assert fleet.advance(MAX_WATERMARK) == due[2:]
    fleet.stop(2)


class BadTimers(KeyedBatchFunction):
    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
        case = batch["amount"][0].as_py()
        timestamps = [1, 2] if case < 0 else [WRONG_TIMES[case][0]]
        ctx.register_event_time_timers(batch["user"], timestamps)


class BadTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedContext) -> None:
        ctx.timer_service().register_event_time_timer(WRONG_TIMES[value.amount][0])


WRONG_TIMES: list[tuple[Any, str]] = [
    (None, "NoneType None"),
    (1.5, "float 1.5"),
    (float("nan"), "float nan"),
    ("x", "str 'x'"),
    (True, "bool True"),
    (
        datetime(1970, 1, 2, tzinfo=UTC),
        "datetime.datetime datetime.datetime(1970, 1, 2, 0, 0, tzinfo=datetime.timezone…",
    ),
    (2**63, f"int {2**63}"),
    (-(2**63) - 1, f"int {-(2**63) - 1}"),
    ([1], "list [1]"),
]


@pytest.mark.parametrize("is_batch", [False, True], ids=["row", "batch"])
@pytest.mark.parametrize("case", range(len(WRONG_TIMES)))
def test_a_time_that_is_no_number_of_milliseconds_is_refused(
    case: int,
    is_batch: bool,  # noqa: FBT001
) -> None:
    function, spec = (BadTimers(), KeyedBatchSpec) if is_batch else (BadTimer(), KeyedProcessSpec)
    with (
        running(keyed(function, cls=spec, has_event_time=True)) as slot,
        pytest.raises(UserCodeFailed) as caught,
    ):
        slot.feed([("a", case)])
    cause = caught.value.__cause__
    assert isinstance(cause, Invalid)
    assert cause.what == "the time of a timer is no whole number of milliseconds"
    assert cause.found == WRONG_TIMES[case][1]
    assert cause.fix in caught.value.found, "what to do is told to the end"


def test_keys_and_times_of_two_lengths_are_refused() -> None:
    with (
        running(keyed(BadTimers(), cls=KeyedBatchSpec, has_event_time=True)) as slot,
        pytest.raises(UserCodeFailed) as caught,
    ):
        slot.feed([("a", -1)])
    cause = caught.value.__cause__
    assert isinstance(cause, Invalid)
    assert cause.what == "columns of keys and of times are not of one length"
    assert (cause.where, cause.found) == ("operator 'op'", "2")


@pytest.mark.parametrize("moment", [-1, -(2**63), 2**63 - 1])
def test_the_first_and_the_last_moment_there_is_can_be_asked_for(
    moment: int, backend: StateBackend
) -> None:
    spec = keyed(AlarmAt(moment), FIRED, has_event_time=True)
    with running(spec, backend=backend, shows_times=False) as slot:
        slot.feed([("a", 1)])
        assert slot.advance(moment) == [("a", moment)]


@pytest.mark.parametrize(
    "spec",
    [keyed(Alarm(), FIRED), keyed(BatchAlarm(), FIRED, cls=KeyedBatchSpec)],
    ids=["rows", "batches"],
)
def test_an_event_time_timer_without_event_time_is_refused(spec: OperatorSpec) -> None:
    with running(spec) as slot:
        if isinstance(spec, KeyedProcessSpec):
            slot.feed([("a", 0), ("a", -1_500)])  # one taken back, one by the clock: no mistake
        with pytest.raises(UserCodeFailed) as caught:
            slot.feed([("a", 5)])
    cause = caught.value.__cause__
    assert isinstance(cause, Invalid)
    assert cause.what == "an event-time timer would never fire: the stream has no event time"
    assert cause.fix.startswith("Call with_watermark")
    assert cause.fix in caught.value.found
