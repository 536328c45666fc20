"""Jobs with checkpoints, for the clauses about the commit protocol on top of a storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from holdfast.storage import names
from holdfast.storage.errors import Fenced, HoldfastError
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.jobs.job import JobStorage
from holdfast.storage.jobs.metadata import CheckpointMetadata, OperatorState
from holdfast.storage.jobs.owner import JobOwner
from holdfast.storage.jobs.owner_records import JobResult
from holdfast.storage.segments.handles import FileHandle, Handle, StateSnapshot
from holdfast.storage.segments.writer import SegmentWriter
from holdfast.storage.testing.call_orders import Caller, Order, pausing
from holdfast.storage.testing.checks import names_in, pattern, require, same
from holdfast.storage.testing.watched_storage import Call, Hook, WatchedStorage

__all__ = [
    "an_owner",
    "build_on",
    "checkpoint",
    "clear",
    "commit",
    "delete",
    "document",
    "ending",
    "exclusive_segments",
    "files_kept",
    "handles_of",
    "has_only",
    "is_fair",
    "is_whole",
    "metadata_name",
    "once",
    "remove",
    "retain",
    "shared_of",
    "taking_over",
    "without_owners",
    "write_files",
]

_SIZES = {"empty": 0, "short": 300, "long": 9000}


def document(
    job: JobStorage, number: int, handles: Mapping[str, Handle] | None = None
) -> CheckpointMetadata:
    """The metadata of a checkpoint of this number."""
    part = StateSnapshot(kind="conformance", handles=dict(handles or {}))
    return CheckpointMetadata(
        job_id=job.job_id,
        checkpoint_id=number,
        triggered_ms=number,
        completed_ms=number + 1,
        operators={"operator": OperatorState(parallelism=1, max_parallelism=8, parts=(part,))},
    )


def ending(job: JobStorage, status: str = "finished") -> JobResult:
    """A result of a job."""
    return JobResult(job_id=job.job_id, status=status, ended_ms=7, properties={"attempts": 1})


def write_files(job: JobStorage, number: int) -> dict[str, Handle]:
    """A file that the checkpoint owns and a shared one; inline in a storage that keeps no files.

    The handles are named for what they hold and for the checkpoint that wrote it.
    """
    handles: dict[str, Handle] = {}
    with exclusive_segments(job, number) as exclusive, job.shared_segments(number) as shared:
        for label in _SIZES:
            handles[f"{label}-{number}"] = exclusive.add(_content(label, number))
            handles[f"shared {label}-{number}"] = shared.add(_content(label, number))
    return handles


def exclusive_segments(job: JobStorage, number: int, *, compression: str = "") -> SegmentWriter:
    """As `JobStorage.segments`, but never inline where the storage keeps files."""
    file = names.exclusive_file(number, "slot", job.storage.entropy.token())
    return SegmentWriter(
        job.storage, job.folder, file, inline_limit_bytes=0, compression=compression
    )


def commit(owner: JobOwner, job: JobStorage, number: int) -> CheckpointMetadata:
    """A checkpoint without state, committed."""
    return owner.commit(document(job, number))


def checkpoint(owner: JobOwner, job: JobStorage, number: int) -> CheckpointMetadata:
    """A checkpoint with files, committed."""
    return owner.commit(document(job, number, write_files(job, number)))


def build_on(
    owner: JobOwner, job: JobStorage, number: int, base: CheckpointMetadata
) -> CheckpointMetadata:
    """A checkpoint with files of its own and the shared ones of another, committed."""
    return owner.commit(document(job, number, {**write_files(job, number), **shared_of(base)}))


def retain(owner: JobOwner, keep: int, *, since: int | None = None) -> tuple[int, ...]:
    """Release all but the newest, and delete them now; the numbers that were released."""
    dropped = owner.release(keep, since=since)
    owner.sweeper.run()
    return dropped


def delete(owner: JobOwner, number: int) -> None:
    """Release one checkpoint, and delete it now."""
    owner.release_one(number)
    owner.sweeper.run()


def clear(owner: JobOwner) -> None:
    """Release all checkpoints, and delete now what only they need."""
    owner.release_all()
    owner.sweeper.run()


def remove(owner: JobOwner, orphans: Iterable[str]) -> None:
    """Delete orphans now, by the names that `JobOwner.orphans` answered."""
    owner.check()
    owner.sweeper.delete(orphans)
    owner.sweeper.run()


def taking_over(storage: ObjectStorage, job: JobStorage) -> Caller:
    """A caller for `orders` that takes a job over."""
    watched = WatchedStorage(storage)
    return pausing(watched, watched.job(job.job_id).take_over)


def an_owner(outcome: object, order: Order) -> JobOwner:
    """The owner that a take-over has made; fails if it was refused."""
    if not isinstance(outcome, JobOwner):
        raise AssertionError(f"the newer owner must own the job in {order}: {outcome!r}")
    return outcome


def is_fair(retained: object, job: JobStorage, order: Order) -> None:
    """Fail unless an owner beside a newer one has deleted checkpoint 1 and kept 2, or was fenced.

    All that is completed then must be whole.
    """
    fair = retained == (1,) or isinstance(retained, Fenced)
    require(fair, f"retention must end or be fenced in {order}: {retained!r}")
    completed = job.completed()
    require(2 in completed, f"the newest checkpoint must stay in {order}: {completed}")
    is_whole(job, completed, f"after {order}")


def handles_of(metadata: CheckpointMetadata) -> dict[str, Handle]:
    """The handles of a `document`."""
    return metadata.operators["operator"].parts[0].handles


def shared_of(metadata: CheckpointMetadata) -> dict[str, Handle]:
    """The handles of a `document` in shared files, its own and others'."""
    found = handles_of(metadata).items()
    return {
        name: handle
        for name, handle in found
        if isinstance(handle, FileHandle) and name.startswith("shared")
    }


def has_only(job: JobStorage, kept: Iterable[CheckpointMetadata], what: str) -> None:
    """Fail unless just these checkpoints and the files that they need are there."""
    needed: set[str] = set()
    for metadata in kept:
        needed |= {names.metadata(metadata.checkpoint_id), *metadata.files()}
    same(files_kept(job), sorted(needed), f"the files that are there {what}")


def is_whole(job: JobStorage, numbers: Iterable[int], what: str) -> None:
    """Fail unless each checkpoint can be loaded, and every byte of its state be read."""
    for number in numbers:
        try:
            for name, handle in handles_of(job.load(number)).items():
                label, _, writer = name.removeprefix("shared ").partition("-")
                same(job.read(handle), _content(label, int(writer)), f"{what}: {name} in {number}")
        except HoldfastError as error:
            raise AssertionError(f"{what}: checkpoint {number} is not whole: {error}") from error


def metadata_name(job: JobStorage, number: int) -> str:
    """The commit point of a checkpoint, as the storage knows it."""
    return f"{job.folder}/{names.metadata(number)}"


def files_kept(job: JobStorage) -> list[str]:
    """Every object in the job's folder, by its name there, without the records of owners."""
    found = names_in(job.storage, f"{job.folder}/")
    return without_owners(name.removeprefix(f"{job.folder}/") for name in found)


def without_owners(found: Iterable[str]) -> list[str]:
    """The names that are no owner's records. Those of earlier owners are orphans, rightly."""
    return sorted(name for name in found if names.parse_owner(name) is None)


def once(verb: str, part_of_name: str, action: Callable[[], object]) -> Hook:
    """A hook that acts at the first call of this kind, while the caller waits."""
    left = [action]

    def act(call: Call) -> None:
        if left and call.verb == verb and part_of_name in call.name:
            left.pop()()

    return act


def _content(label: str, number: int) -> bytes:
    return pattern(_SIZES[label.removeprefix("shared ")], f"{label} {number}")
