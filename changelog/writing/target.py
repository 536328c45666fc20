"""Which operator is logged, and where its log is written."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.neutral import Segments
from holdfast.changelog.options import ChangelogOptions
from holdfast.changelog.writing.local_copies import LocalCopies
from holdfast.changelog.writing.uploader import LogUploader
from holdfast.storage import JobStorage

__all__ = ["LogTarget", "LoggedOperator", "SharedFiles"]


@dataclass(frozen=True, slots=True)
class LoggedOperator:
    """The operator and key groups that are logged; `token` identifies the log uniquely."""

    uid: str
    key_groups: KeyGroupRange
    max_parallelism: int
    options: ChangelogOptions
    token: str


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Where state is written between checkpoints, and the first number for file names."""

    job: JobStorage
    uploader: LogUploader | None
    """None if the storage keeps no files."""
    first_checkpoint_id: int
    copies: LocalCopies | None = None
    compression: str = ""


class SharedFiles:
    """A snapshot target whose files later checkpoints may all refer to."""

    def __init__(self, job: JobStorage) -> None:
        self._job = job

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        return self._job.shared_segments(checkpoint_id, label, compression=compression)

    shared_segments = segments
    log_segments = segments

    def table_file(self, checkpoint_id: int, path: str) -> Segments:
        return self._job.table_file(checkpoint_id, path)
