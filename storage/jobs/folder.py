"""The contents of a job's folder: owners' records, commit points, names of files.

Reads, and judges what it has read by `holdfast.storage.jobs.decisions`. Only the job's name is
written here: all else that changes a job's folder needs an owner's right (`claiming`, `owner`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from holdfast.storage import names
from holdfast.storage.errors import Corrupt, NotFound
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.jobs import decisions
from holdfast.storage.jobs.decisions import StoredObject
from holdfast.storage.jobs.envelope import DocumentType
from holdfast.storage.jobs.metadata import METADATA, CheckpointMetadata
from holdfast.storage.jobs.owner_records import HELD, RESULT, START, Held, JobResult, Start
from holdfast.storage.segments.reader import StateFolder

__all__ = ["JobFolder", "job_id_of"]


class _Name(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job_id: str


_NAME = DocumentType("job name", 1, _Name)


class JobFolder(StateFolder):
    """The folder of one job as it is stored, before an owner or a reader makes use of it."""

    def __init__(self, storage: ObjectStorage, job_id: str) -> None:
        super().__init__(storage, names.job_folder(job_id))
        self.job_id = job_id

    def keep_name(self) -> None:
        """Record the job's name, if the name of its folder was cut.

        Raises:
            Corrupt: another name is recorded.
            Unavailable: the storage did not answer.
        """
        if names.is_cut(self.folder):
            mine = _NAME.seal(_Name(job_id=self.job_id))
            existing = self.storage.create(self.name_of(names.JOB_NAME), mine)
            if existing not in (None, mine):
                raise _misnamed(f"{self.url}/{names.JOB_NAME}", self.job_id)

    def completed(self) -> tuple[int, ...]:
        """The numbers of all completed checkpoints, ascending.

        During a takeover the last checkpoint of the older owner may be among them and turn out void
        a moment later. What an owner answers is final.

        Raises:
            Corrupt: an owner's record is damaged.
            Invalid: an owner's record, or a checkpoint after a takeover, is of a newer format.
            Unavailable: the storage did not answer.
        """
        listed = [found.checkpoint_id for found in self.checkpoint_objects() if found.is_metadata]
        # The listing comes first: `decisions` says why records are read after commit points.
        return self.judged(listed, *self.begun()).completed

    def result(self) -> JobResult | None:
        """How the job has ended; None if it has not, or was opened again since.

        During a takeover the answer may turn out void a moment later, as that of `completed`. What
        an owner answers is final.

        Raises:
            Corrupt: the record, or an owner's, is damaged; names the file.
            Invalid: it was written in a newer format.
            Unavailable: the storage did not answer.
        """
        looked, start = None, self.newest_start()
        while start != looked:  # a new start document: its owner took the result over
            found = self.result_of(start)
            if found is not None:
                return found
            looked, start = start, self.newest_start()
        return None

    def owner_records(self) -> list[names.OwnerRecord]:
        """The records of owners that names tell of, such as claims, by ascending epoch."""
        start = len(self.folder) + 1
        listed = self.storage.list(f"{self.folder}/{names.OWNERS_PREFIX}")
        found = (names.parse_owner(info.name[start:]) for info in listed)
        return [record for record in found if record is not None]

    def newest_start(self) -> Start | None:
        """The newest owner's start document.

        Raises:
            Corrupt: it is damaged.
            Invalid: it was written in a newer format.
        """
        return self.begun()[0]

    def begun(self) -> tuple[Start | None, tuple[range, ...]]:
        """The newest owner's start document, and the numbers that its records make void.

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

    def _newest_start(self, records: list[names.OwnerRecord]) -> Start | None:
        for record in reversed(records):
            if record.kind != "start" or record.token is None:
                continue
            data, where = self._record(names.owner_record(record.epoch, "start", record.token))
            if data is not None:  # else a newer owner has just deleted it
                return START.unseal(data, where=where)
        return None

    def result_of(self, start: Start | None) -> JobResult | None:
        """The result recorded by the owner that began with `start`; raises as `result` does."""
        if start is None:
            return None
        data, where = self._record(names.owner_record(start.epoch, "result", start.owner))
        if data is None:
            return None
        result = RESULT.unseal(data, where=where)
        if result.job_id != self.job_id:
            raise Corrupt(
                "the record of a job's result lies in a place that is not its own",
                where=where,
                expected=f"job {self.job_id!r}",
                found=f"job {result.job_id!r}",
                fix="Move the folder back to where it was written",
            )
        return result

    def held_by(self, start: Start | None) -> Held | None:
        """The restored checkpoint that the owner that began with `start` has recorded, if any.

        Raises:
            Corrupt: its record is damaged.
            Invalid: it was written in a newer format.
        """
        if start is None:
            return None
        data, where = self._record(names.owner_record(start.epoch, "held", start.owner))
        return None if data is None else HELD.unseal(data, where=where)

    def _record(self, name: str) -> tuple[bytes | None, str]:
        """The bytes of a record, None if it does not exist, and its URL."""
        return self.storage.read_if_there(self.name_of(name)), f"{self.url}/{name}"

    def judged(
        self, listed: list[int], start: Start | None, void: Collection[range] = ()
    ) -> decisions.Judgement:
        """Which of the listed commit points count, reading those that must be read."""
        left = sorted(set(listed) - set(decisions.among(listed, void)))
        epochs = {number: self._epoch_of(number) for number in decisions.unjudged(left, start)}
        present = [number for number in listed if epochs.get(number) != 0]
        return decisions.judge(present, start, epochs, void)

    def _epoch_of(self, checkpoint_id: int) -> int | None:
        """The epoch that committed it; None when it cannot be read, 0 when it was just deleted."""
        try:
            return self.read_metadata(checkpoint_id).epoch
        except NotFound:
            return 0
        except Corrupt:
            return None

    def checkpoint_objects(self) -> Iterator[names.CheckpointObject]:
        """The objects in checkpoints' own folders, in ascending order; names only."""
        return self._objects(names.CHECKPOINTS_PREFIX)

    def shared_objects(self) -> Iterator[names.CheckpointObject]:
        """The files that several checkpoints may use, in ascending order; names only."""
        return self._objects(names.SHARED_PREFIX)

    def _objects(self, prefix: str) -> Iterator[names.CheckpointObject]:
        start = len(self.folder) + 1
        for info in self.storage.list(f"{self.folder}/{prefix}"):
            found = names.parse_checkpoint_object(info.name[start:])
            if found is not None:
                yield found

    def stored_objects(self) -> Iterator[StoredObject]:
        """Everything in the folder, by its name alone; unfinished writes come last.

        Objects that come or go during the listing may be missed or shown.

        Raises:
            Unavailable: the storage did not answer.
        """
        prefix = self.name_of("")
        for info in self.storage.list(prefix):
            name = info.name[len(prefix) :]
            yield _describe(name, name, info.size_bytes)
        for write in self.storage.unfinished(prefix):
            target = write.target[len(prefix) :]
            yield _describe(write.name[len(prefix) :], target, write.size_bytes)

    def read_metadata(self, checkpoint_id: int) -> CheckpointMetadata:
        """The commit point of this number, whether or not it counts; raises as `load` does."""
        data, where = self._record(names.metadata(checkpoint_id))
        if data is None:
            raise self.no_checkpoint(checkpoint_id)
        metadata = METADATA.unseal(data, where=where)
        if (metadata.job_id, metadata.checkpoint_id) != (self.job_id, checkpoint_id):
            raise Corrupt(
                "a checkpoint's `_metadata` lies in a place that is not its own",
                where=where,
                expected=f"job {self.job_id!r}, checkpoint {checkpoint_id}",
                found=f"job {metadata.job_id!r}, checkpoint {metadata.checkpoint_id}",
                fix="Move the folder back to where it was written",
            )
        return metadata

    def no_checkpoint(self, checkpoint_id: int) -> NotFound:
        """The error for a checkpoint that is not there, or does not count."""
        return NotFound(
            f"job {self.job_id!r} has no completed checkpoint {checkpoint_id}",
            where=self.url,
            fix="List the completed ones, and restore one of those",
        )


def _describe(name: str, target: str, size_bytes: int) -> StoredObject:
    """The facts in the name of an object, or of an unfinished write's target."""
    finished = name == target
    owner = names.parse_owner(target)
    if owner is not None:
        is_claim = owner.kind == "claim"
        return StoredObject(
            name, finished, owner_epoch=owner.epoch, is_claim=is_claim, size_bytes=size_bytes
        )
    found = names.parse_checkpoint_object(target)
    if found is None:
        return StoredObject(name, finished, size_bytes=size_bytes)
    return StoredObject(
        name,
        finished,
        found.checkpoint_id,
        is_metadata=found.is_metadata,
        is_shared=found.shared,
        size_bytes=size_bytes,
    )


def job_id_of(storage: ObjectStorage, folder: str) -> str:
    """The id of the job whose folder has this name in a storage.

    Raises:
        NotFound: the folder belongs to no job.
        Corrupt: the record of the job's name is damaged, or another job's.
        Invalid: that record was written in a newer format.
        Unavailable: the storage did not answer.
    """
    job_id = names.unescape(folder)
    if job_id is not None:
        return job_id
    where = f"{folder}/{names.JOB_NAME}"
    data = storage.read_if_there(where) if names.is_cut(folder) else None
    if data is None:
        raise NotFound(
            "this is not the folder of a job",
            where=storage.url_of(folder) if names.is_legal(folder) else repr(folder),
            expected=f"a folder named after its job, or with a record {names.JOB_NAME}",
            fix="Check the path, and that the whole folder was copied",
        )
    url = storage.url_of(where)
    found = _NAME.unseal(data, where=url)
    if names.job_folder(found.job_id) != folder:
        raise _misnamed(url, found.job_id)
    return found.job_id


def _misnamed(where: str, job_id: str) -> Corrupt:
    return Corrupt(
        "the record of a job's name lies in a place that is not its own",
        where=where,
        expected=f"the name of the job whose folder this is, such as {job_id[:40]!r}",
        fix="Move the folder back to where it was written",
    )
