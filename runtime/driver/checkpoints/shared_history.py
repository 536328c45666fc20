"""The history of a job's checkpoints, for the driver's thread and for all who ask."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from holdfast.runtime.checkpoint import Abort, Begin, CheckpointHistory, CheckpointOverview
from holdfast.runtime.protocol.checkpoints import SlotStatistics

__all__ = ["SharedHistory"]


class SharedHistory(CheckpointHistory):
    """A `CheckpointHistory` that is safe to use from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def overview(self) -> CheckpointOverview:
        with self._lock:
            return super().overview()

    def begun(self, begun: Begin) -> None:
        with self._lock:
            super().begun(begun)

    def answered(
        self,
        checkpoint_id: int,
        *,
        size_bytes: int,
        written_bytes: int,
        slots: Mapping[int, SlotStatistics],
    ) -> None:
        with self._lock:
            super().answered(
                checkpoint_id, size_bytes=size_bytes, written_bytes=written_bytes, slots=slots
            )

    def storing(self, checkpoint_id: int) -> None:
        with self._lock:
            super().storing(checkpoint_id)

    def completed(self, checkpoint_id: int, now_ms: int) -> None:
        with self._lock:
            super().completed(checkpoint_id, now_ms)

    def aborted(self, abort: Abort, now_ms: int) -> None:
        with self._lock:
            super().aborted(abort, now_ms)
