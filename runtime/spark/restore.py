"""Finding the checkpoint that a user wants a job restored from."""

from __future__ import annotations

import re

from holdfast.runtime.driver.restoring import RestorePoint
from holdfast.storage import Invalid, JobStorage, NotFound, load_storage, names

__all__ = ["LATEST", "find_restore_point"]

LATEST = "latest"
_FOLDER = re.compile(r"(?P<root>.+?)/(?P<job>[^/]+)/chk-(?P<number>\d+)(?:/_metadata)?/?")


def find_restore_point(job: JobStorage, restore: str | None) -> RestorePoint | None:
    """The checkpoint that is meant; None to begin anew.

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
    storage = load_storage(found["root"])
    other = storage.job(names.unescape(found["job"]))
    try:
        return RestorePoint(other.load(int(found["number"])), other)
    except NotFound as error:
        raise NotFound(
            f"there is no checkpoint {int(found['number'])} to restore from",
            where=other.url,
            expected=f"one of {', '.join(map(str, other.completed())) or 'none at all'}",
            fix="Look whether the path is right, and whether the checkpoint was deleted",
        ) from error
