"""Requests for savepoints, and the results that the callers wait for."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.storage import HoldfastError, SavepointFolder

__all__ = ["SavepointOrder", "SavepointPurpose", "SavepointRequest"]


class SavepointPurpose(Enum):
    """What follows when a savepoint is complete."""

    KEEP_RUNNING = "keep running"
    """Nothing: the job goes on, and its sinks commit with its checkpoints as ever."""
    CANCEL = "cancel"
    """The job is cancelled, and completes no checkpoint in between: nothing is committed that the
    savepoint does not have."""
    STOP = "stop"
    """The job ends, where its sources are. Its sinks commit what they wrote before."""
    DRAIN = "drain"
    """The same, after its sources have been ended, and all that waited for that is flushed."""

    @property
    def ends_job(self) -> bool:
        """Whether the job ends with it, by itself."""
        return self in (SavepointPurpose.STOP, SavepointPurpose.DRAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointRequest:
    """A savepoint that is asked for, as plain data: what the coordinator and its commands know."""

    url: str
    """Where it goes: its folder, which no other savepoint has."""
    format: SavepointFormat
    purpose: SavepointPurpose


@dataclass(eq=False)
class SavepointOrder:
    """One requested savepoint. The first outcome that is reported counts."""

    folder: SavepointFolder
    format: SavepointFormat
    purpose: SavepointPurpose = SavepointPurpose.KEEP_RUNNING
    outcome: Future[None] = field(default_factory=Future)
    """Done when the savepoint is complete, or will never be."""
    ended: Future[None] = field(default_factory=Future)
    """Of one that ends the job and is complete: done when the job has ended, or goes on after all.
    """
    is_stored: bool = False
    """Whether it is stored, and its waiting callers are about to be answered."""
    is_needed: bool = False
    """Whether the job may go on from it one day: then only its user may delete it."""
    directory: str = field(default="", repr=False)
    """What slots open the storage of the folder by: as its user has named it, with a password if
    there is one in it; or the URL of that storage."""

    def __post_init__(self) -> None:
        self.directory = self.directory or self.folder.storage.url

    @property
    def request(self) -> SavepointRequest:
        return SavepointRequest(url=self.folder.url, format=self.format, purpose=self.purpose)

    @property
    def ends_job(self) -> bool:
        return self.purpose.ends_job

    @property
    def cancels_job(self) -> bool:
        return self.purpose is SavepointPurpose.CANCEL

    @property
    def is_complete(self) -> bool:
        """Whether it is there, whole."""
        return self.outcome.done() and self.outcome.exception() is None

    @property
    def has_ended_job(self) -> bool:
        """Whether it is complete, and the job ends with it, or fails while it does."""
        return self.is_complete and self.ends_job

    @property
    def is_decided(self) -> bool:
        return self.outcome.done()

    def complete(self) -> None:
        """It is there, whole."""
        with suppress(InvalidStateError):
            self.outcome.set_result(None)

    def end(self, error: HoldfastError | None = None) -> None:
        """The job has ended after it, or has not."""
        with suppress(InvalidStateError):
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)

    def fail(self, error: HoldfastError) -> bool:
        """It will never be; False if something else was said before."""
        try:
            self.outcome.set_exception(error)
        except InvalidStateError:
            return False
        return True
