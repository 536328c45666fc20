"""Targets of snapshots for tests, and what a snapshot refers to."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.storage import (
    Corrupt,
    FileHandle,
    JobStorage,
    SavepointFolder,
    SegmentWriter,
    StateSnapshot,
)


def files_of(*snapshots: StateSnapshot) -> set[str]:
    """The names of all files that the snapshots need."""
    return {
        handle.file
        for snapshot in snapshots
        for handle in snapshot.handles.values()
        if isinstance(handle, FileHandle)
    }


class Gate:
    """A target whose writer waits until it is let go."""

    def __init__(self, job: JobStorage | SavepointFolder) -> None:
        self.job = job
        self.entered, self.open = threading.Event(), threading.Event()

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        self._pass()
        return self.job.segments(checkpoint_id, label, compression=compression)

    def shared_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        self._pass()
        return self.job.shared_segments(checkpoint_id, label, compression=compression)

    def log_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        self._pass()
        return self.job.log_segments(checkpoint_id, label, compression=compression)

    def table_file(self, checkpoint_id: int, path: str) -> SegmentWriter:
        self._pass()
        return self.job.table_file(checkpoint_id, path)

    def _pass(self) -> None:
        self.entered.set()
        assert self.open.wait(30)


class Failing:
    """A target that cannot be written to."""

    def segments(self, *_: Any, **__: Any) -> SegmentWriter:
        raise Corrupt("the disk is on fire")

    shared_segments = segments
    log_segments = segments
    table_file = segments
