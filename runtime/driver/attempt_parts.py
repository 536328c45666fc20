"""What an attempt is made of."""

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
        ...

    def cancel(self) -> None:
        """Stop them all; returns when none can do anything any more, or nearly so."""
        ...


@dataclass(frozen=True, kw_only=True)
class AttemptParts:
    """What an attempt is made of."""

    number: int
    slots: int
    version: str
    """Of Holdfast, on the driver; slots must have the same."""
    config: CheckpointConfig
    sources: Mapping[str, Source]
    next_checkpoint_id: int
    restored: int | None
    """The checkpoint that the attempt goes on from, if it is in the job's own folder."""
    history: CheckpointHistory
    deploy: Callable[[EventQueue], Deployment]
    """Starts the slots; tells `SlotsEnded` when they are over."""
    link: Callable[[str], SlotLink]
    """Speaks to a slot at an address."""
    store: Callable[[Store, EventQueue], None]
    """Commits a checkpoint in the background; tells `CheckpointStored` or `StoreFailed`."""
    retain: Callable[[int], None]
    """Deletes older checkpoints in the background, but none from this number on."""
    discard: Callable[[SavepointOrder, int], None]
    """Deletes in the background what there is of a savepoint that has failed, of this number."""
    on_phase: Callable[[AttemptPhase], None]
    clock: Clock
    room: TaskSlotWatch
    room_timeout_s: float
