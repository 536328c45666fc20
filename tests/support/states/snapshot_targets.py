"""Targets of snapshots for tests, and what a snapshot refers to."""

from __future__ import annotations

from typing import Any

from holdfast.storage import (
    Corrupt,
    FileHandle,
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


class Failing:
    """A target that cannot be written to."""

    def segments(self, *_: Any, **__: Any) -> SegmentWriter:
        raise Corrupt("the disk is on fire")

    shared_segments = segments
    log_segments = segments
    table_file = segments
