"""What a run of a job and its attempts are made of, and what its sources are opened with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.backends import StateBackend
from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.api.network_config import NetworkConfig
from holdfast.runtime.api.restart_strategies import RestartStrategy
from holdfast.runtime.checkpoint.commands import Store
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder
from holdfast.runtime.checkpoint.statistics import CheckpointHistory
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.cluster_capacity import TaskSlotCount, TaskSlotWatch
from holdfast.runtime.driver.events import EventQueue
from holdfast.runtime.driver.outcomes import AttemptPhase
from holdfast.runtime.driver.slot_lines import SlotLink
from holdfast.runtime.driver.source_feed import Source
from holdfast.runtime.network import LOOPBACK_ONLY, Credentials, Protection
from holdfast.runtime.planning.job_plan import EdgePlan, JobPlan
from holdfast.runtime.slot_process import SlotLaunch
from holdfast.storage import (
    Clock,
    Entropy,
    JobStorage,
    StateFolder,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.registry import OpenStorage
from holdfast.storage.restore_points import RestorePoint

__all__ = ["AttemptParts", "Cluster", "Deployment", "RunParts", "SourceOpening", "SourcePlan"]


class Deployment(Protocol):
    """The slots of an attempt, as the cluster runs them."""

    def ending(self) -> None:
        """The attempt is over: slots that stop from now on are no failure."""

    def cancel(self) -> None:
        """Stop all slots; returns when they are stopped, or after a bounded time."""


class Cluster(Protocol):
    """What runs slots."""

    driver: Listening
    """Where the driver listens, and slots find it."""

    def deploy(self, launch: SlotLaunch, events: EventQueue) -> Deployment:
        """Start all slots of an attempt as soon as task slots are free for all of them.

        Puts `TaskSlotsFound` into the queue when it starts them, and `SlotsEnded` when they ended.
        """

    def room(self) -> TaskSlotCount | None:
        """Task slots that the job needs and that exist; None if that is not known now."""

    def close(self) -> None:
        """Let others have what slots ran on: the job has ended."""


@dataclass(frozen=True, kw_only=True)
class SourceOpening:
    """What a source is opened with, for one attempt."""

    uid: str
    edges: tuple[EdgePlan, ...]
    plan: JobPlan
    credentials: Credentials
    job: JobStorage
    restored: StateSnapshot | None
    restored_from: StateFolder
    clock: Clock


class SourcePlan(Protocol):
    """A source as the job was planned: opened anew for each attempt."""

    def open(self, opening: SourceOpening) -> Source:
        """The source at its restored position, not yet started.

        Raises:
            HoldfastError: the position is of another kind, or cannot be read.
        """


@dataclass(frozen=True, kw_only=True)
class RunParts:
    """What a run is made of."""

    plan: JobPlan
    sources: Mapping[str, SourcePlan]
    config: CheckpointConfig
    restart: RestartStrategy
    backend: StateBackend
    job: JobStorage
    keeper: CheckpointKeeper
    restore: RestorePoint | None
    allow_pickle: bool
    cluster: Cluster
    clock: Clock
    entropy: Entropy
    open_storage: OpenStorage = load_storage
    """What opens the places of savepoints, here and in slots."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    protection: Protection = LOOPBACK_ONLY
    """Of all that driver, slots and tasks say to each other."""
    allow_missing_output: bool = False
    """Whether what sinks have prepared for `restore` may be gone."""
    room_timeout_s: float = 300.0
    """How long an attempt waits for room for its slots."""


@dataclass(frozen=True, kw_only=True)
class AttemptParts:
    """Everything that an attempt is given."""

    slots: int
    version: str
    """The version of Holdfast on the driver; slots must have the same."""
    config: CheckpointConfig
    sources: Mapping[str, Source]
    next_checkpoint_id: int
    restored: int | None
    """The checkpoint that the attempt goes on from, if it is in the job's own folder."""
    history: CheckpointHistory
    deploy: Callable[[EventQueue], Deployment]
    """Starts the slots; puts `SlotsEnded` into the queue when they have ended."""
    link: Callable[[str], SlotLink]
    """Connects to the slot at an address."""
    store: Callable[[Store, EventQueue, SavepointOrder | None], None]
    """Commits a checkpoint, or the savepoint of an order, in the background; puts the result into
    the queue."""
    retain: Callable[[int], None]
    """Deletes obsolete checkpoints below this number in the background."""
    discard: Callable[[SavepointOrder, int], None]
    """Deletes the files of a failed savepoint in the background; called with its number."""
    on_phase: Callable[[AttemptPhase], None]
    clock: Clock
    room: TaskSlotWatch
    room_timeout_s: float
