"""What must be true of a job after its owners were killed: it is whole, and can be cleaned."""

from __future__ import annotations

from holdfast.storage import JobStorage
from holdfast.storage.segments.handles import block_checksum
from holdfast.storage.testing.example_jobs import remove

__all__ = ["check_clean", "check_whole"]


def check_whole(job: JobStorage) -> None:
    """Each checkpoint that `checkpoint_writers.write_checkpoint` wrote can be read as it was."""
    for number in job.completed():
        (part,) = job.load(number).operators["operator"].parts
        sums = [block_checksum(piece) for piece in job.read_all(part.handles.values())]
        assert sums == part.attributes["sums"]


def check_clean(job: JobStorage) -> int:
    """Remove the orphans as a new owner; how many there were. Nothing else may be left."""
    owner = job.take_over()
    orphans = owner.orphans()
    remove(owner, orphans)
    start = len(job.folder) + 1
    left = {info.name[start:] for info in job.storage.list(f"{job.folder}/")}
    needed = {name for number in job.completed() for name in job.load(number).files()}
    commit_points = {f"chk-{number:020d}/_metadata" for number in job.completed()}
    records = {name for name in left if name.startswith(f"owner-{owner.epoch:020d}")}
    assert left == needed | commit_points | records
    assert len(records) == 2
    assert list(job.storage.unfinished(f"{job.folder}/")) == []
    return len(orphans)
