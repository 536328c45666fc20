"""What a job may be restored from, and whether that fits the job as it is now."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from holdfast.runtime.plan import JobPlan
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    Invalid,
    JobStorage,
    NotFound,
    StateSnapshot,
    load_storage,
    names,
)

__all__ = [
    "LATEST",
    "OpenStorage",
    "RestorePoint",
    "check_fit",
    "find_restore_point",
    "storage_at",
]

LATEST = "latest"
OpenStorage = Callable[[str], CheckpointStorage]
"""What makes a storage of a root that is not where the job's own is."""
_FOLDER = re.compile(r"(?P<root>.+?)/(?P<job>[^/]+)/chk-(?P<number>\d+)(?:/_metadata)?/?")


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A completed checkpoint, and the folder that it is in."""

    metadata: CheckpointMetadata
    job: JobStorage

    def __str__(self) -> str:
        return f"checkpoint {self.metadata.checkpoint_id} at {self.job.url}"

    def number_in(self, job: JobStorage) -> int | None:
        """Its number if it is one of this job's own, whose folder it is in; else None."""
        mine, other = (
            (each.storage.identity, each.job_id)  # whichever way their URLs are spelled
            for each in (job, self.job)
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
    """The checkpoint that is meant; None to begin anew. `open_storage` is as for `storage_at`.

    Raises:
        Invalid: nothing is meant, though the job has left checkpoints; or this is no checkpoint's
            folder.
        NotFound: there is no such checkpoint.
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
                fix='Pass restore="latest" to go on from it, or begin under another name',
            )
        return None
    if restore == LATEST:
        latest = job.latest()
        return None if latest is None else RestorePoint(latest, job)
    found = _FOLDER.fullmatch(restore)
    if found is None:
        raise Invalid(
            "this is not a checkpoint to restore from",
            expected=f"{LATEST!r}, or a checkpoint's folder: …/job/chk-00000000000000000042",
            found=repr(restore),
        )
    other = storage_at(found["root"], job.storage, open_storage).job(names.unescape(found["job"]))
    try:
        return RestorePoint(other.load(int(found["number"])), other)
    except NotFound as error:
        raise NotFound(
            f"there is no checkpoint {int(found['number'])} to restore from",
            where=other.url,
            expected=f"one of {', '.join(map(str, other.completed())) or 'none at all'}",
            fix="Look whether the path is right, and whether the checkpoint was deleted",
        ) from error


def storage_at(
    root: str, mine: CheckpointStorage, open_storage: OpenStorage = load_storage
) -> CheckpointStorage:
    """The storage of a root: the job's own if that is where it is.

    Else it is made by the settings of that, if they say how to get there, or by `open_storage`.

    Raises:
        Invalid: it cannot be opened.
    """
    if root.rstrip("/") == mine.url.rstrip("/"):
        return mine
    storage = mine.at(root) or open_storage(root)
    return mine if storage.identity == mine.identity else storage


def check_fit(
    point: RestorePoint, plan: JobPlan, sources: Collection[str], *, allow_dropped_state: bool
) -> None:
    """Make sure that nothing of a checkpoint would be lost, or put in the wrong place.

    Raises:
        Invalid: it has state or a position of somebody whom the job does not have any more, or
            another max parallelism.
    """
    metadata = point.metadata
    with_state = {uid for uid, left in metadata.operators.items() if left.parts}
    lost = sorted(with_state - set(plan.operator_uids)) + sorted(
        metadata.sources.keys() - set(sources)
    )
    if lost and not allow_dropped_state:
        raise Invalid(
            f"{point} has state of {', '.join(map(repr, lost))}, which the job does not have",
            expected=f"operators and sources with these uids: {', '.join(map(repr, lost))}",
            found=", ".join(map(repr, (*sources, *plan.operator_uids))),
            fix="Give them back their uids, or pass allow_dropped_state=True to do without",
        )
    for uid, left in sorted(metadata.operators.items()):
        if left.max_parallelism != plan.max_parallelism and uid in plan.operator_uids:
            raise Invalid(
                f"the max parallelism of operator {uid!r} is not that of {point}",
                expected=str(left.max_parallelism),
                found=str(plan.max_parallelism),
                fix=f"Pass max_parallelism={left.max_parallelism}: it says where keys are kept",
            )
