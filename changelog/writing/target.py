"""Whose state is logged, and where the log goes."""

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
    """Whose state is logged, and how; `token` is a word that no other log has."""

    uid: str
    key_groups: KeyGroupRange
    max_parallelism: int
    options: ChangelogOptions
    token: str


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Where state is written between checkpoints, and the first number that files may bear."""

    job: JobStorage
    uploader: LogUploader | None
    """None where the storage keeps no files."""
    first_checkpoint_id: int
    copies: LocalCopies | None = None
    compression: str = ""


class SharedFiles:
    """A target of which every file may be referred to by later checkpoints."""

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
