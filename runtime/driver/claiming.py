"""A checkpoint of another job that this one has taken over, to delete it when it is subsumed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.runtime.driver.restoring import OpenStorage, RestorePoint, storage_at
from holdfast.storage import (
    CheckpointStorage,
    Corrupt,
    Fenced,
    JobOwner,
    JobStorage,
    NotFound,
    load_storage,
)

__all__ = ["CLAIM", "NO_CLAIM", "ClaimedCheckpoint", "claim", "claimed_before"]

CLAIM = "claim"
NO_CLAIM = "no-claim"
_PROPERTY = "claimed"

_logger = logging.getLogger(__name__)


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the job's own checkpoints say of it, for a later run that has to delete it."""

    storage: str
    job: str
    checkpoint: int
    epoch: int
    """That of the claim to the other job's folder. Who has a higher one has it back."""


@dataclass
class ClaimedCheckpoint:
    """A checkpoint in another job's folder, counted as the oldest of this job's own.

    `release` and `properties` are for one thread, `step` and `owes` for another, the sweeper's.
    """

    job: JobStorage
    checkpoint_id: int
    epoch: int
    owner: JobOwner | None = None
    """The right to the other job's folder, in the run that has claimed it."""
    _is_released: bool = False
    _is_dropped: bool = False
    _is_gone: threading.Event = field(default_factory=threading.Event)

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint_id} at {self.job.url}"

    @property
    def is_kept(self) -> bool:
        """Whether the job can still be restored from it."""
        return not self._is_released

    @property
    def owes(self) -> bool:
        """Whether it is to be deleted, and not deleted yet."""
        return self._is_released and not self._is_gone.is_set()

    def release(self) -> None:
        """Have it deleted by `step`: the job has enough checkpoints of its own, or ends."""
        self._is_released = True

    def properties(self) -> dict[str, Any]:
        """What a checkpoint of the job says of it, as long as it is there."""
        if self._is_gone.is_set():
            return {}
        record = _Record(
            storage=self.job.storage.url,
            job=self.job.job_id,
            checkpoint=self.checkpoint_id,
            epoch=self.epoch,
        )
        return {_PROPERTY: msgspec.to_builtins(record)}

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
            if not self._is_there():
                self._is_gone.set()
                return 0
            self.owner = self.job.take_over(after=self.epoch)
        if not self._is_dropped:
            if self.checkpoint_id in self.owner.completed:
                self.owner.release_only(self.checkpoint_id)
            self._is_dropped = True
        deleted = self.owner.sweeper.step(most)
        if not self.owner.sweeper.owes:
            self._is_gone.set()
        return deleted

    def _is_there(self) -> bool:
        """Whether an earlier run has left it. Somebody may have removed all of the other job."""
        try:
            self.job.load(self.checkpoint_id)
        except NotFound:
            return False
        except Corrupt:
            return True
        return True


def claim(point: RestorePoint) -> ClaimedCheckpoint:
    """Take over the checkpoint of another job: whoever runs that is fenced.

    Raises:
        NotFound: the other job has just deleted it.
        Corrupt, Fenced, Invalid, Unavailable: as `JobStorage.take_over`.
    """
    other, number = point.job, point.metadata.checkpoint_id
    owner = other.take_over()
    if number not in owner.completed:
        raise NotFound(
            f"checkpoint {number} was deleted by its job before it could be claimed",
            where=other.url,
            expected=f"one of {owner.completed}" if owner.completed else "a checkpoint",
            fix="Restore from a newer one",
        )
    owner.hold(point.metadata)
    return ClaimedCheckpoint(other, number, owner.epoch, owner)


def claimed_before(
    properties: Mapping[str, Any],
    mine: CheckpointStorage,
    open_storage: OpenStorage = load_storage,
) -> ClaimedCheckpoint | None:
    """What an earlier run had claimed and not deleted, as a checkpoint of the job says.

    `open_storage` is as for `storage_at`.

    Raises:
        Corrupt: that is not what this version of Holdfast writes.
        Invalid: its storage cannot be opened.
    """
    if _PROPERTY not in properties:
        return None
    try:
        record = msgspec.convert(properties[_PROPERTY], _Record)
    except msgspec.ValidationError as error:
        raise Corrupt(
            "a checkpoint says of another one that it was claimed, and not which",
            expected="storage, job, checkpoint and epoch",
            found=f"{properties[_PROPERTY]!r} ({error})",
            fix="Restore another checkpoint",
        ) from error
    job = storage_at(record.storage, mine, open_storage).job(record.job)
    return ClaimedCheckpoint(job, record.checkpoint, record.epoch)
