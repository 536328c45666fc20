"""A completed checkpoint or savepoint as a place to restore from, found by its path or URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from holdfast.storage import names
from holdfast.storage.errors import Invalid, NotFound
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.jobs.job import JobStorage, job_in
from holdfast.storage.jobs.metadata import SAVED_AT, CheckpointMetadata
from holdfast.storage.jobs.savepoint import SavepointFolder
from holdfast.storage.registry import OpenStorage, load_storage, storage_at
from holdfast.storage.segments.handles import StateSnapshot

__all__ = [
    "RestorePoint",
    "checkpoint_at",
    "checkpoint_of_job",
    "is_checkpoint_path",
    "savepoint_folder",
]

_FOLDER = re.compile(r"(?P<root>.+?)/(?P<job>[^/]+)/chk-(?P<number>\d+)(?:/_metadata)?/?")


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A completed checkpoint or savepoint, and the folder that it is in."""

    metadata: CheckpointMetadata
    folder: JobStorage | SavepointFolder
    named_by: RestorePoint | None = None
    """The checkpoint that stands for it, if it is a savepoint with which a job was to end."""

    def __str__(self) -> str:
        if self.is_savepoint:
            return f"the savepoint at {self.folder.url}"
        return f"checkpoint {self.metadata.checkpoint_id} at {self.folder.url}"

    @property
    def is_savepoint(self) -> bool:
        """Whether it belongs to no job."""
        return isinstance(self.folder, SavepointFolder)

    def number_in(self, job: JobStorage) -> int | None:
        """Its number if it is one of this job's own, whose folder it is in; else None."""
        if not isinstance(self.folder, JobStorage):
            return None
        mine, other = (
            (each.storage.identity, each.job_id)  # whichever way their URLs are spelled
            for each in (job, self.folder)
        )
        return self.metadata.checkpoint_id if mine == other else None

    def operators(self, uids: Iterable[str]) -> dict[str, tuple[StateSnapshot, ...]]:
        """The parts of those of these operators that have left any, by uid."""
        there = self.metadata.operators
        return {uid: there[uid].parts for uid in uids if uid in there}

    @property
    def in_flight(self) -> tuple[StateSnapshot, ...]:
        """Rows that were on the way between operators; see `CheckpointMetadata.in_flight`."""
        return self.metadata.in_flight

    def source(self, uid: str) -> StateSnapshot | None:
        """The position of a source; None if the checkpoint has no such source."""
        return self.metadata.sources.get(uid)


def is_checkpoint_path(path: str) -> bool:
    """Whether a path or URL is taken for that of a checkpoint, and of nothing else."""
    return _FOLDER.fullmatch(path) is not None


def checkpoint_at(
    path: str,
    open_root: Callable[[str], ObjectStorage],
    open_storage: OpenStorage = load_storage,
) -> RestorePoint | None:
    """The checkpoint in whose folder, or to whose `_metadata`, a path or URL leads.

    `open_root` makes the storage in which its job is, `open_storage` others. None if it is not the
    path of a checkpoint.

    Raises:
        NotFound: there is no such checkpoint.
        Corrupt: it is damaged; names the file.
    """
    found = _FOLDER.fullmatch(path)
    if found is None:
        return None
    job = job_in(open_root(found["root"]), found["job"])
    try:
        metadata = job.load(int(found["number"]))
    except NotFound as error:
        raise NotFound(
            f"there is no checkpoint {int(found['number'])} to restore from",
            where=job.url,
            expected=f"one of {', '.join(map(str, job.completed())) or 'none at all'}",
            fix="Look whether the path is right, and whether the checkpoint was deleted",
        ) from error
    return checkpoint_of_job(metadata, job, open_storage)


def checkpoint_of_job(
    metadata: CheckpointMetadata, job: JobStorage, open_storage: OpenStorage
) -> RestorePoint:
    """The restore point of a job's checkpoint, or of the savepoint that it stands for.

    Raises:
        NotFound: that savepoint is not where it was.
    """
    url = metadata.properties.get(SAVED_AT)
    if url is None:
        return RestorePoint(metadata, job)
    folder = savepoint_folder(str(url), job.storage, open_storage)
    try:
        return RestorePoint(folder.load(), folder, named_by=RestorePoint(metadata, job))
    except NotFound as error:
        raise NotFound(
            f"job {job.job_id!r} was stopped with a savepoint, and that is not there any more",
            where=folder.url,
            found=error.found,
            fix="Restore it from where it was moved to; what it has is nowhere else",
        ) from error


def savepoint_folder(url: str, mine: ObjectStorage, open_storage: OpenStorage) -> SavepointFolder:
    """The folder of a savepoint at a URL, of whatever name; `open_storage` is as for `storage_at`.

    Raises:
        Invalid: the storage cannot be opened.
    """
    beneath = url.removeprefix(mine.url_of(""))
    if beneath != url and names.is_legal(beneath):
        return SavepointFolder(mine, beneath)
    above, _, name = url.rpartition("/")
    if above and not above.endswith("/") and names.is_legal(name):
        with suppress(Invalid):  # so that the folder itself can be deleted
            return SavepointFolder(storage_at(above, mine, open_storage), name)
    return SavepointFolder(storage_at(url, mine, open_storage), "")
