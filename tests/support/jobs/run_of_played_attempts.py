"""A run of a job whose attempts do what a test says, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from holdfast.backends import load_backend
from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.api.restart_strategies import FixedDelayRestart, RestartStrategy
from holdfast.runtime.driver.attempt import Attempt
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.claiming import Claimed
from holdfast.runtime.driver.cluster_capacity import TaskSlotCount
from holdfast.runtime.driver.events import CancelWanted, EventQueue
from holdfast.runtime.driver.outcomes import (
    AttemptPhase,
    Cancelled,
    Outcome,
    Succeeded,
    Unsuccessful,
)
from holdfast.runtime.driver.run import JobRun, JobStatus
from holdfast.runtime.driver.run_parts import AttemptParts, RunParts, SourceOpening
from holdfast.runtime.driver.source_feed import Source
from holdfast.runtime.network import Protection
from holdfast.runtime.slot_process import SlotLaunch
from holdfast.storage import (
    CheckpointMetadata,
    ManualClock,
    OperatorState,
    SeededEntropy,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.restore_points import RestorePoint
from support.jobs.attempt_with_played_slots import PlayedSource
from support.simulations.jobs import SOURCES, Shelf, job_plan
from support.simulations.world import World

Act = Callable[["Stage", EventQueue], Outcome]
"""What an attempt does, and how it ends."""


class PlayedServer:
    """The driver's ear, without a network."""

    address = "driver"

    def __init__(self, listening: Listening, token: str, protection: Protection) -> None:
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
    claimed: tuple[Claimed, ...] = ()
    opening_error: Exception | None = None
    fails_to_open: str = SOURCES[0]
    sources: list[PlayedSource] = field(default_factory=list)
    opened: list[SourceOpening] = field(default_factory=list)
    launches: list[SlotLaunch] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    restored: list[int | None] = field(default_factory=list)
    is_closed: bool = False
    has_closed_cluster: bool = False
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_700_000_000_000))
    server: PlayedServer | None = None
    room: TaskSlotCount | None = None
    job_name: str = "job"
    now: ClassVar[Any] = None

    def __post_init__(self) -> None:
        Stage.now = self
        self.job = load_storage("memory://").job(self.job_name)
        self.owner = self.job.take_over()
        self.run = self.started(None)

    def started(self, point: RestorePoint | None) -> JobRun:
        plan = job_plan(Shelf(World(0), lambda _uid, _part: None), 2)
        self.keeper = CheckpointKeeper(
            self.job,
            self.owner,
            retained=1,
            parallelism=2,
            max_parallelism=16,
            clock=self.clock,
            claimed=self.claimed,
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
                clock=self.clock,
                entropy=SeededEntropy(1),
            )
        )

    def open(self, opening: SourceOpening) -> Source:
        if self.opening_error is not None and opening.uid == self.fails_to_open:
            raise self.opening_error
        self.opened.append(opening)
        self.sources.append(PlayedSource(opening.uid, []))
        return self.sources[-1]

    def complete(self, number: int) -> CheckpointMetadata:
        """A checkpoint of the attempt that runs."""
        part = StateSnapshot(kind="test/1", attributes={"of": number})
        state = OperatorState(parallelism=2, max_parallelism=16, parts=(part,))
        metadata = CheckpointMetadata(
            job_id=self.job_name,
            checkpoint_id=number,
            triggered_ms=0,
            completed_ms=0,
            operators={"spend": state},
            sources=dict.fromkeys(SOURCES, part),
        )
        self.keeper.last = self.owner.commit(metadata)
        self.keeper.point = RestorePoint(self.keeper.last, self.job)
        return metadata


@dataclass
class _Cluster:
    stage: Stage
    driver: Listening = field(default_factory=lambda: Listening("127.0.0.1"))

    def deploy(self, launch: SlotLaunch, events: EventQueue) -> Any:
        raise AssertionError("attempts are played")

    def room(self) -> TaskSlotCount | None:
        return self.stage.room

    def close(self) -> None:
        assert not self.stage.run.ended.is_set(), "callers that wait for the end may want them"
        self.stage.has_closed_cluster = True


class PlayedAttempt(Attempt):
    """Keeps what it was made of, and does what the test says."""

    def __init__(self, parts: AttemptParts, events: EventQueue) -> None:
        super().__init__(parts, events)
        self.events = events
        self.parts = parts

    def run(self) -> Outcome:
        stage: Stage = Stage.now
        stage.numbers.append(self.parts.next_checkpoint_id)
        stage.restored.append(self.parts.restored)
        self.parts.on_phase(AttemptPhase.RUNNING)
        assert stage.run.status is JobStatus.RUNNING
        act = stage.acts.pop(0)
        return act(stage, self.events)

    @property
    def next_checkpoint_id(self) -> int:
        return self.parts.next_checkpoint_id + 3


def play_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put what is played in the place of real attempts and the network."""
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
