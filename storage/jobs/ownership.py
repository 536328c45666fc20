"""Ownership of a job: how a process takes it, and checks that it still holds.

The owner alone may commit and delete in the job's folder; the newest claim wins.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.storage import names
from holdfast.storage.errors import Fenced, HoldfastError
from holdfast.storage.jobs.decisions import Created, fenced_by, judge_create, next_epoch
from holdfast.storage.jobs.folder import JobFolder
from holdfast.storage.jobs.owner_records import CLAIM, Claim, JobResult

__all__ = ["Ownership", "Survey", "claim_epoch", "claimed_epochs", "highest_begun", "survey"]

_logger = logging.getLogger(__name__)

# Each attempt is lost to another process that has claimed: so many at once are a mistake.
_CLAIM_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Survey:
    """The facts in a job's folder that count for a take-over."""

    accepted: tuple[int, ...]
    """The checkpoints that count."""
    highest_begun: int
    """The highest number of a checkpoint's own object or of a void one. The function of this name
    also counts shared files and unfinished writes."""
    result: JobResult | None


@dataclass(frozen=True, slots=True)
class Ownership:
    """A claim to a job's folder. It never changes, so any thread may check whether it holds."""

    job: JobFolder
    epoch: int
    token: str

    def record(self, kind: names.RecordKind) -> str:
        """The name of a record of this owner, within the job's folder."""
        return names.owner_record(self.epoch, kind, self.token)

    def check(self) -> None:
        """Make sure that no other process has taken over, and that the claim still exists.

        Raises:
            Fenced: a newer owner has claimed the job, or the claim was deleted.
            Unavailable: the storage did not answer.
        """
        job = self.job
        records = job.owner_records()
        other = fenced_by(self.epoch, claimed_epochs(records))
        if other is None and names.OwnerRecord(self.epoch, self.token, "start") not in records:
            other = 0  # the folder was emptied, and epochs are counted from one again
        if other is None:
            return
        taken_over = other > self.epoch
        raise Fenced(
            f"another process has taken over job {job.job_id!r}"
            if taken_over
            else f"the claim to job {job.job_id!r} has been deleted",
            where=job.url,
            expected=f"owner epoch {self.epoch} to be the newest",
            found=f"epoch {other}" if other else "no record of this owner",
            fix="This process must stop; "
            + ("the newer owner carries on" if taken_over else "take the job over anew"),
        )


def claimed_epochs(records: Iterable[names.OwnerRecord]) -> list[int]:
    """The epochs that are claimed, ascending as the records are."""
    return [record.epoch for record in records if record.token is None]


def survey(job: JobFolder, *, reopen: bool) -> Survey:
    """Read what counts in a job's folder; with `reopen` its result does not count.

    Raises as `JobStorage.take_over` does.
    """
    begun, listed = 0, []
    for found in job.checkpoint_objects():
        begun = max(begun, found.checkpoint_id)
        if found.is_metadata:
            listed.append(found.checkpoint_id)
    start, void = job.begun()
    result = None if reopen else job.result_of(start)
    begun = max(begun, *(numbers[-1] for numbers in void), 0)
    return Survey(job.judged(listed, start, void).completed, begun, result)


def highest_begun(job: JobFolder, found: Survey) -> int:
    """The highest number under which any checkpoint was begun.

    Some checkpoints have left only a shared file or an unfinished write, because their own parts
    were small or not written yet. An owner that reused their numbers would spare their leftovers.

    Raises:
        Unavailable: the storage did not answer.
    """
    begun = max((each.checkpoint_id for each in job.shared_objects()), default=0)
    target_at = len(job.folder) + 1
    try:
        writes = [*job.storage.unfinished(f"{job.folder}/")]
    except HoldfastError as error:  # a user without the right to list these can do all else
        _logger.warning(
            "unfinished writes in %s cannot be listed, so some numbers may be unknown: %s",
            job.url,
            error,
        )
        writes = []
    targets = (names.writer_of(write.target[target_at:]) for write in writes)
    unfinished = max((number for number in targets if number is not None), default=0)
    return max(found.highest_begun, begun, unfinished)


def claim_epoch(job: JobFolder, token: str) -> int:
    """Claim the next epoch, and answer it.

    Raises:
        Fenced: too many processes claim at this moment.
        Unavailable: the storage did not answer.
    """
    storage = job.storage
    for _ in range(_CLAIM_ATTEMPTS):
        claimed = claimed_epochs(job.owner_records())
        epoch = next_epoch(claimed)
        claim = Claim(epoch=epoch, owner=token, claimed_ms=storage.clock.now_ms())
        mine = CLAIM.seal(claim)
        existing = storage.create(job.name_of(names.claim(epoch)), mine)
        if judge_create(mine, existing) is Created.COMMITTED:
            return epoch
    raise Fenced(
        f"too many processes are taking over job {job.job_id!r} at the same time",
        where=job.url,
        expected=f"a free epoch within {_CLAIM_ATTEMPTS} attempts",
        fix="Start one driver for each job",
    )
