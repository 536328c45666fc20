"""What a job may be restored from, and whether that fits the job as it is now."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from holdfast.backends import state_names
from holdfast.backends.restores import can_be_regrouped
from holdfast.runtime.plan import JobPlan
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    Invalid,
    JobStorage,
    NotFound,
    SavepointFolder,
    StateSnapshot,
    load_storage,
    names,
)
from holdfast.storage.jobs.job import job_in
from holdfast.storage.registry import OpenStorage, storage_at

__all__ = [
    "LATEST",
    "SAVED_AT",
    "RestorePoint",
    "check_fit",
    "checkpoint_at",
    "find_restore_point",
    "is_checkpoint_path",
    "savepoint_folder",
]

LATEST = "latest"
SAVED_AT = "savepoint"
"""The property of a job's own checkpoint that stands for a savepoint, with which the job was to
end: its URL. The checkpoint itself has no state."""
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

    def operators(self, plan: JobPlan) -> dict[str, tuple[StateSnapshot, ...]]:
        """What the job's operators have left, by uid."""
        there = self.metadata.operators
        return {uid: there[uid].parts for uid in plan.operator_uids if uid in there}

    def source(self, uid: str) -> StateSnapshot | None:
        """Where a source was; None if the job had no such source."""
        return self.metadata.sources.get(uid)


def find_restore_point(
    job: JobStorage, restore: str | None, open_storage: OpenStorage = load_storage
) -> RestorePoint | None:
    """The checkpoint or savepoint that is meant; None to begin anew.

    `open_storage` is as for `storage_at`.

    Raises:
        Invalid: nothing is meant, though the job has left checkpoints; or this is no checkpoint's
            folder, and no savepoint's.
        NotFound: there is none.
        Corrupt: it is damaged; names the file.
    """
    if restore is None:
        completed = job.completed()
        if completed:
            raise Invalid(
                f"job {job.job_id!r} has left checkpoints, and was not told what to do with them",
                where=job.url,
                expected="none, or an argument restore",
                found=f"checkpoint {completed[-1]}",
                fix='If it has stopped, pass restore="latest" to go on from it (a run that lives '
                "is fenced then); or begin under another name",
            )
        return None
    if restore == LATEST:
        latest = job.latest()
        return None if latest is None else _own_point(latest, job, open_storage)
    point = checkpoint_at(
        restore, lambda root: storage_at(root, job.storage, open_storage), open_storage
    )
    return point or _savepoint(restore, job, open_storage)


def is_checkpoint_path(path: str) -> bool:
    """Whether a path or URL is taken for that of a checkpoint, and of nothing else."""
    return _FOLDER.fullmatch(path) is not None


def checkpoint_at(
    path: str, open_root: OpenStorage, open_storage: OpenStorage = load_storage
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
    return _own_point(metadata, job, open_storage)


def check_fit(
    point: RestorePoint,
    plan: JobPlan,
    sources: Collection[str],
    *,
    allow_non_restored_state: bool,
) -> None:
    """Make sure that nothing of a checkpoint would be lost, or put in the wrong place.

    Raises:
        Invalid: it has state or a position of somebody whom the job does not have any more, or
            another max parallelism.
    """
    metadata = point.metadata
    with_state = {uid for uid, left in metadata.operators.items() if left.parts}
    operators = sorted(with_state - set(plan.operator_uids))
    positions = sorted(metadata.sources.keys() - set(sources))
    if (operators or positions) and not allow_non_restored_state:
        lost = ", ".join(map(repr, (*operators, *positions)))
        left = [_left_by(uid, metadata) for uid in operators]
        left += [f"the position of source {uid!r}" for uid in positions]
        raise Invalid(
            f"{point} has state of {lost}, which the job does not have: {', '.join(left)}",
            expected=f"operators and sources with these uids: {lost}",
            found=", ".join(map(repr, (*sources, *plan.operator_uids))),
            fix="Give them back their uids, or pass allow_non_restored_state=True to do without",
        )
    for uid, state in sorted(metadata.operators.items()):
        if state.max_parallelism == plan.max_parallelism or uid not in plan.operator_uids:
            continue
        if not all(map(can_be_regrouped, state.parts)):
            raise Invalid(
                f"the max parallelism of operator {uid!r} is not that of {point}",
                expected=str(state.max_parallelism),
                found=str(plan.max_parallelism),
                fix=f"Pass max_parallelism={state.max_parallelism}: it says where keys are kept",
            )


def _left_by(uid: str, metadata: CheckpointMetadata) -> str:
    parts = metadata.operators[uid].parts
    found = dict.fromkeys(name for part in parts for name in state_names(part))
    states = f"state {', '.join(map(repr, found))}" if found else "state"
    return f"{states} of operator {uid!r}"


def _own_point(
    metadata: CheckpointMetadata, job: JobStorage, open_storage: OpenStorage
) -> RestorePoint:
    """What a job's checkpoint is, or the savepoint that it stands for.

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


def _savepoint(restore: str, job: JobStorage, open_storage: OpenStorage) -> RestorePoint:
    path = restore.rstrip("/").removesuffix("/_metadata")
    if "/" not in path:
        raise Invalid(
            "this is not a checkpoint or savepoint to restore from",
            expected=f"{LATEST!r}, the folder of a checkpoint: …/job/chk-00000000000000000042, or "
            "that of a savepoint: …/savepoint-0123ab-0123456789ab",
            found=repr(restore),
        )
    folder = savepoint_folder(path, job.storage, open_storage)
    return RestorePoint(folder.load(), folder)


def savepoint_folder(
    url: str, mine: CheckpointStorage, open_storage: OpenStorage
) -> SavepointFolder:
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
