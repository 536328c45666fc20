"""What can happen to an attempt, as its driver's one thread sees it: a queue of facts."""

from __future__ import annotations

from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeAlias

from holdfast.runtime.checkpoint import SavepointOrder
from holdfast.runtime.protocol.messages import (
    Acknowledge,
    Decline,
    Failed,
    Finished,
    Ready,
    Register,
)
from holdfast.storage import CheckpointMetadata, StateSnapshot

__all__ = [
    "AttemptEvent",
    "CancelWanted",
    "CheckpointStored",
    "CheckpointWanted",
    "CutFailed",
    "EventQueue",
    "SavepointWanted",
    "SlotLost",
    "SlotsEnded",
    "SourceCut",
    "SourceFailed",
    "StoreFailed",
    "TaskSlotsFound",
]


@dataclass(frozen=True, slots=True)
class TaskSlotsFound:
    """There is room for the slots of the attempt: they are being started."""


@dataclass(frozen=True, slots=True)
class SlotsEnded:
    """The slots' job of Spark is over; it should not be, unless they were told to finish."""

    error: str | None


@dataclass(frozen=True, slots=True)
class SlotLost:
    """A slot does not answer any more."""

    slot: int
    reason: str


@dataclass(frozen=True, slots=True)
class SourceCut:
    """A source has its barrier, and its position there is in storage."""

    checkpoint_id: int
    uid: str
    position: StateSnapshot


@dataclass(frozen=True, slots=True)
class CutFailed:
    """A source has its barrier, but its position could not be stored."""

    checkpoint_id: int
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """A source cannot go on."""

    uid: str
    summary: str
    details: str
    is_fatal: bool = False
    fault: str = ""
    """What the user's own code or data does wrong, the same each time; empty if it is not that."""


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """A checkpoint is completed; if it is a savepoint, by this order."""

    metadata: CheckpointMetadata
    order: SavepointOrder | None = None

    @property
    def checkpoint_id(self) -> int:
        """Its number."""
        return self.metadata.checkpoint_id


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A checkpoint could not be committed; if `is_fatal`, none ever will: the right is lost."""

    checkpoint_id: int
    reason: str
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class CancelWanted:
    """Somebody wants the job to stop."""


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """Somebody wants a checkpoint now."""


@dataclass(frozen=True, slots=True)
class SavepointWanted:
    """Somebody wants a savepoint now; the order is told what becomes of it."""

    order: SavepointOrder


AttemptEvent: TypeAlias = (
    Register
    | Ready
    | Acknowledge
    | Decline
    | Failed
    | Finished
    | TaskSlotsFound
    | SlotsEnded
    | SlotLost
    | SourceCut
    | CutFailed
    | SourceFailed
    | CheckpointStored
    | StoreFailed
    | CancelWanted
    | CheckpointWanted
    | SavepointWanted
)


class EventQueue:
    """Facts from any thread, for the one that decides."""

    def __init__(self) -> None:
        self._facts: SimpleQueue[AttemptEvent] = SimpleQueue()

    def put(self, event: AttemptEvent) -> None:
        """Tell a fact."""
        self._facts.put(event)

    def next(self, timeout_s: float) -> AttemptEvent | None:
        """The next fact; None when there was none for so long."""
        try:
            return self._facts.get(timeout=max(timeout_s, 0))
        except Empty:
            return None
