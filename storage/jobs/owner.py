"""The owner of a job: the one process that may commit its checkpoints and delete them.

This module reads facts and carries out what `holdfast.storage.jobs.decisions` decides, in the order
that its docstring gives.

A commit whose answer was lost may be complete for every reader. So an owner commits and deletes
nothing else before that commit was repeated and is decided.

A commit checks each file that the checkpoint refers to and has not written itself. A reference to
a file that may be deleted would otherwise be found at a restore, months later.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import msgspec

from holdfast.storage import names
from holdfast.storage.errors import Corrupt, Invalid, Taken
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.jobs.decisions import (
    Created,
    Spared,
    borrowed,
    judge_create,
    open_from,
    plan_retention,
)
from holdfast.storage.jobs.deletion import KnownFiles, Search, Sweeper
from holdfast.storage.jobs.folder import JobFolder
from holdfast.storage.jobs.metadata import METADATA, CheckpointMetadata
from holdfast.storage.jobs.owner_records import HELD, RESULT, START, Held, JobResult, Start
from holdfast.storage.jobs.ownership import Ownership, Survey, claim_epoch, highest_begun, survey
from holdfast.storage.segments.handles import StateSnapshot

__all__ = ["JobOwner"]


class JobOwner:
    """The right to commit, from `JobStorage.take_over`. One thread at a time.

    Every method that changes something raises `Fenced` once a newer owner has claimed the job. The
    caller must then stop, and must not act on the checkpoint that it was about to commit.

    Retention decides here and deletes in `sweeper`: the `release` methods return at once without
    asking the storage, and `sweeper` deletes when its `step` or `run` is called, in any thread. So
    commits do not wait for deletions. A released checkpoint stays completed and whole for every
    reader until its commit point goes or is recorded as void; this owner builds on it no longer.
    """

    def __init__(self, ownership: Ownership, start: Start, found: Survey) -> None:
        self._job = ownership.job
        self._ownership = ownership
        self._completed = set(start.accepted)
        self._known = KnownFiles(ownership.job)
        self._highest = highest_begun(ownership.job, found)
        self._spared = Spared(self._highest + 1)
        self._undecided: bytes | None = None
        """The `_metadata` of a commit whose outcome is unknown."""
        self._result = self._ending = found.result
        """`_ending` may be a result whose write outcome is unknown."""
        self.sweeper = Sweeper(ownership, self._known)
        """Deletes what was released. Safe to use from any thread."""
        self._held: int | None = None

    @classmethod
    def claim(cls, job: JobFolder, *, reopen: bool) -> JobOwner:
        """See `JobStorage.take_over`."""
        storage = job.storage
        storage.prepare()
        # A folder that cannot be read is refused here, before the present owner is fenced.
        survey(job, reopen=reopen)
        job.keep_name()
        token = storage.entropy.token()
        epoch = claim_epoch(job, token)
        found = survey(job, reopen=reopen)
        ownership = Ownership(job, epoch, token)
        start = Start(epoch=epoch, owner=token, accepted=found.accepted)
        if found.result is not None:
            # Copied before the start document: at every moment one record of the result counts.
            storage.create(job.name_of(ownership.record("result")), RESULT.seal(found.result))
        storage.create(job.name_of(ownership.record("start")), START.seal(start))
        ownership.check()
        return cls(ownership, start, found)

    @classmethod
    def resume(cls, job: JobFolder, epoch: int) -> JobOwner:
        """See `JobStorage.resume`."""
        newest, found = job.newest_start(), survey(job, reopen=False)
        token = newest.owner if newest is not None and newest.epoch == epoch else ""
        ownership = Ownership(job, epoch, token)
        # An empty token matches no owner: this also proves that the owner has begun.
        ownership.check()
        return cls(ownership, Start(epoch=epoch, owner=token, accepted=found.accepted), found)

    @property
    def epoch(self) -> int:
        """The number of this claim; a higher one fences it."""
        return self._ownership.epoch

    @property
    def completed(self) -> tuple[int, ...]:
        """The numbers of the completed checkpoints that are kept, ascending."""
        return tuple(sorted(self._completed - self._known.gone))

    @property
    def next_checkpoint_id(self) -> int:
        """A number above every one that this owner or an earlier one has committed or seen."""
        return self._highest + 1

    @property
    def result(self) -> JobResult | None:
        """How the job has ended, by this owner or before it; None while it has not."""
        return self._result

    def check(self) -> None:
        """Make sure that no other process has taken over, and that this owner's claim still exists.

        Raises:
            Fenced: a newer owner has claimed the job, or the claim was deleted.
            Unavailable: the storage did not answer.
        """
        self._ownership.check()

    def is_in(self, job: JobFolder) -> bool:
        """Whether a folder is the one that this owner has claimed, by whatever path it is opened.

        Raises:
            Unavailable: the storage did not answer.
        """
        mine = names.OwnerRecord(self.epoch, self._ownership.token, "start")
        return job.job_id == self._job.job_id and mine in job.owner_records()

    def commit(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Make a checkpoint completed: atomically, once, for good. Answers what was written.

        Every file that it refers to must have been closed before. It must be written for this
        checkpoint, or belong to a completed one that still exists: other files may be deleted. A
        part that says `begun_from` may also refer to shared files that were begun before;
        `decisions` says which.

        After a call that raised `Unavailable` the checkpoint may be completed, for all readers: the
        call must be repeated with the same argument until it is decided, and nothing else can be
        committed before.

        Raises:
            Fenced: a newer owner has taken over; the checkpoint is void, whatever is on disk.
            Taken: an older owner has committed this number too late; go on with
                `next_checkpoint_id`.
            Invalid: the metadata is another job's, or refers to a file that may be deleted; another
                commit is not decided yet, or the job has ended.
            Unavailable: it is not known whether it was committed.
        """
        self._check_own("a checkpoint", metadata.job_id)
        checkpoint_id = metadata.checkpoint_id
        stamped = msgspec.structs.replace(metadata, epoch=self.epoch, owner=self._ownership.token)
        mine = METADATA.seal(stamped)
        self._check_may_write(f"checkpoint {checkpoint_id}", mine, None)
        if self.sweeper.owes_point(checkpoint_id):  # a new commit point would be deleted with it
            raise self._taken(checkpoint_id, "is about to be deleted, or was")
        self.check()
        self._check_kept(stamped)
        self._undecided = mine
        self._highest = max(self._highest, checkpoint_id)
        existing = self._storage.create(self._job.name_of(names.metadata(checkpoint_id)), mine)
        self.check()
        self._undecided = None
        if judge_create(mine, existing) is Created.TAKEN:
            raise self._taken(checkpoint_id, "exists already")
        self._completed.add(checkpoint_id)
        self._known.add(stamped)
        self._spared = self._spared.from_number(open_from(checkpoint_id, stamped.begun_from))
        return stamped

    def end(self, result: JobResult) -> JobResult:
        """Record how the job has ended, durably, once. Answers what was written.

        From then on no owner can commit, unless the job is opened again by `take_over`. Checkpoints
        may be deleted only after this call: a start that finds neither a checkpoint nor a result
        begins anew. After a call that raised `Unavailable` the record may exist, for all readers;
        the call can be repeated with the same argument.

        Raises:
            Fenced: a newer owner has taken over. Whether it knows of this result or not, the job
                goes on under its control: nothing may be deleted.
            Invalid: the result is another job's, another one was recorded, or a commit is not
                decided.
            Unavailable: it is not known whether it was recorded.
        """
        self._check_own("a result", result.job_id)
        stamped = msgspec.structs.replace(result, epoch=self.epoch, owner=self._ownership.token)
        self._check_may_write(f"the result {result.status!r}", None, stamped)
        self.check()
        self._ending = stamped
        self._storage.create(
            self._job.name_of(self._ownership.record("result")), RESULT.seal(stamped)
        )
        self.check()
        self._result = stamped
        return stamped

    def release(self, keep: int, *, since: int | None = None) -> tuple[int, ...]:
        """Give up all but the newest `keep` checkpoints; answers the numbers of those given up.

        Checkpoints from the number `since` on stay as well. A checkpoint in flight builds on a
        completed one and may refer to its files. So `since` is the oldest one that any of them
        builds on, and then no file that will be referred to is deleted, here or as an orphan.

        Raises:
            Invalid: `keep` is below one, or a commit is not decided, so what it needs is not known.
        """
        if keep < 1:
            raise Invalid("retention is out of range", expected="1 or more", found=str(keep))
        kept, dropped = plan_retention(self.completed, keep, since)
        if dropped:
            self._check_decided()
            self._release(dropped, kept)
        return dropped

    def release_one(self, checkpoint_id: int) -> None:
        """Give up one checkpoint. None in flight may build on it: it could not be committed.

        The record of `hold` stays: a later process that finishes the deletion needs it, see
        `release_held`.

        Raises:
            Invalid: the number is not completed, or a commit is not decided.
        """
        self._check_decided()
        self._check_completed(checkpoint_id)
        self._completed.discard(checkpoint_id)
        self.sweeper.drop((checkpoint_id,), kept=self._completed)

    def rewind(self, checkpoint_id: int) -> tuple[int, ...]:
        """Make every checkpoint that is newer than this one void; answers their numbers.

        Their commit points are deleted at once, the newest first, and their files are orphans from
        then on. So neither these checkpoints nor the kept ones need be readable.

        Raises:
            Fenced: a newer owner has taken over; nothing was deleted.
            Unavailable: something could not be deleted; calling again is safe.
        """
        newer = tuple(number for number in self.completed if number > checkpoint_id)
        if newer:
            self.check()
            self.sweeper.void([range(newer[0], newer[-1] + 1)])
            for number in reversed(newer):
                self._storage.delete([self._job.name_of(names.metadata(number))])
                self._completed.discard(number)
                self._known.forget([number])
        return newer

    def release_all(self) -> None:
        """Give up every checkpoint and every orphan; only this owner's records stay.

        Raises:
            Invalid: a commit is not decided.
        """
        self._check_decided()
        self._release(self.completed, ())
        self.release_orphans()

    def orphans(self, *, in_flight: Collection[int] = ()) -> list[str]:
        """Objects and unfinished writes in the job's folder that no completed checkpoint needs.

        `in_flight` are the numbers of files that this owner's slots are writing or have written for
        checkpoints that are not completed: the numbers of checkpoints under way; and all numbers
        from `decisions.open_from` of the newest completed one on, if that says `begun_from`. Other
        files that these refer to belong to completed checkpoints, see `release`, and are no
        orphans. From then on no file of another number can be committed, unless a completed
        checkpoint needs it. Answers names within the job's folder.

        Raises:
            Fenced: a newer owner has taken over, so what is in flight is not known here.
            Corrupt: a completed checkpoint cannot be read, so what it needs is not known.
            Invalid: a commit is not decided, so what it needs is not known.
        """
        self.check()
        found = self.sweeper.orphans(self._search(in_flight))
        return [stored.name for stored in found]

    def release_orphans(self, *, in_flight: Collection[int] = ()) -> None:
        """Have `sweeper` find orphans and delete them; `in_flight` as for `orphans`.

        The search may take place much later, so `in_flight` must also cover the numbers begun until
        then.

        Raises:
            Invalid: a commit is not decided, so what it needs is not known.
        """
        self.sweeper.search(self._search(in_flight))

    def hold(self, metadata: CheckpointMetadata) -> None:
        """Keep the files of a completed checkpoint that is restored, though it may be deleted.

        An older owner that was fenced while it was deleting may still delete the commit point at
        any time. It has not deleted files and will not, since it checks its claim before. But only
        this owner would know which files these are. So until the checkpoint is released a record
        names them, for processes that clean beside this owner. The record comes first, and then a
        check that the checkpoint exists: `cleaning` gives the reason.

        Raises:
            NotFound: it was deleted before; nothing was changed.
            Invalid: it is not completed, or this owner has restored another one.
            Unavailable: the storage did not answer; calling again is safe.
        """
        number = metadata.checkpoint_id
        self._check_completed(number)
        files = tuple(sorted(metadata.files()))
        held = Held(
            epoch=self.epoch, owner=self._ownership.token, checkpoint_id=number, files=files
        )
        mine = HELD.seal(held)
        name = self._job.name_of(self._ownership.record("held"))
        if judge_create(mine, self._storage.create(name, mine)) is Created.TAKEN:
            raise Invalid(
                f"this owner of job {self._job.job_id!r} has restored another checkpoint",
                where=self._storage.url_of(name),
                found=f"checkpoint {number}",
                fix="Take the job over again",
            )
        self._job.read_metadata(number)
        self._known.add(metadata)
        self._held = number

    @property
    def _storage(self) -> ObjectStorage:
        return self._job.storage

    def _check_own(self, what: str, job_id: str) -> None:
        if job_id != self._job.job_id:
            raise Invalid(
                f"{what} belongs to another job",
                where=self._job.url,
                expected=self._job.job_id,
                found=job_id,
            )

    def _check_kept(self, metadata: CheckpointMetadata) -> None:
        """Refuse a checkpoint that refers to a file which may be deleted.

        A checkpoint borrows files from one of the newest. Those that this owner has committed are
        known in memory; of earlier ones only those needed are read, each once.
        """
        number = metadata.checkpoint_id
        missing = frozenset().union(
            *(self._owed_by_completed(part, number) for part in metadata.all_parts())
        )
        for number in reversed(self.completed):
            if not missing:
                return
            with suppress(Corrupt, Invalid):  # no checkpoint can build on one that cannot be read
                missing -= self._known.of(number)
        if missing:
            self.check()  # a newer owner may have deleted what they belong to
            file = min(missing)
            raise Invalid(
                f"checkpoint {metadata.checkpoint_id} of job {self._job.job_id!r} refers to a file "
                "that may be deleted",
                where=f"{self._job.url}/{file}",
                expected=f"files of its own, or of the completed checkpoints {self.completed}, or "
                f"shared ones numbered from {self._spared.first} on, of a part with begun_from",
                found="a file that none of them needs",
                fix="Build on checkpoints that are known to be completed, and retain those; say "
                "begun_from in each part whose writer begins files before their checkpoint",
            )

    def _owed_by_completed(self, part: StateSnapshot, checkpoint_id: int) -> frozenset[str]:
        """The files of a part that exist only as long as a completed checkpoint needs them."""
        found = {file: names.parse_checkpoint_object(file) for file in part.files()}
        writers = {file: names.writer_of(file) for file in found}
        begun_before = {
            file
            for file, each in found.items()
            if part.begun_from is not None
            and each is not None
            and each.shared
            and each.checkpoint_id in self._spared
        }
        return borrowed(writers, checkpoint_id) - begun_before

    def _check_decided(self) -> None:
        """Refuse while a commit is undecided: it may be complete, and need its files."""
        if self._undecided is not None:
            raise Invalid(
                f"a commit of job {self._job.job_id!r} is not decided",
                where=self._job.url,
                fix="Repeat it first",
            )

    def _check_may_write(self, what: str, commit: bytes | None, ending: JobResult | None) -> None:
        """After a commit or an end of unknown outcome only the same one may follow."""
        if self._undecided not in (None, commit):
            raise Invalid(
                f"an earlier commit of job {self._job.job_id!r} is not decided",
                where=self._job.url,
                expected="the same checkpoint again, until it is known what became of it",
                found=what,
            )
        if self._ending not in (None, ending):
            raise Invalid(
                f"job {self._job.job_id!r} has ended",
                where=self._job.url,
                expected=f"nothing after the result {self._ending.status!r}",
                found=what,
                fix="Take it over with reopen=True to begin it again",
            )

    def _taken(self, checkpoint_id: int, why: str) -> Taken:
        return Taken(
            f"checkpoint {checkpoint_id} of job {self._job.job_id!r} {why}",
            where=self._job.url,
            fix=f"Go on with a number from {self.next_checkpoint_id}",
        )

    def _check_completed(self, checkpoint_id: int) -> None:
        if checkpoint_id not in self._completed:
            raise Invalid(
                f"job {self._job.job_id!r} has no completed checkpoint {checkpoint_id}",
                where=self._job.url,
                expected=f"one of {self.completed}",
            )

    def _release(self, dropped: Collection[int], kept: Collection[int]) -> None:
        if self._held in dropped:  # no checkpoint builds on it any more: its files need no record
            self.sweeper.delete_first(self._ownership.record("held"))
        self._completed.difference_update(dropped)
        self.sweeper.drop(dropped, kept=kept)

    def _search(self, in_flight: Collection[int]) -> Search:
        self._check_decided()
        self._spared = self._spared.by(in_flight)
        return Search(completed=frozenset(self._completed), in_flight=in_flight)
