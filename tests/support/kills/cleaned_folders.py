"""A job's folder with checkpoints that share files, and processes that clean it."""

from __future__ import annotations

from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    FileHandle,
    JobOwner,
    JobStorage,
    StateSnapshot,
    names,
)
from holdfast.storage.jobs.cleaning import delete_leftovers, find_leftovers
from holdfast.storage.testing.watched_storage import Hook, WatchedStorage


def own(number: int) -> str:
    return names.exclusive_file(number, "slot", "aa")


def shared(number: int) -> str:
    return names.shared_file(number, "slot", "aa")


def document(number: int, *files: str) -> CheckpointMetadata:
    handles = {name: FileHandle(name, 0, 1, "00") for name in files}
    return CheckpointMetadata(
        job_id="job",
        checkpoint_id=number,
        triggered_ms=0,
        completed_ms=0,
        parts={"all": StateSnapshot(kind="t/1", handles={**handles})},
    )


def commit(owner: JobOwner, job: JobStorage, number: int, *borrowed: str) -> None:
    for name in (own(number), shared(number)):
        job.storage.write(f"{job.folder}/{name}", b"x" * 10)
    owner.commit(document(number, own(number), shared(number), *borrowed))


def leave(job: JobStorage, *found: str) -> None:
    for name in found:
        job.storage.write(f"{job.folder}/{name}", b"x")


def there(job: JobStorage) -> set[str]:
    found = (info.name.removeprefix(f"{job.folder}/") for info in job.storage.list(job.folder))
    return {name for name in found if names.parse_owner(name) is None}


def unneeded(job: JobStorage) -> set[str]:
    return {stored.name for stored in find_leftovers(job).unneeded}


def clean(storage: CheckpointStorage, pause: Hook) -> None:
    watched = WatchedStorage(storage)
    job = watched.job("job")
    with watched.asking(pause):
        sum(delete_leftovers(job, find_leftovers(job)))
