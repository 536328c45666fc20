"""How a run begins: takes the job over, finds its restore point, and claims checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.backends.snapshots.in_flight import in_flight_parts
from holdfast.runtime.driver.claiming import (
    CLAIM,
    NO_CLAIM,
    Claimed,
    ClaimedSavepoint,
    claim,
    claimed_before,
    delete_claimed,
    handed_on,
)
from holdfast.runtime.driver.restoring import LATEST, find_restore_point, without_in_flight
from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    HoldfastError,
    Invalid,
    JobOwner,
    JobResult,
    JobStorage,
    load_storage,
)
from holdfast.storage.options.checks import check_choice
from holdfast.storage.registry import OpenStorage
from holdfast.storage.restore_points import RestorePoint

__all__ = ["Beginning", "begin", "ignoring_rows_in_flight"]

_logger = logging.getLogger(__name__)
_ClaimedBy = Callable[[JobResult | CheckpointMetadata], tuple[Claimed, ...]]
"""What a document of the job says of checkpoints of others."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The right to commit the job's checkpoints, and the one that it goes on from, if any."""

    owner: JobOwner
    point: RestorePoint | None
    claimed: tuple[Claimed, ...] = ()
    """Other jobs' checkpoints that are this job's to delete, now or since an earlier run."""
    losses: tuple[str, ...] = ()
    """What of the checkpoint is not restored, because the user has said so."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of it."""
        if self.point is None:
            return ()
        notes = [f"restored from {self.point}"]
        now = "is this job's now, and deleted when it is not retained"
        notes += (f"{each} {now}" for each in self.claimed)
        return tuple(notes)


def begin(
    job: JobStorage,
    restore: str | None,
    check: Callable[[RestorePoint], None],
    *,
    claim_mode: str | None = None,
    open_storage: OpenStorage = load_storage,
) -> Beginning | JobResult:
    """Take a job over from its previous run; or return the result if it has ended.

    Only a job that is to go on (`restore` is "latest") may turn out to have ended: what it had to
    do is done, and it has no checkpoint to go on from. Otherwise it begins again. `check` raises
    when a checkpoint does not fit; then nothing was changed, and the older driver goes on.

    A checkpoint of another job is only read, and stays that job's, unless it is claimed: then the
    runs of that job are fenced before anything is restored, and it is deleted as if it were the
    oldest of this job's own. So is what that job itself had claimed and not deleted yet. Of a
    checkpoint of the job itself, which needs no claim, the newer ones are deleted.

    `open_storage` makes a storage of a root that the job's own does not know the way to.

    Raises:
        Invalid, NotFound: as `find_restore_point`; or the storage cannot be written to; or the
            claim mode is no such, or cannot be kept to; or what is restored has just been deleted.
        Corrupt: the checkpoint, or a record in the job's folder, is damaged; names the file.
        Fenced: another run took over at the same time.
        Unavailable: the storage did not answer.
    """
    _check_claim_mode(claim_mode, restore)

    def claimed_by(said: JobResult | CheckpointMetadata) -> tuple[Claimed, ...]:
        return claimed_before(said.properties, job, open_storage)

    if restore == LATEST:
        ended = job.result()
        if ended is not None:
            _clear(job, ended, claimed_by)
            return ended
    elif restore is None and job.completed() and job.result() is not None:
        _delete_all(job)
    # What cannot be restored must not fence one that works.
    first = _point(job, restore, check, open_storage)
    _check_claim(job, first, claim_mode)
    if first is not None and claim_mode == CLAIM:
        claimed_before(first.metadata.properties, first.folder, open_storage)
    job.storage.prepare()
    # Before the take-over, which makes the record of the job's end void: nothing else lists these.
    owed = () if restore == LATEST else _delete_claimed_of_ended(job, claimed_by, but=first)
    owner = job.take_over(reopen=restore != LATEST)
    if owner.result is not None:  # another driver came to the end meanwhile
        _clear(job, owner.result, claimed_by)
        return owner.result
    # Likewise it may have completed one more checkpoint, and committed its rows.
    point = _point(job, restore, check, open_storage)
    if point is None:
        return Beginning(owner, None, owed)
    point = _seen_as_own(point, owner, job, claim_mode)
    named = point.named_by or point
    if (own := named.number_in(job)) is not None:
        owner.hold(named.metadata)
        # Newer ones are of a history that was left: a driver that dies before its first own
        # checkpoint would come back with the newest of them, and not with what was asked for.
        owner.rewind(own)
        owed += claimed_by(named.metadata)
    elif claim_mode == CLAIM:  # with what its job has claimed: that job deletes it no more
        before = claimed_before(point.metadata.properties, point.folder, open_storage)
        owed += (_claim(owner, point, job), *handed_on(before, job))
    return Beginning(owner, point, _newest_of_each(owed))


def ignoring_rows_in_flight(
    beginning: Beginning | JobResult, number: int | None, plan: JobPlan
) -> Beginning | JobResult:
    """Leave out rows in flight of the checkpoint with this number, if it is restored.

    Those of another one to inputs that the job does not have are lost, if that is allowed. What is
    lost is noted.
    """
    if isinstance(beginning, JobResult):
        return beginning
    point = beginning.point
    if point is not None and point.metadata.checkpoint_id == number:
        rows = sum(each.rows for each in in_flight_parts(point.in_flight))
        note = f"{rows} rows in flight of {point} are lost, as ignore_in_flight_of={number} says"
        return replace(beginning, point=without_in_flight(point, number), losses=(note,))
    losses = () if point is None else _rows_without_input(point, plan)
    if number is not None:
        restored = "nothing is restored" if point is None else f"{point} is restored"
        losses = (f"ignore_in_flight_of={number} has no effect: {restored}", *losses)
    return replace(beginning, losses=losses)


def _rows_without_input(point: RestorePoint, plan: JobPlan) -> tuple[str, ...]:
    there = {edge.edge_id for edge in plan.edges}
    rows: dict[str, int] = {}
    for each in in_flight_parts(point.in_flight):
        if each.about.edge not in there:
            rows[each.about.edge] = rows.get(each.about.edge, 0) + each.rows
    notes = []
    for edge, count in sorted(rows.items()):
        uid, _, place = edge.rpartition("/")
        notes.append(
            f"{count} rows in flight of {point} to input {place} of operator {uid!r}, which the "
            "job does not have, are lost, as allow_non_restored_state=True says"
        )
    return tuple(notes)


def _check_claim_mode(claim_mode: str | None, restore: str | None) -> None:
    if claim_mode is None:
        return
    check_choice(claim_mode, (CLAIM, NO_CLAIM), name="claim_mode")
    if restore is None:
        raise Invalid(
            "a claim mode says what becomes of the checkpoint that is restored, and none is",
            expected="an argument restore",
            found=f"claim_mode {claim_mode!r} alone",
            fix="Leave claim_mode out, or name a checkpoint by restore",
        )
    if restore == LATEST and claim_mode == NO_CLAIM:
        raise _is_own("the latest checkpoint of a job")


def _check_claim(job: JobStorage, point: RestorePoint | None, claim_mode: str | None) -> None:
    if point is None:
        return
    if claim_mode == NO_CLAIM and point.number_in(job) is not None:
        raise _is_own(str(point))


def _is_own(what: str) -> Invalid:
    return Invalid(
        f"{what} is its own, and cannot be left to another",
        expected=f"claim_mode {CLAIM!r}, or none: it goes when it is not retained any more",
        found=f"{NO_CLAIM!r}, by which only its owner deletes what is restored",
        fix="Leave claim_mode out, or, so that it stays, restore it in a job of another name",
    )


def _seen_as_own(
    point: RestorePoint, owner: JobOwner, job: JobStorage, claim_mode: str | None
) -> RestorePoint:
    """The job's own checkpoint, if a path of which no storage can know it leads to its folder."""
    folder = point.folder
    if not isinstance(folder, JobStorage):
        return point
    is_own = point.number_in(job) is None and owner.is_in(folder)
    if is_own and claim_mode == NO_CLAIM:
        raise _is_own(str(point))
    return RestorePoint(point.metadata, job) if is_own else point


def _claim(owner: JobOwner, point: RestorePoint, job: JobStorage) -> Claimed:
    claimed = claim(point, job)
    owner.check()  # this job may have been taken over while the other one was claimed
    return claimed


def _newest_of_each(claims: tuple[Claimed, ...]) -> tuple[Claimed, ...]:
    """Of those that are of the same checkpoint the newest: it has fenced the others."""
    newest: dict[str, Claimed] = {}
    for each in claims:
        if str(each) not in newest or each.epoch > newest[str(each)].epoch:
            newest[str(each)] = each
    return tuple(newest.values())


def _point(
    job: JobStorage,
    restore: str | None,
    check: Callable[[RestorePoint], None],
    open_storage: OpenStorage,
) -> RestorePoint | None:
    point = find_restore_point(job, restore, open_storage)
    if point is not None:
        check(point)
    return point


def _delete_all(job: JobStorage) -> None:
    owner = job.take_over()
    owner.release_all()
    owner.sweeper.run()


def _clear(job: JobStorage, ended: JobResult, claimed_by: _ClaimedBy) -> None:
    """Delete what a job that has ended had left, if its driver died before it had done so."""
    try:
        if job.completed():
            _delete_all(job)
    except HoldfastError as error:
        _logger.warning("checkpoints of a job that has ended could not be deleted: %s", error)
    try:
        delete_claimed(claimed_by(ended))
    except HoldfastError as error:
        _logger.warning("what a job that has ended had claimed could not be deleted: %s", error)


def _delete_claimed_of_ended(
    job: JobStorage, claimed_by: _ClaimedBy, *, but: RestorePoint | None
) -> tuple[Claimed, ...]:
    """Delete what a job had claimed that has ended and is opened again; answers what is left.

    What is restored now is left alone, and not among these. A record that
    cannot be read does not prevent the job from being opened.
    """
    try:
        ended = job.result()
        claims = () if ended is None else claimed_by(ended)
        return delete_claimed(each for each in claims if but is None or not _is_of(each, but))
    except (Corrupt, Invalid) as error:
        _logger.warning("what a job that has ended had claimed is not known: %s", error)
        return ()


def _is_of(claimed: Claimed, point: RestorePoint) -> bool:
    """Whether this is the checkpoint that is restored, or may be: there may be two paths to it.

    Claims bear tokens, so the same records are in the same folder, or in a copy of it.
    """
    folder = point.folder
    if isinstance(claimed, ClaimedSavepoint) or not isinstance(folder, JobStorage):
        return isinstance(claimed, ClaimedSavepoint) and claimed.is_same(folder, point.metadata)
    if point.number_in(claimed.job) == claimed.checkpoint_id:
        return True
    is_like = (claimed.job.job_id, claimed.checkpoint_id) == (
        folder.job_id,
        point.metadata.checkpoint_id,
    )
    return is_like and claimed.job.owner_records() == folder.owner_records()
