"""A job that is moved: two operators with state of every kind, timers of both kinds, time to live.

What it answers does not depend on which slot has a key or an element, so there is one right answer,
which `moved_model` finds without any of the house's code. Its input is made here, in steps.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from holdfast.backends import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    TtlUpdateType,
    ValueStateDescriptor,
)
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

START_MS = 1_700_000_000_000
TTL_MS = 10_000
ALARM_MS = 4_000
WINDOW_MS = 100
PARTITIONS = 7
END_MS = 10_000
ORDERS = pa.schema(
    [("kind", pa.string()), ("user", pa.string()), ("n", pa.int64()), ("amount", pa.int64())]
)
TOLD = pa.schema(
    [("what", pa.string()), ("key", pa.string()), ("digit", pa.int64()), ("told", pa.string())]
)
SUMS = pa.schema(
    [("what", pa.string()), ("digit", pa.int64()), ("at", pa.int64()), ("sum", pa.int64())]
)
Row = tuple[Any, ...]


def window_of(at: int) -> int:
    return at - at % WINDOW_MS + WINDOW_MS - 1


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


_DIES = StateTtlConfig(ttl=timedelta(milliseconds=TTL_MS))
_KEPT = StateTtlConfig(
    ttl=timedelta(milliseconds=TTL_MS), update_type=TtlUpdateType.ON_READ_AND_WRITE
)
_LASTS = StateTtlConfig(ttl=timedelta(hours=1))


class Users(KeyedProcessFunction):
    """All that is known of a user, told with each order; windows, and an alarm for idle users."""

    def open(self, ctx: RuntimeContext) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int, ttl=_LASTS))
        self.orders = ctx.get_list_state(ListStateDescriptor("orders", tuple[int, str]))
        self.windows = ctx.get_map_state(MapStateDescriptor("windows", int, int))
        self.best = ctx.get_reducing_state(ReducingStateDescriptor("best", max, int))
        self.mean = ctx.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), tuple[int, int])
        )
        self.alarm = ctx.get_state(ValueStateDescriptor("alarm", int))
        self.recent = ctx.get_state(ValueStateDescriptor("recent", str, ttl=_DIES))
        self.visits = ctx.get_list_state(ListStateDescriptor("visits", int, ttl=_KEPT))
        self.seen = ctx.get_map_state(MapStateDescriptor("seen", str, int, ttl=_DIES))
        self.buffered = ctx.get_operator_list_state(ListStateDescriptor("buffered", int))
        self.partitions = ctx.get_union_list_state(
            ListStateDescriptor("partitions", tuple[int, int])
        )
        self.rules = ctx.get_broadcast_state(MapStateDescriptor("rules", str, int))
        known = dict(self.partitions.get()) or dict.fromkeys(range(PARTITIONS), 0)
        mine = [(each, at) for each, at in known.items() if each % ctx.parallelism == ctx.slot]
        self.partitions.update(mine)

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterator[Any]:
        what, _, name = value.kind.partition(":")
        if what == "rule":
            self.rules.put(name, value.amount)
        elif what == "no rule":
            self.rules.remove(name)
        elif what == "flush":
            yield from self._flush()
        elif what == "forget":
            self._forget(ctx)
        else:
            yield self._order(value, ctx)

    def _order(self, value: Any, ctx: KeyedContext) -> Row:
        timers = ctx.timer_service()
        now = timers.current_processing_time()
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        self.orders.add((value.n, value.kind))
        end = window_of(value.n)
        self.windows.put(end, (self.windows.get(end) or 0) + value.amount)
        timers.register_event_time_timer(end)
        self.best.add(value.amount)
        self.mean.add(value.amount)
        self._set_alarm(timers, now + ALARM_MS)
        of_late = self._of_late()
        self.recent.update(f"{value.kind} {value.n}")
        self.visits.add(value.n)
        self.seen.put(value.kind, value.n)
        self.buffered.add(value.n)
        factor = self.rules.get(value.kind) or 1
        told = (
            total * factor,
            self.orders.get(),
            sorted(self.windows.items()),
            self.best.get(),
            self.mean.get(),
            of_late,
        )
        return "order", value.user, total % 5, repr(told)

    def _of_late(self) -> Row:
        """All that has a time to live of seconds, as it was before this row."""
        return self.recent.value(), self.visits.get(), sorted(self.seen.items())

    def _set_alarm(self, timers: Any, at: int) -> None:
        before = self.alarm.value()
        if before is not None:
            timers.delete_processing_time_timer(before)
        self.alarm.update(at)
        timers.register_processing_time_timer(at)

    def _flush(self) -> Iterator[Row]:
        for number in self.buffered.get():
            yield "buffered", "", number % 5, str(number)
        self.buffered.clear()
        moved = [(each, at + 1) for each, at in self.partitions.get()]
        self.partitions.update(moved)
        for each, at in moved:
            yield "partition", "", at % 5, f"{each} at {at}"

    def _forget(self, ctx: KeyedContext) -> None:
        for end in self.windows.keys():  # noqa: SIM118 - this is a state, and no mapping
            ctx.timer_service().delete_event_time_timer(end)
        self.windows.clear()
        self.orders.clear()

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[Any]:
        user = ctx.get_current_key()
        if ctx.time_domain() is TimeDomain.EVENT_TIME:
            value = self.windows.get(timestamp)
            self.windows.remove(timestamp)
            yield "window", user, timestamp % 5, repr((timestamp, value, self.best.get()))
        else:
            alarm = self.alarm.value()
            self.alarm.clear()
            if alarm is not None and (self.total.value() or 0) % 2:
                self._set_alarm(ctx.timer_service(), alarm + 2 * ALARM_MS)
            yield "alarm", user, timestamp % 5, repr((timestamp, alarm, self._of_late()))


class Sums(KeyedBatchFunction):
    """How many rows there were of a kind and a digit, told after each batch and in the end."""

    def open(self, ctx: RuntimeContext) -> None:
        self.sum = ctx.get_reducing_state(ReducingStateDescriptor("sum", _added, int))

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> pa.RecordBatch:
        keys = ctx.keys()
        self.sum.reduce_many(keys, [1] * len(keys))
        several = sorted({tuple(each.values()) for each in keys.to_pylist()})
        ctx.register_event_time_timers(several, [END_MS] * len(several))
        return self._told(several, -1)

    def on_timers(
        self, timestamps: Sequence[int], keys: Sequence[Any], domain: TimeDomain, ctx: BatchContext
    ) -> pa.RecordBatch:
        assert {*timestamps} == {END_MS}
        return self._told(keys, END_MS)

    def _told(self, keys: Sequence[Any], at: int) -> pa.RecordBatch:
        whats, digits = zip(*keys, strict=True)
        sums = self.sum.get_many(keys)
        return pa.record_batch([whats, digits, [at] * len(keys), sums], schema=SUMS)


def _added(first: int, second: int) -> int:
    return first + second


USERS = KeyedProcessSpec(
    uid="users",
    name="process",
    input_schema=ORDERS,
    output_schema=TOLD,
    function=pickle.dumps(Users()),
    key_columns=("user",),
    has_event_time=True,
)
SUMMED = KeyedBatchSpec(
    uid="sums/by kind",
    name="process",
    input_schema=TOLD,
    output_schema=SUMS,
    function=pickle.dumps(Sums()),
    key_columns=("what", "digit"),
    has_event_time=True,
)


@dataclass(frozen=True)
class Step:
    """Rows for the users' slots; or one for all of them; or event time, or the clock, goes on."""

    rows: Sequence[Row] = ()
    to_all: tuple[str, int] | None = None
    """Its kind and amount; each slot gets it under a key of its own, which says nothing."""
    watermark: int | None = None
    now_ms: int | None = None


_KINDS = ("book", "tea", "wool")


def steps_of(seed: int) -> tuple[list[Step], list[Step]]:
    """The first half of the input, and the second one."""
    chance, n, now_ms = random.Random(seed), 0, START_MS
    halves: tuple[list[Step], list[Step]] = ([], [])
    for number in range(12):
        half = halves[number // 6]
        now_ms += chance.choice((1_000, 2_500, 3_500))
        half.append(Step(now_ms=now_ms))
        rows: list[Row] = []
        for _ in range(12):
            n += chance.randrange(1, 9)
            kind = "forget" if chance.randrange(12) == 0 else chance.choice(_KINDS)
            rows.append((kind, f"user {chance.randrange(25)}", n, chance.randrange(100)))
        half.append(Step(rows=rows))
        if number in (1, 3, 8):
            half.append(Step(to_all=(f"rule:{chance.choice(_KINDS)}", number + 2)))
        if number in (4, 10):
            half.append(Step(to_all=(f"no rule:{chance.choice(_KINDS)}", 0)))
        if number in (2, 7, 9):
            half.append(Step(to_all=("flush", 0)))
        half.append(Step(watermark=n - 40))
    halves[1].append(Step(now_ms=now_ms + 2 * ALARM_MS))
    halves[1].append(Step(watermark=END_MS))
    halves[1].append(Step(now_ms=now_ms + 10 * ALARM_MS))
    halves[1].append(Step(to_all=("flush", 0)))
    return halves


def clock_after(steps: Sequence[Step]) -> int:
    """What time it is then."""
    return [step.now_ms for step in steps if step.now_ms is not None][-1]
