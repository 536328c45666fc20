"""A run of a job: which attempt follows which, from where, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from attempt_stage import PlayedSource
from holdfast.backends import load_backend
from holdfast.runtime.config import CheckpointConfig
from holdfast.runtime.driver.attempt import (
    Attempt,
    AttemptParts,
    Cancelled,
    Outcome,
    Phase,
    Succeeded,
    Unsuccessful,
)
from holdfast.runtime.driver.events import CancelWanted, EventQueue
from holdfast.runtime.driver.feed import Source
from holdfast.runtime.driver.keeper import CheckpointKeeper
from holdfast.runtime.driver.restoring import RestorePoint
from holdfast.runtime.driver.run import JobRun, JobStatus, RunParts, SourceOpening
from holdfast.runtime.errors import JobFailed
from holdfast.runtime.network import Collect
from holdfast.runtime.restarts import FixedDelayRestart, RestartStrategy
from holdfast.runtime.slot_process import SlotLaunch
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    HoldfastError,
    ManualClock,
    OperatorState,
    SeededEntropy,
    StateSnapshot,
    Unavailable,
    load_storage,
)
from simulated_jobs import SOURCES, Shelf, job_plan
from simulated_world import World

Act = Callable[["Stage", EventQueue], Outcome]
"""What an attempt does, and how it ends."""


class PlayedServer:
    """The driver's ear, without a network."""

    address = "driver"

    def __init__(self, host: str, token: str) -> None:
        self.handle: Any = None
        Stage.now.server = self

    def serve(self, attempt: int, handle: Any) -> None:
        self.handle = handle

    def pause(self) -> None:
        self.handle = None

    def close(self) -> None:
        Stage.now.is_closed = True


@dataclass
class Stage:
    """A run whose attempts do what a test says, one after the other."""

    acts: list[Act]
    restart: RestartStrategy = field(default_factory=lambda: FixedDelayRestart(attempts=2, delay=0))
    config: CheckpointConfig = field(default_factory=CheckpointConfig)
    opening_error: HoldfastError | None = None
    opened: list[SourceOpening] = field(default_factory=list)
    launches: list[SlotLaunch] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    is_closed: bool = False
    server: PlayedServer | None = None
    now: ClassVar[Any] = None

    def __post_init__(self) -> None:
        Stage.now = self
        self.job = load_storage("memory://").job("job")
        self.owner = self.job.take_over()
        self.run = self.started(None)

    def started(self, point: RestorePoint | None) -> JobRun:
        plan = job_plan(Shelf(World(0), lambda _uid, _part: None), 2)
        self.keeper = CheckpointKeeper(
            self.job, self.owner, retained=1, parallelism=2, max_parallelism=16, clock=ManualClock()
        )
        return JobRun(
            RunParts(
                plan=plan,
                sources=dict.fromkeys(SOURCES, self),
                config=self.config,
                restart=self.restart,
                backend=load_backend("hashmap"),
                job=self.job,
                keeper=self.keeper,
                restore=point,
                allow_pickle=False,
                cluster=_Cluster(self),
                clock=ManualClock(),
                entropy=SeededEntropy(1),
            )
        )

    def open(self, opening: SourceOpening) -> Source:
        if self.opening_error is not None:
            raise self.opening_error
        self.opened.append(opening)
        return PlayedSource(opening.uid, [])

    def complete(self, number: int) -> CheckpointMetadata:
        """A checkpoint of the attempt that runs."""
        part = StateSnapshot(kind="test/1", attributes={"of": number})
        state = OperatorState(parallelism=2, max_parallelism=16, parts=(part,))
        metadata = CheckpointMetadata(
            job_id="job",
            checkpoint_id=number,
            triggered_ms=0,
            completed_ms=0,
            operators={"spend": state},
            sources=dict.fromkeys(SOURCES, part),
        )
        self.keeper.last = self.owner.commit(metadata)
        return metadata


@dataclass
class _Cluster:
    stage: Stage
    driver_host: str = "here"

    def deploy(self, launch: SlotLaunch, events: EventQueue) -> Any:
        raise AssertionError("attempts are played")


class PlayedAttempt(Attempt):
    """Keeps what it was made of, and does what the test says."""

    def __init__(self, parts: AttemptParts, events: EventQueue) -> None:
        super().__init__(parts, events)
        self.events = events
        self.parts = parts

    def run(self) -> Outcome:
        stage: Stage = Stage.now
        stage.numbers.append(self.parts.next_checkpoint_id)
        self.parts.on_phase(Phase.RUNNING)
        assert stage.run.status is JobStatus.RUNNING
        act = stage.acts.pop(0)
        return act(stage, self.events)

    @property
    def next_checkpoint_id(self) -> int:
        return self.parts.next_checkpoint_id + 3


@pytest.fixture(autouse=True)
def attempts_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.driver.run.Attempt", PlayedAttempt)
    monkeypatch.setattr("holdfast.runtime.driver.run.DriverServer", PlayedServer)


def fails(_stage: Stage, _events: EventQueue) -> Outcome:
    return Unsuccessful("a slot died", "details")


def fails_for_good(_stage: Stage, _events: EventQueue) -> Outcome:
    return Unsuccessful("another version", is_fatal=True)


def succeeds(_stage: Stage, _events: EventQueue) -> Outcome:
    return Succeeded()


def completes(number: int, then: Act) -> Act:
    def act(stage: Stage, events: EventQueue) -> Outcome:
        stage.complete(number)
        return then(stage, events)

    return act


def is_cancelled(stage: Stage, events: EventQueue) -> Outcome:
    stage.run.cancel()
    assert events.next(0) == CancelWanted()
    return Cancelled()


def test_a_job_that_succeeds_leaves_no_checkpoint() -> None:
    stage = Stage([completes(1, succeeds)])
    stage.run.run()
    assert (stage.run.status, stage.run.error) == (JobStatus.FINISHED, None)
    assert stage.job.completed() == ()
    assert stage.is_closed
    assert stage.run.ended.is_set()
    assert stage.run.metrics()["attempts"] == 1


def test_an_attempt_that_fails_is_followed_by_another_with_other_numbers() -> None:
    stage = Stage([fails, fails, succeeds])
    stage.run.run()
    assert stage.run.status is JobStatus.FINISHED
    assert stage.run.failures == ["a slot died"] * 2
    assert [each.credentials.attempt for each in stage.opened[::2]] == [1, 2, 3]
    assert len({each.credentials.token for each in stage.opened}) == 1
    assert stage.numbers == [1, 4, 7]


def test_the_strategy_has_the_last_word() -> None:
    stage = Stage([fails, fails, fails])
    stage.run.run()
    assert stage.run.status is JobStatus.FAILED
    assert str(stage.run.error) == "a slot died\n\ndetails"
    assert isinstance(stage.run.error, JobFailed)


def test_what_would_fail_again_is_not_tried_again() -> None:
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
        (each.restored and each.restored.attributes["of"], each.restored_from.job_id)
        for each in stage.opened[::2]
    ]
    assert found == [(9, "other"), (9, "other"), (5, "job")]


@pytest.mark.parametrize(("on_cancel", "left"), [("delete", ()), ("retain", (1,))])
def test_a_cancelled_job_keeps_its_checkpoints_if_it_shall(
    on_cancel: str, left: tuple[int, ...]
) -> None:
    stage = Stage([completes(1, is_cancelled)], config=CheckpointConfig(on_cancel=on_cancel))
    stage.run.run()
    assert stage.run.status is JobStatus.CANCELLED
    assert stage.job.completed() == left


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
    ("error", "attempts"), [(Unavailable("no storage"), 3), (Corrupt("a bad position"), 1)]
)
def test_what_cannot_be_restored_is_tried_again_if_that_may_help(
    error: HoldfastError, attempts: int
) -> None:
    stage = Stage([], opening_error=error)
    stage.run.run()
    assert (stage.run.status, stage.run.attempts) == (JobStatus.FAILED, attempts)
    assert error.what in str(stage.run.error)


def test_a_bug_ends_the_job_and_whoever_waits_is_told() -> None:
    def act(_stage: Stage, _events: EventQueue) -> Outcome:
        raise KeyError("a bug")

    stage = Stage([act])
    stage.run.run()
    assert stage.run.status is JobStatus.FAILED
    assert str(stage.run.error) == "the job cannot be run: 'a bug'"
    assert stage.run.error is not None
    assert isinstance(stage.run.error.__cause__, KeyError)
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


def test_a_job_has_ended_in_three_ways() -> None:
    assert [status for status in JobStatus if status.is_final] == [
        JobStatus.FINISHED,
        JobStatus.CANCELLED,
        JobStatus.FAILED,
    ]
