"""A job's checkpoints, as any reader or slot sees them; `CheckpointStorage.job` opens it.

Committing, retention and cleaning need the right to do so: `take_over` answers a `JobOwner`.
"""

from __future__ import annotations

from holdfast.storage import names
from holdfast.storage.errors import Corrupt
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.jobs import decisions
from holdfast.storage.jobs.damage import restore_advice
from holdfast.storage.jobs.folder import JobFolder, job_id_of
from holdfast.storage.jobs.metadata import CheckpointMetadata
from holdfast.storage.jobs.owner import JobOwner
from holdfast.storage.segments.reader import StateFolder
from holdfast.storage.segments.writer import SegmentWriter

__all__ = ["JobStorage", "job_in", "with_restore_advice"]


class JobStorage(JobFolder):
    """The folder of one job in a storage. Light, picklable, safe to use from any thread."""

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
        """A writer as of `shared_segments`, whose first few bytes may be inline."""
        file = names.shared_file(checkpoint_id, label, self.storage.entropy.token())
        return SegmentWriter(self.storage, self.folder, file, compression=compression)

    def table_file(self, checkpoint_id: int, path: str) -> SegmentWriter:
        """A writer for a file of one checkpoint alone with a single segment: a table.

        Never inline, unless the storage keeps state in memory only.
        """
        file = names.exclusive_table(checkpoint_id, path, self.storage.entropy.token())
        return SegmentWriter(self.storage, self.folder, file, inline_limit_bytes=0)

    def load(self, checkpoint_id: int) -> CheckpointMetadata:
        """The metadata of one completed checkpoint.

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
            raise self.no_checkpoint(checkpoint_id)
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
        return error.replaced(
            what=f"checkpoint {checkpoint_id} of job {self.job_id!r} is damaged: {error.what}",
            fix=restore_advice(self, checkpoint_id),
        )

    def take_over(self, *, reopen: bool = False) -> JobOwner:
        """Claim the job: from now on only the answer may commit, and older owners are fenced.

        A job that has ended stays so, and its new owner cannot commit. With `reopen` it begins
        again: its result no longer counts.

        Raises:
            Invalid: the storage cannot be written to as it is set up, or something in the folder
                was written in a newer format; the older owner goes on.
            Fenced: another process took over at the same time.
            Corrupt: an owner's record is damaged; the older owner goes on.
            Unavailable: the storage did not answer; calling again is safe.
        """
        return JobOwner.claim(self, reopen=reopen)

    def resume(self, epoch: int) -> JobOwner:
        """Regain the right of an earlier claim, to go on with deleting. Changes nothing.

        The process that made the claim may still run: then both may delete the same objects.
        Neither may commit.

        Raises:
            Fenced: another process has taken over since, or the folder was emptied.
            Corrupt, Invalid, Unavailable: as `take_over`.
        """
        return JobOwner.resume(self, epoch)


def job_in(storage: ObjectStorage, folder: str) -> JobStorage:
    """The job whose folder this is, by the folder's name in a storage.

    Raises as `job_id_of` does.
    """
    return JobStorage(storage, job_id_of(storage, folder))


def with_restore_advice(told: str, error: Corrupt, folder: StateFolder, checkpoint_id: int) -> str:
    """The text about a damaged checkpoint, with the advice what to restore instead.

    Savepoints have no older ones.
    """
    if not isinstance(folder, JobStorage):
        return told
    advice = restore_advice(folder, checkpoint_id)
    if advice in told:
        return told
    if error.fix and error.fix in told:
        return told.replace(error.fix, advice)
    return f"{told}. {advice}" if told else advice
