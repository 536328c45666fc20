"""How a run begins: whether there is anything to do, from where, and by what right."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.runtime.driver.restoring import LATEST, RestorePoint, find_restore_point
from holdfast.storage import HoldfastError, JobOwner, JobResult, JobStorage

__all__ = ["Beginning", "begin"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The right to commit the job's checkpoints, and the one that it goes on from, if any."""

    owner: JobOwner
    point: RestorePoint | None


def begin(
    job: JobStorage, restore: str | None, check: Callable[[RestorePoint], None]
) -> Beginning | JobResult:
    """Take a job over from whoever had it; or learn that it has ended.

    Only a job that is to go on (`restore` is "latest") may turn out to have ended: what it had to
    do is done, and it has no checkpoint to go on from. Otherwise it begins again. `check` raises
    when a checkpoint does not fit; then nothing was changed, and the older driver goes on.

    Of a checkpoint of the job itself that is named, the newer ones are deleted: they are of a
    history that was left. A driver that dies before its first own checkpoint would come back with
    the newest of them, and not with what was asked for.

    Raises:
        Invalid, NotFound: as `find_restore_point`; or the storage cannot be written to.
        Corrupt: the checkpoint, or a record in the job's folder, is damaged; names the file.
        Fenced: somebody else took over at the same time.
        Unavailable: the storage did not answer.
    """
    if restore == LATEST:
        ended = job.result()
        if ended is not None:
            _clear(job)
            return ended
    elif restore is None and job.completed() and job.result() is not None:
        job.take_over().clear()
    _point(job, restore, check)  # what cannot be restored must not fence a driver that works
    job.storage.prepare()
    owner = job.take_over(reopen=restore != LATEST)
    if owner.result is not None:  # another driver came to the end meanwhile
        _clear(job)
        return owner.result
    # Likewise it may have completed one more checkpoint, and committed its rows.
    point = _point(job, restore, check)
    own = None if point is None else point.number_in(job)
    if own is not None:
        owner.rewind(own)
    return Beginning(owner, point)


def _point(
    job: JobStorage, restore: str | None, check: Callable[[RestorePoint], None]
) -> RestorePoint | None:
    point = find_restore_point(job, restore)
    if point is not None:
        check(point)
    return point


def _clear(job: JobStorage) -> None:
    """Delete the checkpoints of a job that has ended, if its driver died before it had done so."""
    try:
        if job.completed():
            job.take_over().clear()
    except HoldfastError as error:
        _logger.warning("checkpoints of a job that has ended could not be deleted: %s", error)
