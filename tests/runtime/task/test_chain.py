"""The order in which a chain calls its operators, and what goes out of it, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from holdfast.runtime.api.errors import NotOpened, OperatorFailed
from holdfast.runtime.planning.job_plan import ChainPlan, Link
from holdfast.runtime.protocol.elements import (
    MAX_WATERMARK,
    Active,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    Watermark,
)
from holdfast.runtime.protocol.operator import Operator, OperatorContext, OperatorSpec
from holdfast.runtime.task.alignment import AlignedExactlyOnce
from holdfast.runtime.task.chain import Chain, ChainInput
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.in_flight import OvertakenRows
from holdfast.runtime.task.routing import ChannelOutlet, Router
from holdfast.storage import Invalid

SCHEMA = pa.schema([("number", pa.int64())])


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


class Noted(Operator):
    """Writes down what it is called for; passes rows on, and some more at each occasion."""

    def __init__(self, spec: NotedSpec) -> None:
        self.uid = spec.uid
        self.calls = spec.calls
        self.error_at = spec.error_at
        self.due_ms = spec.due_ms
        self.more = spec.more
        self.more_ends = spec.more_ends
        self.out: Any = None

    def note(self, what: str) -> None:
        self.calls.append(f"{self.uid} {what}")
        if self.error_at == what.partition(" ")[0]:
            raise ValueError(what)

    def open(self, context: OperatorContext) -> None:
        self.note("opens")

    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        by = f" by {input_index}" if input_index else ""
        self.note(f"rows {batch.column(0).to_pylist()}{by}")
        self.out.emit(batch)

    def advance(self, watermark: int) -> bool:
        self.note(f"time {watermark}")
        self.more -= 1
        return self.more >= 0

    def tick(self, now_ms: int) -> None:
        self.note(f"tick {now_ms}")
        self.out.emit(rows(-1))

    def next_tick_ms(self) -> int | None:
        return self.due_ms

    def finish(self) -> bool:
        self.note("finish")
        self.out.emit(rows(99))
        self.more_ends -= 1
        return self.more_ends >= 0

    def prepare(self, checkpoint_id: int) -> None:
        self.note(f"prepare {checkpoint_id}")
        self.out.emit(rows(50))

    def completed(self, checkpoint_id: int) -> None:
        self.note(f"completed {checkpoint_id}")

    def aborted(self, checkpoint_id: int) -> None:
        self.note(f"aborted {checkpoint_id}")

    def close(self) -> None:
        self.note("closes")


class Timing(Noted):
    """Makes event time itself."""

    makes_event_time: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class NotedSpec(OperatorSpec):
    calls: list[str]
    error_at: str = ""
    due_ms: int | None = None
    more: int = 0
    """How often it has more to do when event time advances."""
    more_ends: int = 0
    """How often it has more to do when the input has ended."""
    kind: type[Noted] = Noted
    name: str = "noted"
    input_schema: pa.Schema = field(default_factory=lambda: SCHEMA)
    output_schema: pa.Schema = field(default_factory=lambda: SCHEMA)

    def build(self) -> Operator:
        return self.kind(self)


class Stage:
    """Operators a → b and a → c, of which c goes out; side rows of a go out by another edge."""

    def __init__(
        self,
        channels: int = 1,
        input_indexes: Sequence[int] = (),
        **options: dict[str, Any],
    ) -> None:
        bell = Bell()
        self.calls: list[str] = []
        self.channels = [Channel(10_000, bell) for _ in range(channels)]
        self.outs = {edge: Channel(100, bell) for edge in ("main", "side")}
        specs = [NotedSpec(uid=uid, calls=self.calls, **options.get(uid, {})) for uid in "abc"]
        plan = ChainPlan(
            chain_id="a",
            operators=tuple(specs),
            inputs=("in",),
            links=(Link(0, None, 1), Link(0, None, 2), Link(2, None, "main"), Link(0, "x", "side")),
        )
        routers = {edge: Router([ChannelOutlet(each, bell)]) for edge, each in self.outs.items()}
        self.barriers: list[Barrier] = []
        self.overtaken: list[OvertakenRows] = []
        indexes = input_indexes or [0] * channels
        inputs = list(map(ChainInput, self.channels, indexes))
        self.chain = Chain(
            plan,
            inputs,
            AlignedExactlyOnce(channels),
            routers,
            self._see,
            self._aligned,
        )
        for operator, output in zip(self.chain.operators, self.chain.outputs, strict=True):
            operator.out = output  # type: ignore[attr-defined]

    def _see(self, barrier: Barrier) -> None:
        self.barriers.append(barrier)
        if barrier.completed is not None:
            self.chain.completed(barrier.completed)

    def _aligned(
        self, chain: Chain, checkpoint_id: int, overtaken: Sequence[OvertakenRows]
    ) -> None:
        self.overtaken += overtaken
        assert chain is self.chain
        self.calls.append(f"snapshot {checkpoint_id}")

    def take(self, *elements: Element, channel: int = 0) -> list[str]:
        """What is called for when the chain reads these."""
        self.calls.clear()
        for element in elements:
            self.channels[channel].offer(element)
        while self.chain.step():
            pass
        return self.calls

    def out(self, edge: str = "main") -> list[Any]:
        found: list[Any] = []
        while (element := self.outs[edge].take()) is not None:
            if isinstance(element, pa.RecordBatch):
                found.append(element.column(0).to_pylist())
            else:
                found.append(element)
        return found


def test_rows_go_through_the_tree_one_branch_after_the_other() -> None:
    stage = Stage()
    assert stage.take(rows(1, 2)) == ["a rows [1, 2]", "b rows [1, 2]", "c rows [1, 2]"]
    assert stage.out() == [[1, 2]]
    assert stage.chain.rows == 2


def test_event_time_goes_through_the_tree_and_out_by_each_edge() -> None:
    stage = Stage()
    assert stage.take(Watermark(5)) == ["a time 5", "b time 5", "c time 5"]
    assert (stage.out("main"), stage.out("side")) == ([Watermark(5)], [Watermark(5)])


def test_so_does_idleness() -> None:
    stage = Stage()
    stage.take(Idle())
    assert (stage.out("main"), stage.out("side")) == ([Idle()], [Idle()])


def test_an_idle_chain_stays_idle_whatever_it_emits_until_a_mark_wakes_it() -> None:
    stage = Stage(a={"due_ms": 100})
    stage.take(Idle())
    stage.chain.tick(100)
    stage.take(rows(1))
    assert stage.out() == [Idle(), [-1], [-1], [1]]
    stage.take(Active())
    assert stage.out() == [Active()]
    stage.take(Idle(), Watermark(5))
    assert stage.out() == [Idle(), Active(), Watermark(5)]


def test_an_operator_that_makes_event_time_keeps_that_of_others_to_itself() -> None:
    stage = Stage(a={"kind": Timing})
    found = stage.take(Watermark(5), Idle(), Active())
    assert found == ["a time 5"]
    assert stage.out() == []
    stage.chain.outputs[0].advance(3)
    stage.chain.outputs[0].idle()
    stage.chain.outputs[0].active()
    assert stage.calls[1:] == ["b time 3", "c time 3"]
    assert stage.out() == [Watermark(3), Idle(), Active()]


def test_output_before_a_barrier_is_sent_before_it() -> None:
    stage = Stage()
    assert stage.take(rows(1), Barrier(4), rows(2))[3:-3] == [
        "a prepare 4",
        "b rows [50]",
        "c rows [50]",
        "b prepare 4",
        "c prepare 4",
        "snapshot 4",
    ]
    assert stage.out() == [[1], [50], [50], Barrier(4), [2]]
    assert stage.out("side") == [Barrier(4)]


def test_a_chain_waits_for_the_barriers_of_all_channels() -> None:
    stage = Stage(channels=2)
    assert stage.take(Barrier(4), rows(2)) == []
    assert stage.barriers == [Barrier(4)]
    calls = stage.take(rows(1), Barrier(4), channel=1)
    assert calls[0] == "a rows [1]"
    assert calls.index("snapshot 4") < calls.index("a rows [2]")
    assert stage.out() == [[1], [50], [50], Barrier(4), [2]]


def test_completions_carried_by_a_barrier_are_handled_first_and_forwarded() -> None:
    stage = Stage(channels=2)
    first = [*stage.take(Barrier(4, 3))]
    assert first == [f"{uid} completed 3" for uid in "abc"]
    assert stage.out() == []
    calls = stage.take(Barrier(4, 3), channel=1)
    assert calls[:3] == first, "whether it is news is for the slot to say"
    assert calls[3] == "a prepare 4"
    assert stage.out() == [[50], [50], Barrier(4, 3)]
    assert stage.out("side") == [Barrier(4, 3)]


def test_channels_take_turns() -> None:
    stage = Stage(channels=2)
    for number in range(3):
        stage.channels[0].offer(rows(number))
        stage.channels[1].offer(rows(10 + number))
    stage.take()
    assert stage.out() == [[0], [10], [1], [11], [2], [12]]


def test_the_end_lets_all_operators_finish_and_barriers_follow() -> None:
    stage = Stage()
    end = f"time {MAX_WATERMARK}"
    assert stage.take(EndOfInput()) == [
        *(f"{uid} {end}" for uid in "abc"),
        "a finish",
        "b rows [99]",
        "c rows [99]",
        "b finish",
        "c finish",
    ]
    assert stage.chain.has_ended
    assert stage.out() == [Watermark(MAX_WATERMARK), [99], [99], EndOfInput()]
    stage.take(Barrier(7))
    assert stage.out()[-1] == Barrier(7)


def test_an_operator_finishes_in_steps_and_barriers_come_between() -> None:
    stage = Stage(a={"more_ends": 2}, b={"more_ends": 1})
    for element in (EndOfInput(), Barrier(7)):
        stage.channels[0].offer(element)
    ends = []
    while stage.chain.has_work:
        before = len(stage.calls)
        assert not stage.chain.has_ended
        assert stage.chain.step()
        ends.append([call for call in stage.calls[before:] if "finish" in call or "snap" in call])
    assert [each for each in ends if each] == [
        ["a finish"],
        ["snapshot 7", "a finish"],
        ["a finish", "b finish"],
        ["b finish", "c finish"],
    ]
    assert stage.chain.has_ended
    out = stage.out()
    assert out.index(Barrier(7)) < len(out) - 2
    assert (out[-1], out.count(EndOfInput())) == (EndOfInput(), 1)


def test_no_processing_time_output_follows_the_end() -> None:
    stage = Stage(a={"due_ms": 100})
    stage.take(rows(1))
    assert stage.chain.next_tick_ms() == 100
    stage.chain.tick(100)
    assert stage.out() == [[1], [-1], [-1]]
    stage.take(EndOfInput())
    stage.out()
    assert stage.chain.next_tick_ms() is None
    stage.chain.tick(200)
    assert stage.out() == []


def test_timers_below_a_watermark_fire_before_further_rows_and_before_it_is_forwarded() -> None:
    stage = Stage(a={"more": 2})
    for element in (Watermark(5), rows(1)):
        stage.channels[0].offer(element)
    steps = []
    while stage.chain.has_work:
        assert stage.chain.step()
        steps.append([*stage.calls])
        stage.calls.clear()
    assert steps == [
        ["a time 5"],
        ["a time 5"],
        ["a time 5", "b time 5", "c time 5"],
        ["a rows [1]", "b rows [1]", "c rows [1]"],
    ]
    assert stage.out() == [Watermark(5), [1]]
    assert not stage.chain.step()


def test_barriers_pass_between_two_parts_of_it_and_rows_do_not() -> None:
    stage = Stage(channels=2, a={"more": 3})
    for element in (Watermark(5), Barrier(1)):
        for channel in stage.channels:
            channel.offer(element)
    stage.channels[0].offer(rows(1))
    stage.chain.step()
    stage.chain.step()
    assert stage.calls == ["a time 5"], "of both watermarks the second one counts"
    assert stage.barriers == []
    stage.chain.step()
    assert stage.barriers == [Barrier(1)]
    assert "snapshot 1" not in stage.calls
    stage.chain.step()
    assert stage.calls[2:].index("snapshot 1") < stage.calls[2:].index("a time 5")
    assert stage.out()[-1] == Barrier(1)
    stage.calls.clear()
    stage.take()
    assert stage.calls[:3] == ["a time 5", "b time 5", "c time 5"]
    assert stage.calls[3:] == ["a rows [1]", "b rows [1]", "c rows [1]"]
    assert stage.out() == [Watermark(5), [1]]


def test_the_end_waits_for_all_that_the_last_watermark_causes() -> None:
    stage = Stage(a={"more": 1})
    stage.channels[0].offer(EndOfInput())
    stage.chain.step()
    assert (stage.chain.has_ended, stage.out()) == (False, [])
    stage.chain.step()
    assert stage.chain.has_ended
    assert stage.out()[-1] == EndOfInput()


def test_channels_of_large_batches_leave_those_of_small_ones_their_share() -> None:
    stage = Stage(channels=2)
    for number in range(3):
        stage.channels[0].offer(rows(*[number] * 100))
    for number in range(10):
        stage.channels[1].offer(rows(number))
    stage.channels[1].offer(Barrier(1))
    stage.take()
    before = [call for call in stage.calls if call.startswith("a rows [0, 0")]
    assert len(before) == 1
    read = [call for call in stage.calls if call.startswith("a rows")]
    assert read.index("a rows [9]") < read.index(f"a rows {[1] * 100}")


def test_the_clock_is_for_all_operators_the_earliest_first() -> None:
    stage = Stage(b={"due_ms": 100}, c={"due_ms": 50})
    assert stage.chain.next_tick_ms() == 50
    stage.chain.tick(60)
    ticks = [call for call in stage.calls if "tick" in call]
    assert ticks == ["a tick 60", "b tick 60", "c tick 60"]


def test_a_full_edge_is_seen() -> None:
    stage = Stage()
    found = [stage.chain.has_room]
    stage.take(rows(*range(50)))
    found.append(stage.chain.has_room)
    stage.out()
    assert [*found, stage.chain.has_room] == [True, False, True]


def test_unread_side_outputs_and_empty_batches_are_dropped() -> None:
    stage = Stage()
    stage.chain.outputs[0].emit_side("nobody", rows(1))
    stage.chain.outputs[0].emit_side("x", rows())
    stage.chain.outputs[0].emit(rows())
    assert (stage.calls, stage.out("side")) == ([], [])
    stage.chain.outputs[0].emit_side("x", rows(1))
    assert stage.out("side") == [[1]]


@pytest.mark.parametrize(
    ("error_at", "elements"),
    [
        ("rows", [rows(1)]),
        ("time", [Watermark(1)]),
        ("prepare", [Barrier(1)]),
        ("finish", [EndOfInput()]),
    ],
)
def test_the_operator_that_fails_is_named(error_at: str, elements: Sequence[Element]) -> None:
    stage = Stage(c={"error_at": error_at})
    with pytest.raises(OperatorFailed, match="operator 'c' failed") as caught:
        stage.take(*elements)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("error_at", "call"),
    [
        ("completed", lambda chain: chain.completed(3)),
        ("aborted", lambda chain: chain.aborted(3)),
        ("tick", lambda chain: chain.tick(3)),
    ],
)
def test_so_is_one_that_fails_by_a_command(error_at: str, call: Callable[[Chain], None]) -> None:
    stage = Stage(b={"error_at": error_at})
    with pytest.raises(OperatorFailed, match="operator 'b' failed"):
        call(stage.chain)


def test_all_operators_are_closed_the_last_one_first() -> None:
    stage = Stage(b={"error_at": "closes"}, c={"error_at": "closes"})
    failures = stage.chain.close()
    assert stage.calls == ["c closes", "b closes", "a closes"]
    assert [failure.uid for failure in failures] == ["c", "b"]
    assert all(isinstance(failure.__cause__, ValueError) for failure in failures)


def test_an_operator_that_cannot_be_built_is_named() -> None:
    class NotBuilt(NotedSpec):
        def build(self) -> Operator:
            raise Invalid("there is no such module here")

    plan = ChainPlan(
        chain_id="a", operators=(NotBuilt(uid="a", calls=[]),), inputs=("in",), links=()
    )
    with pytest.raises(NotOpened, match="operator 'a' failed: there is no such module") as caught:
        Chain(plan, [], AlignedExactlyOnce(0), {}, lambda _barrier: None, lambda *_: None)
    assert isinstance(caught.value.__cause__, Invalid)


def test_rows_reach_the_first_operator_with_the_input_that_they_came_by() -> None:
    stage = Stage(channels=3, input_indexes=(0, 1, 1))
    assert stage.take(rows(1))[0] == "a rows [1]"
    calls = stage.take(rows(2), channel=2)
    assert calls == ["a rows [2] by 1", "b rows [2]", "c rows [2]"], "a link is the only input"
