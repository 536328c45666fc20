"""`CheckpointStorage`: the base class of every storage, which gives jobs their folders."""

from __future__ import annotations

from holdfast.storage.interface import ObjectStorage
from holdfast.storage.jobs.job import JobStorage

__all__ = ["CheckpointStorage"]


class CheckpointStorage(ObjectStorage):
    """A place for finished checkpoints. `ObjectStorage` says what each verb owes.

    Apart from it, so that a job's folder is written against the verbs alone and imports point
    down: places, this class, jobs, segments, the verbs.
    """

    def job(self, job_id: str) -> JobStorage:
        """The folder of one job: its checkpoints, their files, and its owner."""
        return JobStorage(self, job_id)
