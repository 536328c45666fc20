"""Events of an attempt, and the queue in which they reach the driver's deciding thread."""

from __future__ import annotations

from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeAlias

from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder
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
    "SavepointRefused",
    "SavepointWanted",
    "SlotLost",
    "SlotsEnded",
    "SourceBacklog",
    "SourceCut",
    "SourceFailed",
    "StoreFailed",
    "TaskSlotsFound",
]


@dataclass(frozen=True, slots=True)
class TaskSlotsFound:
    """Task slots are free for all slots of the attempt; Spark starts them."""


@dataclass(frozen=True, slots=True)
class SlotsEnded:
    """The Spark job of the slots has ended: a failure, unless slots were told to finish."""

    error: str | None


@dataclass(frozen=True, slots=True)
class SlotLost:
    """A slot has stopped answering."""

    slot: int
    reason: str


@dataclass(frozen=True, slots=True)
class SourceCut:
    """A source has injected a barrier, and its position there is stored."""

    checkpoint_id: int
    uid: str
    position: StateSnapshot


@dataclass(frozen=True, slots=True)
class CutFailed:
    """A source has injected a barrier, but its position could not be stored."""

    checkpoint_id: int
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class SavepointRefused:
    """A slot cannot take part in a savepoint, so there is no barrier."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """A source cannot go on."""

    uid: str
    summary: str
    details: str
    is_fatal: bool = False
    fault: str = ""
    """Identifies an error of the user's code or data that would repeat; empty for other errors."""


@dataclass(frozen=True, slots=True)
class SourceBacklog:
    """A source begins, or has ended, to read what had gathered before it."""

    uid: str
    is_read: bool


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """A checkpoint is committed. `order` is set for a savepoint that was requested."""

    metadata: CheckpointMetadata
    order: SavepointOrder | None = None

    @property
    def checkpoint_id(self) -> int:
        return self.metadata.checkpoint_id


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A commit failed. If `is_fatal`, this driver has lost the right to commit for good."""

    checkpoint_id: int
    reason: str
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class CancelWanted:
    """Cancellation was requested."""


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """A checkpoint was requested."""


@dataclass(frozen=True, slots=True)
class SavepointWanted:
    """A savepoint was requested. `order` receives the result."""

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
    | SavepointRefused
    | SourceFailed
    | SourceBacklog
    | CheckpointStored
    | StoreFailed
    | CancelWanted
    | CheckpointWanted
    | SavepointWanted
)


class EventQueue:
    """Events that any thread may put, for the one deciding thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[AttemptEvent] = SimpleQueue()

    def put(self, event: AttemptEvent) -> None:
        self._queue.put(event)

    def next(self, timeout_s: float) -> AttemptEvent | None:
        """The next event; None if there was none within the timeout."""
        try:
            return self._queue.get(timeout=max(timeout_s, 0))
        except Empty:
            return None
