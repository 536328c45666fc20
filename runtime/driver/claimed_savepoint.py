"""A savepoint that a job has claimed: it is deleted when newer checkpoints make it obsolete."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Invalid,
    NotFound,
    SavepointFolder,
    StateFolder,
    names,
)

__all__ = ["CLAIMED", "NOT_MARKED", "Claim", "ClaimedSavepoint"]

CLAIMED = b"A job has claimed this, and deletes it.\n"
NOT_MARKED = (
    "%s is listed as claimed, but its folder has no record of that, so it is kept. "
    "If it is not needed, delete %s yourself"
)
"""The document may be forged, or the job's folder may be a copy whose claims are another job's."""

_logger = logging.getLogger(__name__)


class Claim:
    """A claimed snapshot: it is deleted by steps, after it was released."""

    _is_released = False
    _is_gone: threading.Event

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
class ClaimedSavepoint(Claim):
    """Counted as the oldest of the job's own checkpoints; see `ClaimedCheckpoint`.

    A savepoint has no owner, so no run has to be fenced. Only the duty to delete it is claimed: the
    files that it lists, and no others in its folder.
    """

    folder: SavepointFolder
    epoch: int = 0
    by: str = ""
    """The mark of the job's folder; there is a record of it beside the savepoint."""
    _metadata: CheckpointMetadata | None = None
    _done: int = 0
    _is_released: bool = False
    _is_gone: threading.Event = field(default_factory=threading.Event)

    def __str__(self) -> str:
        return f"the savepoint at {self.folder.url}"

    def record(self) -> str | None:
        """The entry for a document of the job; None if it is deleted."""
        return None if self.is_gone else self.folder.url

    def mark(self) -> None:
        """Write a record beside it that this job deletes it. Raises `Unavailable`."""
        self.folder.storage.create(self._marker, CLAIMED)

    def is_marked(self) -> bool:
        """Whether that record exists: a document that lists a claim may be forged."""
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
                _logger.warning(NOT_MARKED, self, self.folder.url)
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
