"""Decisions about checkpoints of a running job: when to begin, complete or abort one.

It imports `protocol`, `api` and `columns`, does no I/O and has no threads.
"""

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
from holdfast.runtime.checkpoint.savepoint_orders import (
    SavepointOrder,
    SavepointPurpose,
    SavepointRequest,
)
from holdfast.runtime.checkpoint.statistics import (
    CheckpointCounts,
    CheckpointHistory,
    CheckpointOverview,
    CheckpointStatistics,
    CheckpointStatus,
)

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
    "SavepointOrder",
    "SavepointPurpose",
    "SavepointRequest",
    "Store",
    "Trigger",
]
