"""What a run leaves in storage and in its history: records, checkpoints, files of lost attempts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint.commands import AbortReason, Begin, Store, Trigger
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder
from holdfast.runtime.checkpoint.statistics import CheckpointStatus
from holdfast.runtime.driver.claiming import ClaimedCheckpoint, claimed_before
from holdfast.runtime.driver.events import CancelWanted, EventQueue, StoreFailed
from holdfast.runtime.driver.outcomes import Cancelled, Outcome, Succeeded, Unsuccessful
from holdfast.runtime.driver.run import JobStatus
from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.storage import (
    JobManagerCheckpointStorage,
    JobResult,
    JobStorage,
    SavepointFolder,
    StateSnapshot,
    Unavailable,
    load_storage,
    names,
)
from holdfast.storage.distribution import holdfast_version
from holdfast.storage.retries import Backoff
from holdfast.storage.testing.watched_storage import WatchedStorage
from support.jobs.claimed_checkpoints import Other, Refuses
from support.jobs.run_of_played_attempts import (
    Act,
    Stage,
    completes,
    fails,
    fails_for_good,
    is_cancelled,
    play_attempts,
    succeeds,
)
from support.simulations.jobs import SOURCES


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


def test_a_job_that_has_finished_leaves_a_record_of_it() -> None:
    stage = Stage([fails, completes(4, succeeds)])
    stage.run.run()
    result = stage.job.result()
    assert result is not None
    assert (result.status, result.ended_ms, result.epoch) == ("finished", stage.clock.now_ms(), 1)
    assert result.holdfast_version == holdfast_version()
    assert result.properties == {"attempts": 2, "last_checkpoint": 4}


def test_no_checkpoint_is_deleted_before_the_end_is_recorded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "holdfast.runtime.driver.checkpoints.checkpoint_keeper._PAUSES", Backoff(0.001, 5.0)
    )
    stage = Stage([completes(1, succeeds)])
    newest: list[JobResult | None] = []

    def delete(names: Iterable[str]) -> None:
        newest.append(stage.job.result())
        type(stage.job.storage).delete(stage.job.storage, names)

    with patch.object(stage.job.storage, "delete", delete):
        stage.run.run()
    assert newest
    assert None not in newest

    stage = Stage([completes(1, succeeds)])
    with patch.object(stage.owner, "end", side_effect=Unavailable("no storage")):
        stage.run.run()
    assert stage.run.status is JobStatus.FINISHED
    assert (stage.job.completed(), stage.job.result()) == ((1,), None)
    assert "so its checkpoints stay: no storage" in caplog.text


@pytest.mark.parametrize(("on_cancel", "left"), [("delete", ()), ("retain", (1,))])
def test_a_cancelled_job_keeps_its_checkpoints_if_it_shall(
    on_cancel: str, left: tuple[int, ...]
) -> None:
    stage = Stage([completes(1, is_cancelled)], config=CheckpointConfig(on_cancel=on_cancel))
    stage.run.run()
    assert stage.run.status is JobStatus.CANCELLED
    assert stage.job.completed() == left
    result = stage.job.result()
    assert (result and result.status) == (None if left else "cancelled")


def is_interrupted(stage: Stage, events: EventQueue) -> Outcome:
    stage.run.interrupt()
    assert events.next(0) == CancelWanted()
    return Cancelled()


@pytest.mark.parametrize("on_cancel", ["delete", "retain"])
def test_a_job_that_is_interrupted_can_go_on(on_cancel: str) -> None:
    stage = Stage([completes(1, is_interrupted)], config=CheckpointConfig(on_cancel=on_cancel))
    stage.run.run()
    assert stage.run.status is JobStatus.CANCELLED
    assert (stage.job.completed(), stage.job.result()) == ((1,), None)


@pytest.mark.parametrize("on_cancel", ["delete", "retain"])
def test_a_job_that_fails_leaves_its_checkpoints_whatever_is_said_of_a_cancelled_one(
    on_cancel: str,
) -> None:
    stage = Stage([completes(1, fails_for_good)], config=CheckpointConfig(on_cancel=on_cancel))
    stage.run.run()
    assert stage.run.status is JobStatus.FAILED
    assert (stage.job.completed(), stage.job.result()) == ((1,), None)


def test_a_job_that_finishes_while_it_is_interrupted_has_finished() -> None:
    def act(stage: Stage, events: EventQueue) -> Outcome:
        is_interrupted(stage, events)
        return Succeeded()

    stage = Stage([completes(1, act)])
    stage.run.run()
    result = stage.job.result()
    assert (stage.job.completed(), result and result.status) == ((), "finished")


def test_a_job_that_is_cancelled_before_its_first_checkpoint_may_begin_anew() -> None:
    stage = Stage([is_cancelled])
    stage.run.run()
    assert stage.run.status is JobStatus.CANCELLED
    assert stage.job.result() is None


def test_a_job_that_is_cancelled_says_what_it_has_claimed_and_not_deleted() -> None:
    """Also before its first checkpoint, which would say so: an earlier run had claimed it."""
    other = Other(JobManagerCheckpointStorage())
    slow = WatchedStorage(other.job.storage, before=Refuses("other"))
    mine = JobStorage(other.job.storage, "job")
    earlier = ClaimedCheckpoint(slow.job("other"), 4, other.owner.epoch, by=mine.mark)
    earlier.mark()
    earlier.release()
    stage = Stage([is_cancelled], claimed=(earlier,))
    stage.run.run()
    assert stage.run.status is JobStatus.CANCELLED
    result = stage.job.result()
    assert result is not None
    (left,) = claimed_before(result.properties, mine)
    left.release()
    while left.owes:
        left.step(100)
    assert other.left() == other.files_of(3, 5)
    stage = Stage([is_cancelled], claimed=(left,))
    stage.run.run()
    assert stage.job.result() is None, "it may begin anew"


def begin_storing(stage: Stage, number: int) -> None:
    """What the coordinator notes of a checkpoint that is being committed."""
    stage.run.history.begun(
        Begin(checkpoint_id=number, triggered_ms=5, trigger=Trigger.PERIODIC, base=None)
    )
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


def test_a_savepoint_whose_place_does_not_answer_is_not_taken_for_what_was_stored(
    tmp_path: Path,
) -> None:
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "job")

    def act(stage: Stage, _events: EventQueue) -> Outcome:
        stage.complete(1)
        order = SavepointOrder(folder, SavepointFormat.NATIVE)
        stage.run.history.begun(
            Begin(
                checkpoint_id=2,
                triggered_ms=5,
                trigger=Trigger.SAVEPOINT,
                base=None,
                savepoint=order.request,
            )
        )
        stage.run.history.storing(2)
        return Unsuccessful("a slot died")

    stage = Stage([act, succeeds])
    stage.run.run()
    told = stage.run.history.overview().last_failed
    assert told is not None
    assert (told.savepoint, told.detail) == (folder.url, "its place did not answer in time")


def leaves(number: int, then: Act) -> Act:
    """A slot has done its part of a checkpoint of which nothing came."""

    def act(stage: Stage, events: EventQueue) -> Outcome:
        stage.job.storage.write(f"{stage.job.folder}/{names.exclusive_file(number, 's', 'a')}", b"")
        return then(stage, events)

    return act


def parts_left(stage: Stage) -> list[str]:
    return [info.name for info in stage.job.storage.list("job/chk-") if "_meta" not in info.name]


@pytest.mark.parametrize(("end", "attempts"), [(fails_for_good, 2), (is_cancelled, 2)])
def test_files_of_crashed_attempts_are_deleted(end: Act, attempts: int) -> None:
    def looks(stage: Stage, events: EventQueue) -> Outcome:
        stage.keeper.finish_deleting()
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
