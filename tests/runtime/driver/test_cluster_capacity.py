"""An attempt on a cluster that has too few task slots: what it waits for, and what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.runtime.driver.cluster_capacity import TaskSlotCount
from holdfast.runtime.driver.events import CancelWanted, EventQueue, TaskSlotsFound
from holdfast.runtime.driver.outcomes import Cancelled, Outcome, Succeeded, Unsuccessful
from holdfast.runtime.driver.slot_deadlines import SlotDeadlines
from holdfast.runtime.protocol.messages import Heartbeat
from support.jobs import run_of_played_attempts
from support.jobs.attempt_with_played_slots import EXECUTORS, InlineExecutor, Stage, Step
from support.jobs.run_of_played_attempts import fails, play_attempts


@pytest.fixture(autouse=True)
def nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in EXECUTORS:
        monkeypatch.setattr(f"holdfast.runtime.driver.{module}.DaemonThreads", InlineExecutor)


def beats(stage: Stage, seconds: int) -> Iterator[Step]:
    """So many seconds in which all slots are heard of."""
    for _ in range(seconds):
        for slot in range(len(stage.slots)):
            stage.tell(Heartbeat(slot=slot))
        yield 1_000


def test_room_for_slots_is_waited_for_as_long_as_the_job_says() -> None:
    stage = Stage()
    stage.room = TaskSlotCount(needed=7, there=5)
    outcome = stage.run(lambda _: iter([1_000] * 299))
    assert isinstance(outcome, Unsuccessful)
    assert outcome.reason == (
        "there were too few task slots for 300 s (slot.request.timeout): "
        "too few task slots for the job: needs 7, has 5"
    )
    assert stage.clock.now_ms() - 5_000_000 >= 300_000


def test_slots_have_their_two_minutes_from_when_there_is_room() -> None:
    stage = Stage()
    stage.room = TaskSlotCount(needed=7, there=5)

    def script(stage: Stage) -> Iterator[Step]:
        yield from [1_000] * 250
        stage.room = TaskSlotCount(needed=7, there=7)
        yield TaskSlotsFound()
        yield from [1_000] * 119
        yield from stage.opening()
        yield CancelWanted()

    assert stage.run(script) == Cancelled()


def test_that_sources_have_no_task_slot_is_seen_while_the_job_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    caplog.set_level("INFO", "holdfast")

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield 2_000
        assert stage.parts.room.trouble == ""
        stage.room = TaskSlotCount(needed=7, there=6)
        for _ in range(20):
            yield from beats(stage, 1)
        assert stage.parts.room.trouble == "no task slot for sources: needs 7, has 6"
        stage.room = TaskSlotCount(needed=7, there=9)
        yield from beats(stage, 3)
        assert stage.parts.room.trouble == ""
        yield CancelWanted()

    assert stage.run(script) == Cancelled()
    missing, enough = (record.getMessage() for record in caplog.records)
    assert missing.startswith("job 'job': no task slot for sources: needs 7, has 6. It goes on")
    assert enough == "job 'job' has the task slots that it needs again"


def test_room_that_lacks_for_a_moment_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        stage.room = TaskSlotCount(needed=7, there=6)
        yield from beats(stage, 2)
        stage.room = None
        yield from beats(stage, 9)
        yield CancelWanted()

    assert stage.run(script) == Cancelled()
    assert caplog.records == []


def test_a_run_says_what_it_lacks_while_it_waits_to_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play_attempts(monkeypatch)
    seen: list[str] = []

    def looks(stage: run_of_played_attempts.Stage, _events: EventQueue) -> Outcome:
        seen.append(stage.run.trouble)
        assert stage.run.metrics()["task_slots"] == {"needed": 4, "there": 3}
        return Succeeded()

    stage = run_of_played_attempts.Stage([fails, looks])
    stage.room = TaskSlotCount(needed=4, there=3)
    stage.run.run()
    assert seen == ["too few task slots for the job: needs 4, has 3"]
    assert stage.run.trouble == "", "it has ended"


def test_found_task_slots_end_the_complaint_without_a_wait() -> None:
    patience = SlotDeadlines(2, 0.0, 0.0)
    assert patience.lost(1.0) == ""
    assert "too few task slots" in patience.lost(3.0)
    patience.found_room(1.0)
    assert patience.lost(3.0) == ""
