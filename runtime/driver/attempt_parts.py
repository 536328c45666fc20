"""The parts that an attempt is given: settings, sources, and calls to the rest of the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint import CheckpointHistory, SavepointOrder, Store
from holdfast.runtime.driver.cluster_capacity import TaskSlotWatch
from holdfast.runtime.driver.events import EventQueue
from holdfast.runtime.driver.outcomes import AttemptPhase
from holdfast.runtime.driver.source_feed import SlotLink, Source
from holdfast.storage import Clock

__all__ = ["AttemptParts", "Deployment"]


class Deployment(Protocol):
    """The slots of an attempt, as the cluster runs them."""

    def ending(self) -> None:
        """The attempt is over: slots that stop from now on are no failure."""

    def cancel(self) -> None:
        """Stop all slots; returns when they are stopped, or after a bounded time."""


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
