"""An attempt of a job: what it does at each event, in each phase, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.runtime.driver.attempt import Attempt
from holdfast.runtime.driver.events import (
    CancelWanted,
    CheckpointWanted,
    EventQueue,
    SlotLost,
    SlotsEnded,
    SourceFailed,
    StoreFailed,
)
from holdfast.runtime.driver.outcomes import AttemptPhase, Cancelled, Succeeded, Unsuccessful
from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.protocol.messages import (
    CheckpointAborted,
    CheckpointCompleted,
    Decline,
    Failed,
    Finished,
    Heartbeat,
    MarkSource,
    Ready,
    Start,
)
from holdfast.runtime.protocol.metrics import SlotMetrics
from holdfast.storage import Unavailable
from support.jobs.attempt_with_played_slots import (
    EXECUTORS,
    InlineExecutor,
    Script,
    Stage,
    Step,
    marks_of,
)


@pytest.fixture(autouse=True)
def nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in EXECUTORS:
        monkeypatch.setattr(f"holdfast.runtime.driver.{module}.DaemonThreads", InlineExecutor)


def deploying(stage: Stage) -> Iterator[Step]:
    yield stage.register(0)


def opening(stage: Stage) -> Iterator[Step]:
    yield from stage.opening()
    yield Ready(1)


def running(stage: Stage) -> Iterator[Step]:
    yield from stage.running()


def finishing(stage: Stage) -> Iterator[Step]:
    yield from stage.finishing()


IN_EACH_PHASE = pytest.mark.parametrize("begin", [deploying, opening, running, finishing])
IN_ALL_BUT_THE_LAST = pytest.mark.parametrize("begin", [deploying, opening, running])


def run(stage: Stage, begin: Script, *then: Step) -> Succeeded | Cancelled | Unsuccessful:
    def script(stage: Stage) -> Iterator[Step]:
        yield from begin(stage)
        yield from then

    return stage.run(script)


def failure(stage: Stage, begin: Script, *then: Step) -> Unsuccessful:
    outcome = run(stage, begin, *then)
    assert isinstance(outcome, Unsuccessful), outcome
    assert stage.cancelled == 1
    assert [source.stopped for source in stage.sources.values()] == [1, 1]
    return outcome


def beats(stage: Stage, seconds: int, *slots: int, closing: bool = False) -> Iterator[Step]:
    """So many seconds in which these slots are heard of."""
    for _ in range(seconds):
        for slot in slots:
            stage.tell(Heartbeat(slot=slot, is_closing=closing))
        yield 1_000


def test_a_job_whose_sources_end_goes_through_all_phases() -> None:
    stage = Stage()
    assert stage.run(lambda stage: stage.finished()) == Succeeded()
    assert stage.phases == [AttemptPhase.OPENING, AttemptPhase.RUNNING, AttemptPhase.FINISHING]
    for slot in stage.slots:
        assert slot.commands() == ["Start", "CheckpointCompleted", "Finish"]
        assert slot.told[0] == Start({0: "0", 1: "1"})
        assert slot.is_closed
    assert [store.is_final for store in stage.stored] == [True]
    assert {*stage.stored[0].sources} == {"a", "b"}
    assert stage.attempt.next_checkpoint_id == 8
    assert not stage.tell(Ready(0)), "it is over"


def test_without_a_final_checkpoint_slots_are_told_to_finish_at_once() -> None:
    stage = Stage(final_checkpoint=False, interval="10ms")

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield from (Finished(0), Finished(1))
        yield from [500] * 20
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert stage.slots[0].commands() == ["Start", "Finish"]
    assert min(stage.events.waits_s[-15:]) > 0, "a checkpoint that is due is no reason to spin"


def test_sources_start_once_all_slots_are_ready() -> None:
    stage = Stage()

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.opening()
        yield Ready(0)
        assert {*stage.attempt.feeds} == set()
        yield Ready(1)
        assert all(source.feed for source in stage.sources.values())
        assert {*stage.attempt.feeds} == {"a", "b"}
        yield CancelWanted()

    assert stage.run(script) == Cancelled()


def test_slots_that_never_come_are_waited_for_two_minutes() -> None:
    stage = Stage()

    def script(stage: Stage) -> Iterator[Step]:
        yield from deploying(stage)
        yield from beats(stage, 130, 0)

    reason = failure(stage, script).reason
    assert reason.startswith("1 of 2 slots have come within 120 s: something else in the session")
    assert stage.slots[0].commands() == ["CancelAttempt"]


def test_a_message_that_comes_twice_is_one() -> None:
    stage = Stage()
    twice: list[Step] = [
        stage.register(0),
        stage.register(0),
        stage.register(1),
        Ready(0),
        Ready(0),
    ]
    run(stage, lambda _: iter(twice), CancelWanted())
    assert stage.phases == [AttemptPhase.OPENING]
    assert stage.slots[1].commands() == ["Start", "CancelAttempt"]


@IN_ALL_BUT_THE_LAST
@pytest.mark.parametrize("other", [{"pid": 2}, {"host": "there"}])
def test_a_slot_that_comes_again_in_another_process_was_started_by_spark(
    begin: Script, other: Any
) -> None:
    """On another machine a process may well have the same number."""
    stage = Stage()
    reason = failure(stage, begin, stage.register(0, **other)).reason
    assert reason == "slot 0 has come twice: Spark has started it again"


def test_a_slot_of_another_version_is_refused_for_good() -> None:
    stage = Stage()
    outcome = failure(stage, deploying, stage.register(1, version="9.9"))
    assert outcome.is_fatal
    assert outcome.reason == (
        "slot 1 on here has Holdfast 9.9, the driver 1.2.3: install the same version everywhere"
    )


@IN_ALL_BUT_THE_LAST
def test_a_slot_that_falls_silent_is_lost(begin: Script) -> None:
    stage = Stage()

    def script(stage: Stage) -> Iterator[Step]:
        yield from begin(stage)
        yield from beats(stage, 20, 0, 1)
        yield from beats(stage, 40, 1)

    outcome = stage.run(script)
    assert outcome == Unsuccessful("slot 0 has not been heard of for 30 s")
    assert 45 <= (stage.clock.now_ms() - 5_000_000) / 1_000 <= 55


def test_slots_that_end_one_by_one_are_not_lost() -> None:
    stage = Stage()

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.finishing()
        yield from beats(stage, 45, 1)
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()


def test_slots_that_do_not_end_are_waited_for_one_minute() -> None:
    stage = Stage()
    outcome = failure(stage, finishing, *[1_000] * 70)
    assert outcome.reason == "slots 0, 1 did not end within 60 s"


def test_slots_that_still_commit_are_waited_for_and_those_that_only_close_are_not() -> None:
    """The place of a sink may be slow: to go back to the checkpoint would commit the same."""
    stages = Stage(), Stage()

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.finishing()
        yield from beats(stage, 300, 0)  # slot 1 has ended
        yield from beats(stage, 50 if stage is stages[0] else 70, 0, closing=True)
        yield SlotsEnded(None)

    assert stages[0].run(script) == Succeeded()
    assert failure(stages[1], script).reason == "slot 1 did not end within 60 s"


@IN_EACH_PHASE
def test_a_cancelled_attempt_leaves_nothing_behind(begin: Script) -> None:
    stage = Stage()
    assert run(stage, begin, CancelWanted()) == Cancelled()
    linked = [slot for slot in stage.slots if slot.told]
    assert all(slot.commands()[-1] == "CancelAttempt" for slot in linked)
    assert all(slot.is_closed for slot in linked)
    assert sorted(stage.order[:2]) == ["stop a", "stop b"], "sources that were opened, too"
    assert stage.order[2:] == ["cancel"]
    assert all(feed.is_over for feed in stage.attempt.feeds.values())


@IN_EACH_PHASE
def test_the_slots_must_not_end_by_an_error(begin: Script) -> None:
    outcome = failure(Stage(), begin, SlotsEnded("task 1 was killed"))
    assert outcome == Unsuccessful("slots have ended before the job", "task 1 was killed")


@IN_ALL_BUT_THE_LAST
def test_the_slots_must_not_end_before_they_are_told_to(begin: Script) -> None:
    assert failure(Stage(), begin, SlotsEnded(None)).reason == "slots have ended before the job"


@IN_EACH_PHASE
def test_a_slot_that_fails_says_why(begin: Script) -> None:
    failed = Failed(slot=1, uid="sum", summary="no", traceback="line 1", is_fatal=False)
    outcome = failure(Stage(), begin, failed, SlotsEnded("a task failed"))
    assert outcome == Unsuccessful("operator 'sum' failed: no", "line 1", uid="sum")


def test_a_failure_names_the_operator_once() -> None:
    failed = Failed(slot=1, uid="sum", summary="'sum' is odd", traceback="", is_fatal=True)
    told = Unsuccessful("'sum' is odd", is_fatal=True, uid="sum")
    assert failure(Stage(), running, failed) == told
    failed = Failed(slot=1, uid=None, summary="no disk", traceback="", is_fatal=False)
    assert failure(Stage(), running, failed).reason == "slot 1 failed: no disk"


@IN_ALL_BUT_THE_LAST
def test_a_source_that_fails_says_why(begin: Script) -> None:
    outcome = failure(Stage(), begin, SourceFailed("a", "no such topic", "trace", is_fatal=True))
    assert outcome == Unsuccessful(
        "source 'a' failed: no such topic", "trace", is_fatal=True, uid="a"
    )


def test_a_source_that_meets_slots_that_have_ended_is_no_failure() -> None:
    """All that counts of it is in the last checkpoint, which is complete."""
    stage = Stage()
    failed = SourceFailed("a", "Connection refused", "trace")
    assert run(stage, finishing, failed, SlotsEnded(None)) == Succeeded()


@IN_EACH_PHASE
def test_a_slot_that_is_lost_is_named(begin: Script) -> None:
    assert failure(Stage(), begin, SlotLost(1, "gone")).reason == "slot 1 is lost: gone"


def test_a_source_that_cannot_start_fails_the_attempt() -> None:
    stage = Stage()
    stage.sources["b"].error = Unavailable("no broker")
    assert failure(stage, running).reason == "source 'b' failed: no broker"


def test_whatever_a_source_raises_when_it_starts_fails_the_attempt() -> None:
    stage = Stage()
    stage.sources["b"].error = ConnectionError("no JVM\nat org.apache")
    outcome = failure(stage, running)
    assert outcome.reason == "source 'b' failed: ConnectionError: no JVM"
    assert (outcome.uid, outcome.is_fatal) == ("b", False)
    assert "at org.apache" in outcome.details


def test_slots_that_cannot_be_deployed_fail_the_attempt_and_leave_no_source_open() -> None:
    stage = Stage()

    def deploy(_events: EventQueue) -> Stage:
        raise ConnectionError("no JVM\nat org.apache")

    stage.parts = replace(stage.parts, deploy=deploy)
    stage.attempt = Attempt(stage.parts, stage.events)
    outcome = run(stage, lambda _: iter(()))
    assert isinstance(outcome, Unsuccessful)
    assert outcome.reason == "the slots cannot be started: ConnectionError: no JVM"
    assert "at org.apache" in outcome.details
    assert [source.stopped for source in stage.sources.values()] == [1, 1]


@pytest.mark.parametrize("message", [Start, CheckpointCompleted])
def test_a_slot_that_cannot_be_told_is_lost(message: type) -> None:
    stage = Stage(interval="1s")
    stage.slots[1].error = Unavailable("no route")
    stage.slots[1].fails_at = message
    outcome = failure(stage, running, 1_000, None, *stage.acknowledged(7))
    assert outcome.reason == "slot 1 is lost: no route"


def test_a_source_that_cannot_be_stopped_keeps_no_slot_running() -> None:
    stage = Stage()
    stage.sources["b"].stop_error = RuntimeError("stuck")
    with pytest.raises(RuntimeError, match="stuck"):
        run(stage, running, CancelWanted())
    assert stage.order == ["stop b", "stop a", "cancel"]
    assert all(slot.is_closed for slot in stage.slots)


def test_the_first_failure_counts() -> None:
    outcome = failure(Stage(), running, SourceFailed("a", "x", ""), CancelWanted())
    assert outcome.reason == "source 'a' failed: x"


def test_no_checkpoint_is_taken_while_a_source_reads_its_backlog() -> None:
    stage = Stage(interval="1s", interval_during_backlog="0s")

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        feed = stage.sources["a"].feed
        assert feed is not None
        feed.reads_backlog(is_read=True)
        for _ in range(20):
            yield 250
        assert not marks_of(stage.slots[0].told, Barrier)
        feed.end()
        yield None
        assert [each.checkpoint_id for each in marks_of(stage.slots[0].told, Barrier)] == [7, 7]
        yield CancelWanted()

    assert stage.run(script) == Cancelled()


def test_checkpoints_are_taken_at_their_interval() -> None:
    stage = Stage(interval="1s")

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        for number in (7, 8):
            while not any(
                barrier.checkpoint_id == number
                for barrier in marks_of(stage.slots[0].told, Barrier)
            ):
                yield 250
            yield from stage.acknowledged(number)
            yield None
        yield CancelWanted()

    assert stage.run(script) == Cancelled()
    assert [store.checkpoint_id for store in stage.stored] == stage.retained == [7, 8]
    assert stage.stored[1].triggered_ms - stage.stored[0].triggered_ms >= 1_000
    marks = [each for each in stage.slots[1].told if isinstance(each, MarkSource)]
    barriers = marks_of(marks, Barrier)
    assert [(each.source, each.sequence) for each in marks] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("b", 2),
    ]
    assert [each.checkpoint_id for each in barriers] == [7, 7, 8, 8]


def test_a_checkpoint_can_be_asked_for() -> None:
    stage = Stage()
    run(stage, running, CheckpointWanted(), *stage.acknowledged(7), None, CancelWanted())
    assert stage.slots[0].commands() == ["Start", "CheckpointCompleted", "CancelAttempt"]


@pytest.mark.parametrize("begin", [deploying, opening])
def test_checkpoint_events_before_the_job_runs_are_ignored(begin: Script) -> None:
    stage = Stage()
    stray = Decline(checkpoint_id=3, slot=0, reason="no")
    assert run(stage, begin, CheckpointWanted(), stray, CancelWanted()) == Cancelled()
    assert stage.stored == []


def test_a_checkpoint_that_is_declined_once_too_often_fails_the_attempt() -> None:
    stage = Stage(tolerable_failures=1)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        for number in (7, 8):
            yield CheckpointWanted()
            yield Decline(checkpoint_id=number, slot=1, reason="disk full")

    outcome = stage.run(script)
    assert isinstance(outcome, Unsuccessful)
    assert "2 failed in a row, tolerable_failures is 1" in outcome.reason
    aborted = [each for each in stage.slots[0].told if isinstance(each, CheckpointAborted)]
    assert aborted == [CheckpointAborted(7), CheckpointAborted(8)]


def test_a_position_that_cannot_be_stored_aborts_the_checkpoint() -> None:
    stage = Stage(tolerable_failures=5)
    stage.sources["a"].store_error = KeyError("a bug")
    run(stage, running, CheckpointWanted(), None, CancelWanted())
    assert stage.slots[0].commands() == ["Start", "CheckpointAborted", "CancelAttempt"]


def test_a_commit_that_fails_aborts_the_checkpoint() -> None:
    stage = Stage(tolerable_failures=5)
    stage.stores_at_once = False
    failed = StoreFailed(7, "disk full", is_fatal=False)
    run(stage, running, CheckpointWanted(), *stage.acknowledged(7), failed, CancelWanted())
    assert stage.slots[0].commands() == ["Start", "CheckpointAborted", "CancelAttempt"]


def test_a_run_that_may_not_commit_any_more_ends() -> None:
    stage = Stage()
    stage.stores_at_once = False
    fenced = StoreFailed(7, "another process has taken over", is_fatal=True)
    outcome = failure(stage, running, CheckpointWanted(), *stage.acknowledged(7), fenced)
    assert outcome == Unsuccessful("another process has taken over", is_fatal=True)


def test_a_final_checkpoint_that_fails_is_tried_again() -> None:
    stage = Stage(tolerable_failures=1)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield from (Finished(1), Finished(0))
        yield Decline(checkpoint_id=7, slot=0, reason="disk full")
        yield from beats(stage, 2, 0, 1)
        yield from stage.acknowledged(8)
        yield None
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert [store.checkpoint_id for store in stage.stored] == [8]


def test_an_answer_of_the_storage_after_the_end_of_all_slots_is_no_success() -> None:
    stage = Stage()
    stage.stores_at_once = False
    outcome = failure(
        stage,
        running,
        Finished(0),
        Finished(1),
        *stage.acknowledged(7),
        SlotsEnded(None),
    )
    assert outcome.reason == "slots have ended before the job"


def test_heartbeats_are_kept_and_answered_with_whether_the_slot_is_wanted() -> None:
    stage = Stage()

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        assert stage.tell(Heartbeat(slot=1, metrics=SlotMetrics(rows=5)))
        yield CancelWanted()

    stage.run(script)
    assert stage.attempt.metrics == {1: SlotMetrics(rows=5)}
    assert not stage.tell(Heartbeat(slot=1))


def test_late_acknowledgements_change_nothing() -> None:
    stage = Stage(tolerable_failures=3)
    late = list(stage.acknowledged(7))
    declined = Decline(checkpoint_id=7, slot=1, reason="no")
    run(stage, running, CheckpointWanted(), declined, *late, CancelWanted())
    assert stage.stored == []
