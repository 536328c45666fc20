"""Claimed savepoints and checkpoints of other jobs: this job deletes them when it has newer ones.

They are listed in the job's own checkpoints, and in the record of its end, until they are deleted:
later runs delete the rest. There may be several, if the other job had claimed some itself and not
deleted them yet.

Only what has a record of the claim in its own folder is deleted as claimed: a job's documents may
be forged, or copied.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Fenced,
    HoldfastError,
    Invalid,
    JobOwner,
    JobStorage,
    NotFound,
    SavepointFolder,
    StateFolder,
    load_storage,
    names,
)
from holdfast.storage.jobs.cleaning import release_held
from holdfast.storage.jobs.deletion import BATCH_OBJECTS
from holdfast.storage.jobs.metadata import CLAIMED_CHECKPOINTS, CLAIMED_SAVEPOINTS
from holdfast.storage.registry import OpenStorage, storage_at
from holdfast.storage.restore_points import RestorePoint, savepoint_folder

__all__ = [
    "CLAIM",
    "NO_CLAIM",
    "Claimed",
    "ClaimedCheckpoint",
    "ClaimedSavepoint",
    "claim",
    "claimed_before",
    "claims_as_properties",
    "delete_claimed",
    "handed_on",
]

CLAIM = "claim"
NO_CLAIM = "no-claim"

_CLAIMED = b"A job has claimed this, and deletes it.\n"
_NOT_MARKED = (
    "%s is listed as claimed, but its folder has no record of that, so it is kept. "
    "If it is not needed, delete %s yourself"
)
"""The document may be forged, or the job's folder may be a copy whose claims are another job's."""

_logger = logging.getLogger(__name__)


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claimed checkpoint as the job's documents list it, for later runs that delete it."""

    storage: str
    job: str
    checkpoint: int
    epoch: int
    """The epoch of the claim in the other job's folder. A run with a higher one has it back."""


@dataclass(kw_only=True)
class _Claim:
    """A claimed snapshot: it is deleted by steps, after it was released."""

    by: str = ""
    """The mark of this job's folder; there is a record of it beside the snapshot."""
    _is_released: bool = False
    _is_gone: threading.Event = field(default_factory=threading.Event)

    @property
    def is_gone(self) -> bool:
        """Whether it is deleted, so that it is not listed any more."""
        return self._is_gone.is_set()

    @property
    def owes(self) -> bool:
        """Whether it is to be deleted, and not deleted yet."""
        return self._is_released and not self.is_gone

    def release(self) -> None:
        """Have it deleted by `step`: the job has enough checkpoints of its own, or ends."""
        self._is_released = True


@dataclass
class ClaimedCheckpoint(_Claim):
    """A checkpoint in another job's folder, counted as the oldest of this job's own.

    `release` and `record` are for one thread, `step` and `owes` for another, the sweeper's.
    """

    job: JobStorage
    checkpoint_id: int
    epoch: int
    owner: JobOwner | None = None
    """The right to the other job's folder, in the run that has claimed it."""
    _is_dropped: bool = False

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint_id} at {self.job.url}"

    def mark(self) -> None:
        """Write a record beside it that this job deletes it. Raises `Unavailable`."""
        record = names.owner_record(self.epoch, "claimed", self.by)
        self.job.storage.create(self.job.name_of(record), _CLAIMED)

    def is_marked(self) -> bool:
        """Whether that record exists: a document that lists a claim may be forged."""
        return names.OwnerRecord(self.epoch, self.by, "claimed") in self.job.owner_records()

    def record(self) -> dict[str, Any] | None:
        """The entry for a document of the job; None if it is deleted."""
        if self.is_gone:
            return None
        record = _Record(
            storage=self.job.storage.url,
            job=self.job.job_id,
            checkpoint=self.checkpoint_id,
            epoch=self.epoch,
        )
        said: dict[str, Any] = msgspec.to_builtins(record)
        return said

    def step(self, most: int) -> int:
        """Do the next part of deleting it; see `Sweeps`.

        Raises:
            Fenced: the other job was taken over since: it is that one's again, and stays.
            Corrupt, Unavailable: what its job needs besides cannot be read, or nothing answers.
        """
        try:
            return self._step(most)
        except Fenced as error:
            _logger.warning("%s was claimed, and is left to its job: %s", self, error)
            self._is_gone.set()
            raise

    def _step(self, most: int) -> int:
        if self.owner is None:
            if not self.job.owner_records():
                self._is_gone.set()  # the folder of the other job was removed
                return 0
            if not self.is_marked():
                _logger.warning(_NOT_MARKED, self, self.job.url)
                self._is_gone.set()
                return 0
            self.owner = self.job.resume(self.epoch)
        if not self._is_dropped:
            if self.checkpoint_id in self.owner.completed:
                self.owner.release_one(self.checkpoint_id)
            else:  # an earlier run of this job may have been killed before it came to the files
                release_held(self.job, self.owner, self.checkpoint_id)
            self._is_dropped = True
        deleted = self.owner.sweeper.step(most)
        if not self.owner.sweeper.owes:
            self._is_gone.set()
        return deleted


@dataclass
class ClaimedSavepoint(_Claim):
    """A savepoint, counted as the oldest of the job's own checkpoints.

    A savepoint has no owner, so no run has to be fenced. Only the duty to delete it is claimed: the
    files that it lists, and no others in its folder.
    """

    folder: SavepointFolder
    epoch: int = 0
    _metadata: CheckpointMetadata | None = None
    _done: int = 0

    def __str__(self) -> str:
        return f"the savepoint at {self.folder.url}"

    def record(self) -> str | None:
        return None if self.is_gone else self.folder.url

    def mark(self) -> None:
        self.folder.storage.create(self._marker, _CLAIMED)

    def is_marked(self) -> bool:
        return bool(self.folder.storage.read_if_there(self._marker))

    @property
    def _marker(self) -> str:
        return self.folder.name_of(names.savepoint_claim(self.by))

    def is_same(self, folder: StateFolder, metadata: CheckpointMetadata) -> bool:
        """Whether this is a savepoint that is about to be restored, by whatever path, or its copy.

        Raises:
            Corrupt, Invalid: it is not a savepoint any more.
            Unavailable: the storage did not answer.
        """
        if self.folder.is_alike(folder):
            return True
        try:
            return self.folder.read_metadata() == metadata
        except NotFound:
            return False

    def step(self, most: int) -> int:
        """Do the next part of deleting it; see `Sweeps`.

        Raises:
            Unavailable: the storage did not answer.
        """
        if self._metadata is None:
            if not self.is_marked():
                _logger.warning(_NOT_MARKED, self, self.folder.url)
                self._is_gone.set()
                return 0
            try:
                self._metadata = self.folder.read_metadata()
            except NotFound:
                self._is_gone.set()
                return 0
            except (Corrupt, Invalid) as error:
                _logger.warning("%s was claimed, and stays as it is: %s", self, error)
                self._is_gone.set()
                return 0
        deleted = self.folder.delete_some(self._metadata, self._done, most)
        self._done += deleted
        if not deleted:
            self.folder.storage.delete([self._marker])
            self._is_gone.set()
        return deleted


Claimed: TypeAlias = ClaimedCheckpoint | ClaimedSavepoint
"""What is this job's to delete though it lies elsewhere."""


def claim(point: RestorePoint, by: StateFolder) -> Claimed:
    """Claim a savepoint, or the checkpoint of another job, whose runs are fenced.

    `by` is the folder of the job that claims it: a record of that is left where it is.

    Raises:
        NotFound: the other job has just deleted it.
        Corrupt, Fenced, Invalid, Unavailable: as `JobStorage.take_over`.
    """
    other, number = point.folder, point.metadata.checkpoint_id
    if not isinstance(other, JobStorage):
        savepoint = ClaimedSavepoint(other, by=by.mark)
        savepoint.mark()
        return savepoint
    owner = other.take_over()
    if number not in owner.completed:
        raise NotFound(
            f"checkpoint {number} was deleted by its job before it could be claimed",
            where=other.url,
            expected=f"one of {owner.completed}" if owner.completed else "a checkpoint",
            fix="Restore from a newer one",
        )
    owner.hold(point.metadata)
    claimed = ClaimedCheckpoint(other, number, owner.epoch, owner, by=by.mark)
    claimed.mark()
    return claimed


def handed_on(claims: Iterable[Claimed], to: StateFolder) -> tuple[Claimed, ...]:
    """What a job had claimed that is claimed itself: from now on these are for this one to delete.

    What it says to have claimed, and has not, is left alone.

    Raises:
        Unavailable: a storage did not answer.
    """
    mine = []
    for each in claims:
        if each.is_marked():
            each.by = to.mark
            each.mark()
            mine.append(each)
        else:
            _logger.warning(_NOT_MARKED, each, "it")
    return tuple(mine)


def claims_as_properties(claims: Iterable[Claimed]) -> dict[str, Any]:
    """What a document of the job says of these, for `claimed_before`; nothing if none is there."""
    records: dict[str, list[Any]] = {}
    for each in claims:
        kind = CLAIMED_SAVEPOINTS if isinstance(each, ClaimedSavepoint) else CLAIMED_CHECKPOINTS
        if (record := each.record()) is not None:
            records.setdefault(kind, []).append(record)
    return {**records}


def claimed_before(
    properties: Mapping[str, Any],
    by: StateFolder,
    open_storage: OpenStorage = load_storage,
) -> tuple[Claimed, ...]:
    """What an earlier run had claimed and not deleted, as a document in its folder says.

    Nothing of it is deleted unless a record beside it says so too: `by` is the folder that the
    document is in, and a process that could forge it need not have access to the other folder.
    `open_storage` is as for `storage_at`.

    Raises:
        Corrupt: that is not what this version of Holdfast writes.
        Invalid: a storage cannot be opened.
    """
    try:
        records = msgspec.convert(properties.get(CLAIMED_CHECKPOINTS, []), list[_Record])
        savepoints = msgspec.convert(properties.get(CLAIMED_SAVEPOINTS, []), list[str])
    except msgspec.ValidationError as error:
        raise Corrupt(
            "it is said that checkpoints of other jobs were claimed, and not which",
            expected="storage, job, checkpoint and epoch of each",
            found=f"{properties.get(CLAIMED_CHECKPOINTS)!r}, "
            f"{properties.get(CLAIMED_SAVEPOINTS)!r} ({error})",
            fix="Restore another checkpoint",
        ) from error
    checkpoints = (
        ClaimedCheckpoint(
            JobStorage(storage_at(record.storage, by.storage, open_storage), record.job),
            record.checkpoint,
            record.epoch,
            by=by.mark,
        )
        for record in records
    )
    folders = (savepoint_folder(url, by.storage, open_storage) for url in savepoints)
    return (*checkpoints, *(ClaimedSavepoint(each, by=by.mark) for each in folders))


def delete_claimed(claims: Iterable[Claimed]) -> tuple[Claimed, ...]:
    """Delete these now; answers those that are still owed. What is another's by now is left."""
    left = []
    for each in claims:
        each.release()
        try:
            while each.owes:
                each.step(BATCH_OBJECTS)
        except Fenced:
            pass  # it has told so itself
        except HoldfastError as error:
            _logger.warning("%s was claimed, and is not deleted yet: %s", each, error)
            left.append(each)
    return tuple(left)
