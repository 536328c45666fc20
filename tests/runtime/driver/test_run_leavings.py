"""What a run leaves in storage and in its history: checkpoints, files of lost attempts."""

from __future__ import annotations

import pytest

from holdfast.runtime.checkpoint import (
    AbortReason,
    Begin,
    CheckpointStatus,
    Store,
    Trigger,
)
from holdfast.runtime.config import CheckpointConfig
from holdfast.runtime.driver.attempt import (
    Outcome,
    Unsuccessful,
)
from holdfast.runtime.driver.events import EventQueue, StoreFailed
from holdfast.runtime.driver.run import JobStatus
from holdfast.storage import (
    StateSnapshot,
    names,
)
from run_stage import (
    Act,
    Stage,
    completes,
    fails,
    fails_for_good,
    is_cancelled,
    play_attempts,
    succeeds,
)
from simulated_jobs import SOURCES


@pytest.fixture(autouse=True)
def attempts_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    play_attempts(monkeypatch)


def test_a_job_that_succeeds_leaves_no_checkpoint() -> None:
    stage = Stage([completes(1, succeeds)])
    stage.run.run()
    assert (stage.run.status, stage.run.error) == (JobStatus.FINISHED, None)
    assert stage.job.completed() == ()
    assert stage.is_closed
    assert stage.run.ended.is_set()
    assert stage.run.metrics()["attempts"] == 1


@pytest.mark.parametrize(("on_cancel", "left"), [("delete", ()), ("retain", (1,))])
def test_a_cancelled_job_keeps_its_checkpoints_if_it_shall(
    on_cancel: str, left: tuple[int, ...]
) -> None:
    stage = Stage([completes(1, is_cancelled)], config=CheckpointConfig(on_cancel=on_cancel))
    stage.run.run()
    assert stage.run.status is JobStatus.CANCELLED
    assert stage.job.completed() == left


def begin_storing(stage: Stage, number: int) -> None:
    """What the coordinator notes of a checkpoint that is being committed."""
    stage.run.history.begun(Begin(checkpoint_id=number, triggered_ms=5, trigger=Trigger.PERIODIC))
    stage.run.history.storing(number)


def test_a_checkpoint_that_is_stored_when_its_attempt_is_over_is_complete() -> None:
    def act(stage: Stage, _events: EventQueue) -> Outcome:
        begin_storing(stage, 1)
        stage.keeper.store(
            Store(
                checkpoint_id=1,
                triggered_ms=5,
                trigger=Trigger.PERIODIC,
                operators={},
                sources=dict.fromkeys(SOURCES, StateSnapshot(kind="test/1")),
            ),
            EventQueue(),
        )
        return Unsuccessful("a slot died")

    stage = Stage([act, fails_for_good])
    stage.run.run()
    overview = stage.run.history.overview()
    assert (overview.counts.completed, overview.counts.in_progress) == (1, 0)
    (told,) = overview.recent
    assert (told.status, told.ended_ms) == (CheckpointStatus.COMPLETED, stage.clock.now_ms())
    assert [each.restored is not None for each in stage.opened[:: len(SOURCES)]] == [False, True]


def test_a_checkpoint_that_turns_out_not_to_be_stored_has_failed() -> None:
    def act(stage: Stage, _events: EventQueue) -> Outcome:
        begin_storing(stage, 1)
        stage.keeper.decided = StoreFailed(1, "no storage", is_fatal=False)
        return Unsuccessful("a slot died")

    stage = Stage([act, succeeds])
    stage.run.run()
    overview = stage.run.history.overview()
    assert (overview.counts.failed, overview.counts.in_progress) == (1, 0)
    assert overview.last_failed is not None
    assert (overview.last_failed.reason, overview.last_failed.detail) == (
        AbortReason.FINALIZE,
        "no storage",
    )


def leaves(number: int, then: Act) -> Act:
    """A slot has done its part of a checkpoint of which nothing came."""

    def act(stage: Stage, events: EventQueue) -> Outcome:
        stage.job.storage.write(f"{stage.job.folder}/{names.exclusive_file(number, 's', 'a')}", b"")
        return then(stage, events)

    return act


def parts_left(stage: Stage) -> list[str]:
    return [info.name for info in stage.job.storage.list("job/chk-") if "_meta" not in info.name]


@pytest.mark.parametrize(("end", "attempts"), [(fails_for_good, 2), (is_cancelled, 2)])
def test_what_crashed_attempts_wrote_does_not_stay(end: Act, attempts: int) -> None:
    def looks(stage: Stage, events: EventQueue) -> Outcome:
        stage.keeper.settle()
        assert parts_left(stage) == []
        return leaves(5, end)(stage, events)

    stage = Stage([leaves(2, completes(1, fails)), looks])
    stage.config = CheckpointConfig(on_cancel="retain")
    stage.run = stage.started(None)
    leaves(0, succeeds)(stage, EventQueue())  # by an earlier driver
    stage.run.run()
    assert stage.run.attempts == attempts
    assert parts_left(stage) == []
    assert stage.job.completed() == (1,)
