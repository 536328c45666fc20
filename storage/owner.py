"""The owner of a job: the one process that may commit its checkpoints and delete them.

This module reads facts and carries out what `holdfast.storage.commit` decides, in the order that
its docstring gives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from holdfast.storage import names
from holdfast.storage.commit import (
    Claim,
    Created,
    Facts,
    Start,
    Stored,
    borrowed,
    fenced_by,
    is_orphan,
    judge_create,
    next_epoch,
    plan_retention,
)
from holdfast.storage.envelope import seal
from holdfast.storage.errors import Corrupt, Fenced, Invalid, NotFound, Taken
from holdfast.storage.metadata import CheckpointMetadata, encode_metadata
from holdfast.storage.result import JobResult, encode_result

if TYPE_CHECKING:
    from holdfast.storage.interface import CheckpointStorage
    from holdfast.storage.job import JobStorage

__all__ = ["START_VERSION", "JobOwner"]

_CLAIM_VERSION = 1
START_VERSION = 1
_CLAIM_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class _Survey:
    """What is in a job's folder."""

    accepted: tuple[int, ...]
    """The checkpoints that count."""
    highest_begun: int
    """The highest number that anybody has begun."""
    result: JobResult | None


class JobOwner:
    """The right to commit, from `JobStorage.take_over`. One thread at a time.

    Every method that changes something raises `Fenced` once a newer owner has claimed the job;
    whoever gets it must stop, and must not act on the checkpoint that it was about to commit.
    """

    def __init__(
        self,
        job: JobStorage,
        token: str,
        start: Start,
        found: _Survey,
    ) -> None:
        self._job = job
        self._token = token
        self._start = start
        self._completed = set(start.accepted)
        self._files: dict[int, frozenset[str]] = {}
        self._highest = found.highest_begun
        self._undecided: bytes | None = None
        """The `_metadata` of a commit of which it is not known whether it took effect."""
        self._result = self._ending = found.result
        """`_ending` is one of which it may not be known whether it was recorded."""

    @classmethod
    def claim(cls, job: JobStorage, *, reopen: bool) -> JobOwner:
        """See `JobStorage.take_over`."""
        storage = job.storage
        storage.prepare()
        _survey(job, reopen=reopen)  # what cannot be read must not fence the owner that there is
        token = storage.entropy.token()
        epoch = _claim_epoch(job, token)
        found = _survey(job, reopen=reopen)
        start = Start(epoch=epoch, owner=token, accepted=found.accepted)
        if found.result is not None:  # kept before its owner is superseded: it counts at any moment
            storage.create(
                f"{job.folder}/{names.result(epoch, token)}", encode_result(found.result)
            )
        storage.create(
            f"{job.folder}/{names.start(epoch, token)}", seal("owner start", START_VERSION, start)
        )
        owner = cls(job, token, start, found)
        owner.check()
        return owner

    @property
    def epoch(self) -> int:
        """The number of this claim; a higher one fences it."""
        return self._start.epoch

    @property
    def completed(self) -> tuple[int, ...]:
        """The numbers of the completed checkpoints that are still there, ascending."""
        return tuple(sorted(self._completed))

    @property
    def next_checkpoint_id(self) -> int:
        """A number above every one that this owner or an earlier one has committed or met."""
        return self._highest + 1

    @property
    def result(self) -> JobResult | None:
        """How the job has ended, by this owner or before it; None while it has not."""
        return self._result

    def check(self) -> None:
        """Make sure that nobody has taken over, and that this owner's claim is still there.

        Raises:
            Fenced: it is not so.
            Unavailable: the storage did not answer.
        """
        records = self._job.owner_records()
        other = fenced_by(self.epoch, _claimed(records))
        if other is None and names.OwnerRecord(self.epoch, self._token) not in records:
            other = 0  # the folder was emptied, and somebody counts epochs from one again
        if other is None:
            return
        taken_over = other > self.epoch
        raise Fenced(
            f"another process has taken over job {self._job.job_id!r}"
            if taken_over
            else f"the claim to job {self._job.job_id!r} has been deleted",
            where=self._job.url,
            expected=f"owner epoch {self.epoch} to be the newest",
            found=f"epoch {other}" if other else "no record of this owner",
            fix="This process must stop; "
            + ("the newer owner carries on" if taken_over else "take the job over anew"),
        )

    def commit(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Make a checkpoint completed: atomically, once, for good. Answers what was written.

        Every file it refers to must have been closed before, and be written for this checkpoint, or
        belong to one that is completed and still there: others may be deleted.

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
        stamped = msgspec.structs.replace(metadata, epoch=self.epoch, owner=self._token)
        mine = encode_metadata(stamped)
        self._check_may_write(f"checkpoint {checkpoint_id}", mine, None)
        self.check()
        self._check_kept(stamped)
        self._undecided = mine
        self._highest = max(self._highest, checkpoint_id)
        existing = self._storage.create(f"{self._job.folder}/{names.metadata(checkpoint_id)}", mine)
        self.check()
        self._undecided = None
        if judge_create(mine, existing) is Created.TAKEN:
            raise Taken(
                f"checkpoint {checkpoint_id} of job {self._job.job_id!r} exists already",
                where=self._job.url,
                fix=f"Go on with a number from {self.next_checkpoint_id}",
            )
        self._completed.add(checkpoint_id)
        self._files[checkpoint_id] = stamped.files()
        return stamped

    def end(self, result: JobResult) -> JobResult:
        """Record how the job has ended, durably, once. Answers what was written.

        From then on nobody can commit, unless the job is opened again by `take_over`. What it
        has left may be deleted only after this call: who finds neither a checkpoint nor a result
        begins anew. After one that raised `Unavailable` the record may be there, for all readers;
        it can be repeated with the same argument.

        Raises:
            Fenced: a newer owner has taken over. It knows of this result or does not, and the job
                goes on in its hands: nothing may be deleted.
            Invalid: the result is another job's, another one was recorded, or a commit is not
                decided.
            Unavailable: it is not known whether it was recorded.
        """
        self._check_own("a result", result.job_id)
        stamped = msgspec.structs.replace(result, epoch=self.epoch, owner=self._token)
        self._check_may_write(f"the result {result.status!r}", None, stamped)
        self.check()
        self._ending = stamped
        name = names.result(self.epoch, self._token)
        self._storage.create(f"{self._job.folder}/{name}", encode_result(stamped))
        self.check()
        self._result = stamped
        return stamped

    def retain(self, keep: int, *, since: int | None = None) -> tuple[int, ...]:
        """Delete all but the newest `keep` checkpoints; answers the numbers of those deleted.

        Those from the number `since` on stay as well. A checkpoint in flight builds on a completed
        one: it may refer to the files of that. So `since` is the oldest one that any of them
        builds on, and then no file that will be referred to is deleted, here or as an orphan.

        Raises:
            Invalid: `keep` is below one, or a commit is not decided, so what it needs is not known.
            Fenced: a newer owner has taken over; nothing was deleted.
            Corrupt: a checkpoint that would be kept cannot be read, so what it needs is not known;
                nothing was deleted.
            Unavailable: something could not be deleted; it will be found as an orphan.
        """
        if keep < 1:
            raise Invalid("retention is out of range", expected="1 or more", found=str(keep))
        _, dropped = plan_retention(self._completed, keep, since)
        self._drop(dropped)
        return dropped

    def delete(self, checkpoint_id: int) -> None:
        """Delete one checkpoint and the files that no other one needs.

        None in flight may build on it: it could not be committed.

        Raises as `retain` does; a number that is not completed is an `Invalid`.
        """
        if checkpoint_id not in self._completed:
            raise Invalid(
                f"job {self._job.job_id!r} has no completed checkpoint {checkpoint_id}",
                where=self._job.url,
                expected=f"one of {self.completed}",
            )
        self._drop((checkpoint_id,))

    def rewind(self, checkpoint_id: int) -> tuple[int, ...]:
        """Make every checkpoint that is newer than this one void; answers their numbers.

        Their commit points are deleted, the newest first, and their files are orphans from then
        on. So neither they nor those that are kept need be readable.

        Raises:
            Fenced: a newer owner has taken over; nothing was deleted.
            Unavailable: something could not be deleted; calling again is safe.
        """
        newer = tuple(number for number in self.completed if number > checkpoint_id)
        if newer:
            self.check()
            folder = self._job.folder
            for number in reversed(newer):
                self._storage.delete([f"{folder}/{names.metadata(number)}"])
                self._completed.discard(number)
                self._files.pop(number, None)
        return newer

    def clear(self) -> None:
        """Delete every checkpoint and all that nobody needs; only this owner's records stay.

        Raises as `retain` does; calling again goes on where it ended.
        """
        self._drop(self.completed)
        self.remove(self.orphans())

    def orphans(self, *, in_flight: Collection[int] = ()) -> list[str]:
        """Objects and unfinished writes in the job's folder that no completed checkpoint needs.

        `in_flight` are the numbers of the checkpoints that this owner's slots are writing now. What
        these refer to besides their own files is a completed one's, see `retain`, and no orphan.
        Answers names within the job's folder, for `remove`.

        Raises:
            Fenced: a newer owner has taken over, so what is in flight is not known here.
            Corrupt: a completed checkpoint cannot be read, so what it needs is not known.
            Invalid: a commit is not decided, so what it needs is not known.
        """
        self.check()
        self._check_decided()
        self._learn_files(self._completed)
        facts = Facts(
            epoch=self.epoch,
            completed=self._completed,
            referenced=self._referenced(self._completed),
            in_flight=in_flight,
        )
        return [stored.name for stored in self._everything() if is_orphan(stored, facts)]

    def remove(self, orphans: Iterable[str]) -> None:
        """Delete what `orphans` answered.

        Raises:
            Fenced: a newer owner has taken over; nothing was deleted.
            Unavailable: something could not be deleted; ask for the orphans again.
        """
        self.check()
        self._storage.delete(f"{self._job.folder}/{name}" for name in orphans)

    @property
    def _storage(self) -> CheckpointStorage:
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
        """Refuse a checkpoint of whose files one may be deleted.

        What it has borrowed it has from one of the newest. Those that this owner has committed are
        known here; of those before only the ones that are needed are read, each once.
        """
        writers = {file: names.writer_of(file) for file in metadata.files()}
        missing = borrowed(writers, metadata.checkpoint_id)
        for number in reversed(self.completed):
            if not missing:
                return
            with suppress(Corrupt, Invalid):  # nobody can have built on what cannot be read
                self._learn_files((number,))
            missing -= self._files.get(number, frozenset())
        if missing:
            self.check()  # a newer owner may have deleted what they belong to
            file = min(missing)
            raise Invalid(
                f"checkpoint {metadata.checkpoint_id} of job {self._job.job_id!r} refers to a file "
                "that may be deleted",
                where=f"{self._job.url}/{file}",
                expected=f"files of its own, or of the completed checkpoints {self.completed}",
                found="a file that none of them needs",
                fix="Build on checkpoints that are known to be completed, and retain those",
            )

    def _check_decided(self) -> None:
        """A commit that is not decided may be complete, and then needs what it refers to."""
        if self._undecided is not None:
            raise Invalid(
                f"a commit of job {self._job.job_id!r} is not decided",
                where=self._job.url,
                fix="Repeat it first",
            )

    def _check_may_write(self, what: str, commit: bytes | None, ending: JobResult | None) -> None:
        """Of a commit or an end that is not decided only the same one may follow."""
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

    def _everything(self) -> Iterator[Stored]:
        """Every object and every unfinished write in the job's folder."""
        prefix = f"{self._job.folder}/"
        for info in self._storage.list(prefix):
            yield _describe(info.name[len(prefix) :], info.name[len(prefix) :])
        for write in self._storage.unfinished(prefix):
            yield _describe(write.name[len(prefix) :], write.target[len(prefix) :])

    def _drop(self, dropped: tuple[int, ...]) -> None:
        """Delete commit points first.

        What a crash leaves is then an orphan, not a half checkpoint that looks whole. So are the
        files of one that is dropped and cannot be read.
        """
        if not dropped:
            return
        self.check()
        self._check_decided()
        self._learn_files(self._completed.difference(dropped))
        for number in dropped:
            with suppress(Corrupt):
                self._learn_files((number,))
        kept = self._completed.difference(dropped)
        lost = self._referenced(self._files.keys() & set(dropped))
        unneeded = lost - self._referenced(kept)
        folder = self._job.folder
        self._storage.delete(f"{folder}/{names.metadata(number)}" for number in dropped)
        self._completed = kept
        for number in dropped:
            self._files.pop(number, None)
        self.check()  # a new owner may have chosen one of these: leave it the files
        self._storage.delete([f"{folder}/{name}" for name in sorted(unneeded)])

    def _referenced(self, checkpoints: Iterable[int]) -> frozenset[str]:
        return frozenset().union(*(self._files[number] for number in checkpoints))

    def _learn_files(self, numbers: Collection[int]) -> None:
        """Learn which files these completed checkpoints have; forget those that are gone.

        An older owner that was fenced in the midst of deleting may have ended it after this one
        had listed what is there.
        """
        for number in set(numbers).difference(self._files):
            try:
                self._files[number] = self._job.read_metadata(number).files()
            except NotFound:
                self._completed.discard(number)


def _claimed(records: Iterable[names.OwnerRecord]) -> list[int]:
    return [record.epoch for record in records if record.token is None]


def _survey(job: JobStorage, *, reopen: bool) -> _Survey:
    start = job.newest_start()
    result = None if reopen else job.result_of(start)
    begun, listed = 0, []
    for found in job.checkpoint_objects():
        begun = max(begun, found.checkpoint_id)
        if found.is_metadata:
            listed.append(found.checkpoint_id)
    return _Survey(job.judged(listed, start).completed, begun, result)


def _claim_epoch(job: JobStorage, token: str) -> int:
    storage = job.storage
    for _ in range(_CLAIM_ATTEMPTS):
        epoch = next_epoch(_claimed(job.owner_records()))
        claim = Claim(epoch=epoch, owner=token, claimed_ms=storage.clock.now_ms())
        mine = seal("owner claim", _CLAIM_VERSION, claim)
        existing = storage.create(f"{job.folder}/{names.claim(epoch)}", mine)
        if judge_create(mine, existing) is Created.COMMITTED:
            return epoch
    raise Fenced(
        f"too many processes are taking over job {job.job_id!r} at the same time",
        where=job.url,
        expected=f"a free epoch within {_CLAIM_ATTEMPTS} attempts",
        fix="Start one driver for each job",
    )


def _describe(name: str, target: str) -> Stored:
    """What the name of an object says, or the target of an unfinished write."""
    finished = name == target
    owner = names.parse_owner(target)
    if owner is not None:
        return Stored(name, finished, owner_epoch=owner.epoch)
    found = names.parse_checkpoint_object(target)
    if found is None:
        return Stored(name, finished)
    return Stored(name, finished, found.checkpoint_id, found.is_metadata)
