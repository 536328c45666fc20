"""Checkpoints of a running job: when to begin one, what is known of it, and when it is complete."""

from holdfast.runtime.checkpoint.commands import (
    Abort,
    AbortReason,
    Begin,
    Command,
    FailJob,
    Notify,
    Retain,
    Store,
    Trigger,
)
from holdfast.runtime.checkpoint.coordinator import CheckpointCoordinator
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.checkpoint.statistics import (
    CheckpointCounts,
    CheckpointHistory,
    CheckpointOverview,
    CheckpointStatistics,
    CheckpointStatus,
)
from holdfast.runtime.protocol.checkpoints import SavepointFormat, SlotStatistics

__all__ = [
    "Abort",
    "AbortReason",
    "Begin",
    "CheckpointCoordinator",
    "CheckpointCounts",
    "CheckpointHistory",
    "CheckpointOverview",
    "CheckpointStatistics",
    "CheckpointStatus",
    "Command",
    "FailJob",
    "Notify",
    "Retain",
    "SavepointFormat",
    "SavepointOrder",
    "SavepointPurpose",
    "SlotStatistics",
    "Store",
    "Trigger",
]
