"""The golden snapshots in the canonical form: the state of `golden_entries`, as a savepoint has it.

`write_golden` makes the files anew, for a new version of the format only: what a released version
wrote stays as it is.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from golden_entries import CASES, START_MS, fill, job_at, opened
from holdfast.backends import SnapshotForm, StateBackend, load_backend
from holdfast.storage import JobStorage, ManualClock, SegmentWriter, StateSnapshot

GOLDEN = Path(__file__).parents[2] / "golden" / "keyed-parquet-v1"
NAMES = ("int", "class")
"""Two of the cases: keys of one column, and of several."""


class Target:
    """The folder of a savepoint: files have the names that are asked for."""

    def __init__(self, job: JobStorage) -> None:
        self._job = job

    def table_file(self, checkpoint_id: int, path: str) -> SegmentWriter:
        """A file below the folder."""
        del checkpoint_id
        return SegmentWriter(self._job.storage, self._job.folder, path, inline_limit_bytes=0)

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        """None: all is in tables."""
        raise AssertionError(f"{label} of {checkpoint_id} is no table {compression}")

    shared_segments = log_segments = segments


def build(name: str, backend: StateBackend, job: JobStorage) -> StateSnapshot:
    """Write a case's snapshot from nothing."""
    case, clock = CASES[name], ManualClock(START_MS)
    with opened(case, backend, job, clock) as state:
        fill(state, case, clock)
        return state.snapshot(1, Target(job), form=SnapshotForm.CANONICAL).result(60)


def stored(name: str, folder: Path) -> tuple[JobStorage, StateSnapshot]:
    """A golden snapshot, in a job's folder."""
    job = job_at(folder)
    shutil.copytree(GOLDEN / name, folder / "job")
    data = (GOLDEN / f"{name}.json").read_bytes()
    return job, msgspec.json.decode(data, type=StateSnapshot)


def write_golden(folder: Path) -> None:
    """Make the files of this version of the format, with the help of an empty folder."""
    for name in NAMES:
        job = job_at(folder / name)
        snapshot = build(name, load_backend("hashmap"), job)
        shutil.copytree(folder / name / "job", GOLDEN / name)
        document = msgspec.json.format(msgspec.json.encode(snapshot), indent=1)
        (GOLDEN / f"{name}.json").write_bytes(document + b"\n")
