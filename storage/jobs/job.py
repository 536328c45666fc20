"""A job's folder: its files and its completed checkpoints, as any reader or slot sees them.

Committing, retention and cleaning need the right to do so: `take_over` answers a `JobOwner`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import msgspec

from holdfast.storage import names
from holdfast.storage.errors import Corrupt, NotFound
from holdfast.storage.jobs import decisions
from holdfast.storage.jobs.damage import instead_of
from holdfast.storage.jobs.envelope import seal, unseal
from holdfast.storage.jobs.metadata import CheckpointMetadata, decode_metadata
from holdfast.storage.jobs.owner import HELD_VERSION, START_VERSION, JobOwner
from holdfast.storage.jobs.result import JobResult, decode_result
from holdfast.storage.segments.folder import StateFolder
from holdfast.storage.segments.writer import SegmentWriter

if TYPE_CHECKING:
    from holdfast.storage.interface import CheckpointStorage

__all__ = ["JobStorage", "job_in", "told_damage"]

_NAME, _NAME_VERSION = "job name", 1


class _Name(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job_id: str


class JobStorage(StateFolder):
    """The folder of one job in a storage. Light, picklable, safe to use from any thread."""

    def __init__(self, storage: CheckpointStorage, job_id: str) -> None:
        super().__init__(storage, names.job_folder(job_id))
        self.job_id = job_id

    def keep_name(self) -> None:
        """Leave a record of the job's name, if that of its folder does not tell it.

        Raises:
            Corrupt: there is another one.
            Unavailable: the storage did not answer.
        """
        if names.is_cut(self.folder):
            mine = seal(_NAME, _NAME_VERSION, _Name(job_id=self.job_id))
            existing = self.storage.create(self.name_of(names.job_name()), mine)
            if existing not in (None, mine):
                raise _misnamed(f"{self.url}/{names.job_name()}", self.job_id)

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        """A writer for the file in which one slot puts its part of a checkpoint."""
        file = names.exclusive_file(checkpoint_id, label, self.storage.entropy.token())
        return SegmentWriter(self.storage, self.folder, file, compression=compression)

    def shared_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        """A writer for a file that later checkpoints may refer to as well.

        Never inline, unless the storage keeps state in memory only.
        """
        file = names.shared_file(checkpoint_id, label, self.storage.entropy.token())
        return SegmentWriter(
            self.storage, self.folder, file, inline_limit_bytes=0, compression=compression
        )

    def log_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        """A writer like that of `shared_segments`, of which the first few bytes are inline."""
        file = names.shared_file(checkpoint_id, label, self.storage.entropy.token())
        return SegmentWriter(self.storage, self.folder, file, compression=compression)

    def table_file(self, checkpoint_id: int, path: str) -> SegmentWriter:
        """A writer for a file of one checkpoint alone, that has one segment: a table.

        Never inline, unless the storage keeps state in memory only.
        """
        file = names.exclusive_table(checkpoint_id, path, self.storage.entropy.token())
        return SegmentWriter(self.storage, self.folder, file, inline_limit_bytes=0)

    def completed(self) -> tuple[int, ...]:
        """The numbers of all completed checkpoints, ascending.

        While somebody takes over, the last one of the older owner may be among them and turn out
        void a moment later. What an owner answers is final.

        Raises:
            Corrupt: an owner's record is damaged.
            Invalid: an owner's record, or a checkpoint after a takeover, is of a newer format.
            Unavailable: the storage did not answer.
        """
        listed = [found.checkpoint_id for found in self.checkpoint_objects() if found.is_metadata]
        return self.judged(listed, *self.begun()).completed  # after the listing: see `commit`

    def load(self, checkpoint_id: int) -> CheckpointMetadata:
        """What is known of one completed checkpoint.

        Raises:
            NotFound: no such checkpoint was completed.
            Corrupt: its `_metadata` is damaged; names the file, and the newest older one that is
                whole.
            Invalid: it was written in a newer format.
        """
        try:
            metadata = self.read_metadata(checkpoint_id)
        except Corrupt as error:
            raise self._damaged(checkpoint_id, error) from error
        start, void = self.begun()
        epochs: dict[int, int | None] = {checkpoint_id: metadata.epoch}
        if checkpoint_id in decisions.judge([checkpoint_id], start, epochs, void).void:
            raise self._no_checkpoint(checkpoint_id)
        return metadata

    def latest(self) -> CheckpointMetadata | None:
        """The newest completed checkpoint; None when there is none.

        Raises:
            Corrupt: its `_metadata` is damaged; names the file, and the newest older one that is
                whole.
            Invalid: it was written in a newer format.
        """
        completed = self.completed()
        if not completed:
            return None
        try:
            return self.read_metadata(completed[-1])
        except Corrupt as error:
            raise self._damaged(completed[-1], error) from error

    def _damaged(self, checkpoint_id: int, error: Corrupt) -> Corrupt:
        return Corrupt(
            f"checkpoint {checkpoint_id} of job {self.job_id!r} is damaged: {error.what}",
            where=error.where,
            expected=error.expected,
            found=error.found,
            fix=instead_of(self, checkpoint_id),
        )

    def result(self) -> JobResult | None:
        """How the job has ended; None if it has not, or was opened again since.

        While somebody takes over, the answer may turn out void a moment later, as that of
        `completed`. What an owner answers is final.

        Raises:
            Corrupt: the record, or an owner's, is damaged; names the file.
            Invalid: it was written in a newer format.
            Unavailable: the storage did not answer.
        """
        looked, start = None, self.newest_start()
        while start != looked:  # else somebody took over meanwhile, and has the record now
            found = self.result_of(start)
            if found is not None:
                return found
            looked, start = start, self.newest_start()
        return None

    def take_over(self, *, reopen: bool = False) -> JobOwner:
        """Claim the job: from now on only the answer may commit, and older owners are fenced.

        A job that has ended stays so, and its new owner cannot commit. With `reopen` it begins
        again: its result does not count any more.

        Raises:
            Invalid: the storage cannot be written to as it is set up, or what is in the folder was
                written in a newer format; the older owner goes on.
            Fenced: somebody else took over at the same time.
            Corrupt: an owner's record is damaged; the older owner goes on.
            Unavailable: the storage did not answer; calling again is safe.
        """
        return JobOwner.claim(self, reopen=reopen)

    def resume(self, epoch: int) -> JobOwner:
        """Have the right of an earlier claim again, to go on with deleting. Changes nothing.

        Who had it may be gone, or not: then both may delete the same. Neither may commit.

        Raises:
            Fenced: somebody else has taken over since, or the folder was emptied.
            Corrupt, Invalid, Unavailable: as `take_over`.
        """
        return JobOwner.resume(self, epoch)

    def owner_records(self) -> list[names.OwnerRecord]:
        """What the names of all claims, start documents and results say, by ascending epoch."""
        start = len(self.folder) + 1
        listed = self.storage.list(f"{self.folder}/{names.owners_prefix()}")
        found = (names.parse_owner(info.name[start:]) for info in listed)
        return [record for record in found if record is not None]

    def newest_start(self) -> decisions.Start | None:
        """The newest owner's start document.

        Raises:
            Corrupt: it is damaged.
            Invalid: it was written in a newer format.
        """
        return self.begun()[0]

    def begun(self) -> tuple[decisions.Start | None, tuple[range, ...]]:
        """The newest owner's start document, and the numbers that are void by its records.

        Raises as `newest_start` does.
        """
        records = self.owner_records()
        start = self._newest_start(records)
        if start is None:
            return None, ()
        mine = (start.epoch, start.owner)
        return start, tuple(
            each.numbers
            for each in records
            if each.kind == "void" and (each.epoch, each.token) == mine
        )

    def _newest_start(self, records: list[names.OwnerRecord]) -> decisions.Start | None:
        for record in reversed(records):
            if record.kind != "start" or record.token is None:
                continue
            name = names.start(record.epoch, record.token)
            try:
                data = self.storage.read(f"{self.folder}/{name}")
            except NotFound:
                continue  # a newer owner has just cleaned it away
            return unseal(
                data,
                kind="owner start",
                version=START_VERSION,
                body=decisions.Start,
                where=f"{self.url}/{name}",
            )
        return None

    def result_of(self, start: decisions.Start | None) -> JobResult | None:
        """The result in the hands of the owner who began with this; raises as `result` does."""
        if start is None:
            return None
        name = names.result(start.epoch, start.owner)
        try:
            data = self.storage.read(f"{self.folder}/{name}")
        except NotFound:
            return None
        return decode_result(data, job_id=self.job_id, where=f"{self.url}/{name}")

    def held_by(self, start: decisions.Start | None) -> decisions.Held | None:
        """What the owner who began with this has restored of the job itself, if it has.

        Raises:
            Corrupt: its record is damaged.
            Invalid: it was written in a newer format.
        """
        if start is None:
            return None
        name = names.held(start.epoch, start.owner)
        try:
            data = self.storage.read(f"{self.folder}/{name}")
        except NotFound:
            return None
        return unseal(
            data,
            kind="owner hold",
            version=HELD_VERSION,
            body=decisions.Held,
            where=f"{self.url}/{name}",
        )

    def judged(
        self, listed: list[int], start: decisions.Start | None, void: Collection[range] = ()
    ) -> decisions.Judgement:
        """Which of the listed commit points count, reading those that must be read."""
        left = sorted(set(listed) - set(decisions.among(listed, void)))
        epochs = {number: self._epoch_of(number) for number in decisions.unjudged(left, start)}
        present = [number for number in listed if epochs.get(number) != 0]
        return decisions.judge(present, start, epochs, void)

    def _epoch_of(self, checkpoint_id: int) -> int | None:
        """Who committed it; None when it cannot be read, 0 when it has just been deleted."""
        try:
            return self.read_metadata(checkpoint_id).epoch
        except NotFound:
            return 0
        except Corrupt:
            return None

    def checkpoint_objects(self) -> Iterator[names.CheckpointObject]:
        """What the names of the checkpoints' own objects say, in ascending order."""
        return self._objects(names.checkpoints_prefix())

    def shared_objects(self) -> Iterator[names.CheckpointObject]:
        """What the names of files say that several checkpoints may use, in ascending order."""
        return self._objects(names.shared_prefix())

    def _objects(self, prefix: str) -> Iterator[names.CheckpointObject]:
        start = len(self.folder) + 1
        for info in self.storage.list(f"{self.folder}/{prefix}"):
            found = names.parse_checkpoint_object(info.name[start:])
            if found is not None:
                yield found

    def read_metadata(self, checkpoint_id: int) -> CheckpointMetadata:
        """The commit point of this number, whether or not it counts; raises as `load` does."""
        try:
            data = self.storage.read(f"{self.folder}/{names.metadata(checkpoint_id)}")
        except NotFound as error:
            raise self._no_checkpoint(checkpoint_id) from error
        where = f"{self.url}/{names.metadata(checkpoint_id)}"
        metadata = decode_metadata(data, where=where)
        if (metadata.job_id, metadata.checkpoint_id) != (self.job_id, checkpoint_id):
            raise Corrupt(
                "a checkpoint's `_metadata` lies in a place that is not its own",
                where=where,
                expected=f"job {self.job_id!r}, checkpoint {checkpoint_id}",
                found=f"job {metadata.job_id!r}, checkpoint {metadata.checkpoint_id}",
                fix="Move the folder back to where it was written",
            )
        return metadata

    def _no_checkpoint(self, checkpoint_id: int) -> NotFound:
        return NotFound(
            f"job {self.job_id!r} has no completed checkpoint {checkpoint_id}",
            where=self.url,
            fix="List the completed ones, and restore one of those",
        )


def job_in(storage: CheckpointStorage, folder: str) -> JobStorage:
    """The job whose folder this is, by the folder's name in a storage.

    Raises:
        NotFound: it is no folder of a job.
        Corrupt: the record of the job's name is damaged, or another job's.
        Invalid: that record was written in a newer format.
        Unavailable: the storage did not answer.
    """
    job_id = names.unescape(folder)
    if job_id is not None:
        return storage.job(job_id)
    where = f"{folder}/{names.job_name()}"
    data = _read_if_there(storage, where) if names.is_cut(folder) else None
    if data is None:
        raise NotFound(
            "this is no folder of a job",
            where=storage.url_of(folder) if names.is_legal(folder) else repr(folder),
            expected=f"one that is called after its job, or has a record {names.job_name()}",
            fix="Look whether the path is right, and whether all of the folder was copied",
        )
    url = storage.url_of(where)
    found = unseal(data, kind=_NAME, version=_NAME_VERSION, body=_Name, where=url)
    if names.job_folder(found.job_id) != folder:
        raise _misnamed(url, found.job_id)
    return storage.job(found.job_id)


def _read_if_there(storage: CheckpointStorage, name: str) -> bytes | None:
    try:
        return storage.read(name)
    except NotFound:
        return None


def told_damage(told: str, error: Corrupt, folder: StateFolder, checkpoint_id: int) -> str:
    """What is told of a checkpoint that was being restored, with what to restore instead.

    Savepoints have no older ones.
    """
    if not isinstance(folder, JobStorage):
        return told
    advice = instead_of(folder, checkpoint_id)
    if advice in told:
        return told
    if error.fix and error.fix in told:
        return told.replace(error.fix, advice)
    return f"{told}. {advice}" if told else advice


def _misnamed(where: str, job_id: str) -> Corrupt:
    return Corrupt(
        "the record of a job's name lies in a place that is not its own",
        where=where,
        expected=f"the name of the job whose folder this is, such as {job_id[:40]!r}",
        fix="Move the folder back to where it was written",
    )
