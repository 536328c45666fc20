"""A target of snapshots whose background work waits until it is let go."""

from __future__ import annotations

from threading import Event
from typing import Self

from holdfast.storage import JobStorage, SavepointFolder, SegmentWriter

__all__ = ["WAIT_S", "Gate"]

WAIT_S = 60


class Gate:
    """The target `job`, whose writers wait until `open` is set, at the latest on exit.

    `entered` is set by the first writer that waits.
    """

    def __init__(self, job: JobStorage | SavepointFolder) -> None:
        self.job = job
        self.entered, self.open = Event(), Event()

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        return self._passed().segments(checkpoint_id, label, compression=compression)

    def shared_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        return self._passed().shared_segments(checkpoint_id, label, compression=compression)

    def log_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        return self._passed().log_segments(checkpoint_id, label, compression=compression)

    def table_file(self, checkpoint_id: int, path: str) -> SegmentWriter:
        return self._passed().table_file(checkpoint_id, path)

    def _passed(self) -> JobStorage | SavepointFolder:
        """The job, after the gate was opened."""
        self.entered.set()
        if not self.open.wait(WAIT_S):
            raise AssertionError("a snapshot was waited for before its gate was opened")
        return self.job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
