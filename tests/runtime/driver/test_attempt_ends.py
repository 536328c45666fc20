"""The end of an attempt whose slots have committed everything; and concurrent readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.runtime.driver.events import CancelWanted, SlotLost, SlotsEnded
from holdfast.runtime.driver.outcomes import Cancelled, Succeeded, Unsuccessful
from holdfast.runtime.driver.slot_lines import SlotLines
from holdfast.runtime.protocol.messages import Failed, Heartbeat, Ready, ToSlot
from support.jobs.attempt_with_played_slots import EXECUTORS, InlineExecutor, Stage, Step


@pytest.fixture(autouse=True)
def nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in EXECUTORS:
        monkeypatch.setattr(f"holdfast.runtime.driver.{module}.DaemonThreads", InlineExecutor)


def closing(stage: Stage, *slots: int) -> Iterator[Step]:
    """A second in which these say that all is committed."""
    for slot in slots:
        stage.tell(Heartbeat(slot=slot, is_closing=True))
    yield 1_000


@pytest.mark.parametrize(
    "then",
    [
        [SlotsEnded("a task was killed")],
        [Failed(slot=1, uid=None, summary="no", traceback="", is_fatal=False), SlotsEnded("no")],
        [SlotLost(1, "gone"), SlotsEnded("it is")],
        [1_000] * 70,
    ],
    ids=["killed", "failed", "lost", "hanging"],
)
def test_no_failure_counts_after_all_slots_have_committed(
    then: list[Step], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.finishing()
        yield from closing(stage, 0, 1)
        yield from then

    assert stage.run(script) == Succeeded()
    assert stage.cancelled == 1, "what hangs is stopped"
    assert "the job is complete, but its end is not in order" in caplog.text


def test_an_attempt_fails_while_a_slot_has_not_committed() -> None:
    stage = Stage()

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.finishing()
        yield from closing(stage, 0)
        yield SlotsEnded("a task was killed")

    outcome = stage.run(script)
    assert isinstance(outcome, Unsuccessful)
    assert outcome.reason == "slots have ended before the job"


def test_metrics_that_are_handed_out_do_not_change() -> None:
    """A reader of metrics met a dict that was being filled."""
    stage = Stage()
    seen: list[Any] = []

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.opening()
        attempt = stage.attempt
        seen.extend(iter(each) for each in (attempt.feeds, attempt.metrics, attempt.pids))
        yield from (Ready(0), Ready(1))
        stage.tell(Heartbeat(slot=0))
        yield CancelWanted()

    assert stage.run(script) == Cancelled()
    assert [[*each] for each in seen] == [[], [], [0, 1]]
    assert ({*stage.attempt.feeds}, {*stage.attempt.metrics}) == ({"a", "b"}, {0})


def test_slots_of_a_cancelled_job_hear_of_complete_checkpoints_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of a job that restarts do not: what stands still would hold up the restart."""
    orders: list[bool] = []

    def tell_last(_lines: SlotLines, _message: ToSlot, *, in_order: bool) -> set[int]:
        orders.append(in_order)
        return set()

    monkeypatch.setattr(SlotLines, "tell_last", tell_last)
    ends: list[Step] = [CancelWanted(), SlotLost(1, "gone")]
    for end in ends:

        def script(stage: Stage, end: Step = end) -> Iterator[Step]:
            yield from stage.running()
            yield end

        Stage().run(script)
    assert orders == [True, False]
