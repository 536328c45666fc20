"""A run of a job: which attempt follows which, from where, and how it ends."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.runtime.api.errors import JobFailed
from holdfast.runtime.api.restart_strategies import FixedDelayRestart, RestartDecider
from holdfast.runtime.checkpoint.savepoint_orders import SavepointPurpose
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.ended_run import EndedRun
from holdfast.runtime.driver.events import CancelWanted, EventQueue
from holdfast.runtime.driver.failure.failures import RepeatedFailures
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.outcomes import Cancelled, Outcome, Succeeded, Unsuccessful
from holdfast.runtime.driver.run import JobStatus
from holdfast.runtime.protocol.messages import Collect
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    StateSnapshot,
    Unavailable,
    load_storage,
)
from holdfast.storage.restore_points import RestorePoint
from support.jobs.attempt_with_played_slots import PlayedSource, an_order
from support.jobs.run_of_played_attempts import (
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


TWICE = " (2 times in a row, and no checkpoint has got past it)"


def test_an_attempt_that_fails_is_followed_by_another_with_other_numbers() -> None:
    stage = Stage([fails, fails, succeeds])
    stage.run.run()
    assert stage.run.status is JobStatus.FINISHED
    assert [(each.attempt, each.summary, each.traceback) for each in stage.run.failures] == [
        (1, "a slot died", "details"),
        (2, f"a slot died{TWICE}", "details"),
    ]
    assert stage.run.failures[0].failed_ms == stage.clock.now_ms()
    assert [each.credentials.attempt for each in stage.opened[::2]] == [1, 2, 3]
    assert len({each.credentials.token for each in stage.opened}) == 1
    assert stage.numbers == [1, 5, 9], "slots may have begun files for 4 and 8"


def test_the_strategy_has_the_last_word() -> None:
    stage = Stage([fails, fails, fails])
    stage.run.run()
    assert stage.run.status is JobStatus.FAILED
    assert str(stage.run.error) == f"a slot died{TWICE.replace('2', '3')}"
    assert isinstance(stage.run.error, JobFailed)


def test_an_error_of_user_code_is_shown_while_the_job_restarts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raises(_stage: Stage, _events: EventQueue) -> Outcome:
        return Unsuccessful("operator 'sum' failed", "line 1\nKeyError: 'price'\n", uid="sum")

    stage = Stage([raises, raises], restart=FixedDelayRestart(attempts=1, delay=0))
    stage.run.run()
    text, trace = "operator 'sum' failed", "line 1\nKeyError: 'price'"
    details = ' (the traceback is in job.failure_details, and logged by log_level="DEBUG")'
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"attempt 1 of job 'job' failed, the next comes in 0 s: {text}"),
        ("ERROR", f"job 'job' fails: {text}{TWICE}{details}"),
    ]
    caplog.clear()
    with caplog.at_level("DEBUG", "holdfast"):
        Stage([raises]).run.run()
    (debugged,) = [each for each in caplog.records if each.levelname == "DEBUG"]
    assert debugged.getMessage() == f"attempt 1 of job 'job': {trace}"
    error = stage.run.error
    assert error is not None
    assert str(error) == text + TWICE
    assert (error.uid, error.traceback) == ("sum", "line 1\nKeyError: 'price'")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.uid, again.traceback) == (
        text + TWICE,
        error.uid,
        error.traceback,
    )
    handle = JobHandle(stage.run, stage.job, {}, ())
    assert handle.failures == (text, text + TWICE)
    assert [str(each) for each in handle.failure_details] == [
        f"{each}\n\n{trace}" for each in handle.failures
    ]


def test_a_handle_shows_itself_in_a_terminal_and_in_a_notebook() -> None:
    stage = Stage([fails] * 2, restart=FixedDelayRestart(attempts=1, delay=0))
    handle = JobHandle(stage.run, stage.job, {}, ("it is <i>new</i>",))
    assert repr(handle) == "<job 'job' starting; checkpoints: 0 completed>"
    stage.run.run()
    failure = stage.run.failures[-1].summary
    assert repr(handle) == (
        "<job 'job' failed; checkpoints: 0 completed; "
        f"failures: 2, the last one: {' '.join(failure.split())}>"
    )
    shown = handle._repr_html_()
    for each in ("job &#x27;job&#x27;", "failed", "it is &lt;i&gt;new&lt;/i&gt;", stage.job.url):
        assert each in shown
    assert "<i>" not in shown


def test_failures_are_kept_but_not_without_end() -> None:
    stage = Stage([fails] * 150, restart=FixedDelayRestart(attempts=149, delay=0))
    stage.run.run()
    assert [each.attempt for each in stage.run.failures] == list(range(51, 151))


def test_a_job_whose_storage_is_down_says_that_it_restarts() -> None:
    stage = Stage([fails, succeeds])
    seen: list[JobStatus] = []

    def settle() -> None:
        seen.append(stage.run.status)
        CheckpointKeeper.settle(stage.keeper)

    with patch.object(stage.keeper, "settle", settle):
        stage.run.run()
    assert seen[0] is JobStatus.RESTARTING
    assert stage.run.status is JobStatus.FINISHED


def test_a_job_that_gives_up_does_not_wait_for_its_storage() -> None:
    stage = Stage([completes(1, fails_for_good)])
    with patch.object(stage.keeper, "give_up") as give_up:
        stage.run.run()
    give_up.assert_called_once_with()


def test_a_clock_that_is_set_back_does_not_touch_the_strategy() -> None:
    times: list[int] = []

    class Noting(FixedDelayRestart):
        def start(self) -> RestartDecider:
            return self

        def failed(self, now_ms: int, chance: float) -> int | None:
            times.append(now_ms)
            return 0

    stage = Stage([fails, succeeds], restart=Noting())
    with patch.object(stage.clock, "monotonic_s", lambda: 12.5):
        stage.run.run()
    assert times == [12_500]


def test_the_delay_and_the_time_of_a_failure_count_from_the_failure() -> None:
    """And not from when a source has stopped at last."""
    waits_s: list[float] = []
    told: list[tuple[float, float]] = []

    def fails_and_stops_slowly(stage: Stage, _events: EventQueue) -> Outcome:
        attempt = stage.run._attempt
        assert attempt is not None
        stage.clock.advance(700)
        attempt.decided_s = stage.clock.monotonic_s()
        stage.clock.advance(2_000)
        return Unsuccessful("a slot died")

    stage = Stage(
        [fails_and_stops_slowly, succeeds], restart=FixedDelayRestart(attempts=1, delay="3s")
    )
    began_ms = stage.clock.now_ms()
    repeats = RepeatedFailures.failed

    def failed(self: Any, *arguments: Any, ran_s: float, now_s: float) -> Any:
        told.append((ran_s, now_s))
        return repeats(self, *arguments, ran_s=ran_s, now_s=now_s)

    with (
        patch.object(RepeatedFailures, "failed", failed),
        patch.object(stage.run._cancel, "wait", waits_s.append),
    ):
        stage.run.run()
    assert stage.run.status is JobStatus.FINISHED
    assert waits_s == [pytest.approx(1.0)], "two of the three seconds have passed"
    assert [each.failed_ms for each in stage.run.failures] == [began_ms + 700]
    assert told[0] == pytest.approx((0.7, began_ms / 1000 + 0.7))


def test_waiting_too_long_raises_a_timeout() -> None:
    handle = JobHandle(Stage([]).run, Stage([]).job, {}, ())
    for kind in (TimeoutError, Unavailable):
        with pytest.raises(kind, match=r"job 'job' has not ended within 0.01 s"):
            handle.result(0.01)


def test_a_fatal_failure_is_not_retried() -> None:
    stage = Stage([completes(1, fails_for_good)])
    stage.run.run()
    assert (stage.run.status, stage.run.attempts) == (JobStatus.FAILED, 1)
    assert stage.job.completed() == (1,), "a job that fails leaves its checkpoints"


def test_the_next_attempt_begins_with_the_newest_checkpoint() -> None:
    stage = Stage([completes(1, completes(2, fails)), fails, succeeds])
    stage.run.run()
    restored = [each.restored and each.restored.attributes for each in stage.opened]
    assert restored == [None, None, {"of": 2}, {"of": 2}, {"of": 2}, {"of": 2}]


def test_until_it_has_one_of_its_own_a_run_begins_where_it_was_told_to() -> None:
    other = load_storage("memory://").job("other")
    stage = Stage([fails, completes(5, fails), succeeds])
    metadata = CheckpointMetadata(
        job_id="other",
        checkpoint_id=9,
        triggered_ms=0,
        completed_ms=0,
        sources=dict.fromkeys(SOURCES, StateSnapshot(kind="test/1", attributes={"of": 9})),
    )
    stage.run = stage.started(RestorePoint(metadata, other))
    stage.run.run()
    found = [
        (each.restored and each.restored.attributes["of"], each.restored_from.folder)
        for each in stage.opened[::2]
    ]
    assert found == [(9, "other"), (9, "other"), (5, "job")]
    assert stage.restored == [None, None, 5], "nothing can build on what is in another folder"


def test_a_job_that_fails_while_it_is_cancelled_is_cancelled() -> None:
    def act(stage: Stage, events: EventQueue) -> Outcome:
        is_cancelled(stage, events)
        return Unsuccessful("the slots were stopped")

    stage = Stage([act])
    stage.run.run()
    assert stage.run.status is JobStatus.CANCELLED


def test_a_job_that_succeeds_while_it_is_cancelled_has_finished() -> None:
    def act(stage: Stage, events: EventQueue) -> Outcome:
        is_cancelled(stage, events)
        return Succeeded()

    stage = Stage([act])
    stage.run.run()
    assert stage.run.status is JobStatus.FINISHED


def test_a_job_may_be_cancelled_before_it_begins() -> None:
    def act(_stage: Stage, events: EventQueue) -> Outcome:
        assert events.next(0) == CancelWanted()
        return Cancelled()

    stage = Stage([act])
    stage.run.cancel()
    stage.run.run()
    assert stage.run.status is JobStatus.CANCELLED


def test_a_job_that_waits_to_be_restarted_can_be_cancelled() -> None:
    stage = Stage([fails], restart=FixedDelayRestart(attempts=5, delay="1h"))
    running = threading.Thread(target=stage.run.run)
    running.start()
    while stage.run.status is not JobStatus.RESTARTING:
        running.join(0.005)
        assert running.is_alive()
    stage.run.request_checkpoint()  # nothing is there to take one
    stage.run.cancel()
    running.join(10)
    assert stage.run.status.value == "cancelled"


def test_a_run_that_was_taken_over_ends_before_its_next_attempt() -> None:
    """What it would restore from may be deleted, and it may never get to a commit."""

    def act(stage: Stage, _events: EventQueue) -> Outcome:
        stage.job.take_over()
        return Unsuccessful("a slot died")

    stage = Stage([completes(1, act)])
    stage.run.run()
    assert (stage.run.status, stage.run.attempts) == (JobStatus.FAILED, 2)
    assert "another process has taken over job 'job'" in str(stage.run.error)
    assert stage.job.completed() == (1,)


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (Unavailable("no storage"), 3),
        (ConnectionError("no JVM"), 3),
        (Corrupt("a bad position"), 1),
    ],
)
def test_a_failed_restore_is_retried_if_that_may_help(error: Exception, attempts: int) -> None:
    stage = Stage([], opening_error=error)
    stage.run.run()
    assert (stage.run.status, stage.run.attempts) == (JobStatus.FAILED, attempts)
    assert str(error) in str(stage.run.error)


@pytest.mark.parametrize("stop_error", [None, OSError("it does not stop")])
def test_sources_that_were_opened_are_stopped_if_another_cannot_be(
    stop_error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(source: PlayedSource) -> None:
        source.stopped += 1
        if stop_error is not None:
            raise stop_error

    monkeypatch.setattr(PlayedSource, "stop", stop)
    stage = Stage([], opening_error=Unavailable("no storage"), fails_to_open=SOURCES[-1])
    stage.run.run()
    assert stage.run.attempts == 3
    assert [source.uid for source in stage.sources] == [*SOURCES[:-1]] * 3
    assert {source.stopped for source in stage.sources} == {1}
    assert "no storage" in str(stage.run.error)


def test_a_bug_ends_the_job_and_wakes_waiting_callers() -> None:
    def act(_stage: Stage, _events: EventQueue) -> Outcome:
        raise KeyError("a bug")

    stage = Stage([act])
    stage.run.run()
    assert stage.run.status is JobStatus.FAILED
    assert str(stage.run.error) == "the job cannot be run: 'a bug'"
    assert stage.run.error is not None
    assert isinstance(stage.run.error.__cause__, KeyError)
    assert stage.run.ended.is_set()
    assert stage.has_closed_cluster


def test_a_driver_that_cannot_listen_ends_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def serve(*_: object) -> None:
        raise OSError("no port")

    stage = Stage([])
    monkeypatch.setattr("holdfast.runtime.driver.run.DriverServer", serve)
    stage.run.run()
    assert (stage.run.status, str(stage.run.error)) == (
        JobStatus.FAILED,
        "the job cannot be run: no port",
    )
    assert stage.run.ended.is_set()


def test_collected_parts_outlive_attempts_and_count_once() -> None:
    def act(stage: Stage, _events: EventQueue) -> Outcome:
        assert stage.server is not None
        for data in (b"first", b"again"):
            assert stage.server.handle(Collect(uid="out", part="1", rows=data))
        return Unsuccessful("a slot died")

    stage = Stage([act, succeeds])
    stage.run.run()
    assert stage.run.collected("out") == {"1": b"first"}
    assert stage.run.collected("other") == {}


def test_the_record_of_its_end_names_the_savepoint_that_stopped_the_job(tmp_path: Path) -> None:
    storage = load_storage(str(tmp_path))
    refused, stopped, late = (
        an_order(storage, purpose)
        for purpose in (SavepointPurpose.STOP, SavepointPurpose.DRAIN, SavepointPurpose.STOP)
    )

    def stops(stage: Stage, _events: EventQueue) -> Outcome:
        for each in (refused, stopped, late):
            stage.run.order_savepoint(each)
        refused.fail(Unavailable("the disk is full"))
        late.fail(Unavailable("another savepoint is on its way"))
        stopped.complete()
        return Succeeded()

    stage = Stage([stops])
    stage.run.run()
    result = stage.job.result()
    assert result is not None
    assert result.properties["savepoint"] == stopped.folder.url


def test_the_record_of_its_end_names_the_savepoint_that_cancelled_the_job(tmp_path: Path) -> None:
    """Its checkpoints are deleted: if its driver dies, only the record leads to its state."""
    storage = load_storage(str(tmp_path))
    order = an_order(storage, SavepointPurpose.CANCEL)

    def fails_after(stage: Stage, _events: EventQueue) -> Outcome:
        stage.run.order_savepoint(order)
        stage.complete(1)
        order.complete()
        return Unsuccessful("a slot died")

    stage = Stage([fails_after])
    stage.run.run()
    assert stage.run.status is JobStatus.CANCELLED
    result = stage.job.result()
    assert result is not None
    assert result.properties["savepoint"] == order.folder.url
    note = EndedRun(result).note
    assert note.endswith(f"To go on from that, pass restore={order.folder.url!r}")


def test_a_job_that_ends_by_itself_was_stopped_with_no_savepoint(tmp_path: Path) -> None:
    order = an_order(load_storage(str(tmp_path)), SavepointPurpose.STOP)

    def finishes(stage: Stage, _events: EventQueue) -> Outcome:
        stage.run.order_savepoint(order)
        order.fail(Unavailable("the disk is full"))
        return Succeeded()

    stage = Stage([finishes])
    stage.run.run()
    result = stage.job.result()
    assert result is not None
    assert "savepoint" not in result.properties


def test_a_job_has_ended_in_three_ways() -> None:
    assert [status for status in JobStatus if status.is_final] == [
        JobStatus.FINISHED,
        JobStatus.CANCELLED,
        JobStatus.FAILED,
    ]
