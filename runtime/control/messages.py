"""What a command line and the driver of a running job say to each other.

Each connection carries one call and one answer, in JSON. A call bears the version of this protocol
and the secret of the job; what it asks for is looked at after both. Requests may not have fields
that the driver does not know: what somebody asks for is done, or refused. Answers may have more
than the command line knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from holdfast.runtime.protocol.error_data import ToldError

__all__ = [
    "PROTOCOL",
    "Answer",
    "Answered",
    "Call",
    "Cancel",
    "CancelWithSavepoint",
    "CheckpointCounts",
    "CheckpointReport",
    "Describe",
    "Ended",
    "FailureReport",
    "JobReport",
    "Pulse",
    "Refused",
    "Request",
    "SavepointTaken",
    "StopWithSavepoint",
    "TakeSavepoint",
    "TriggerCheckpoint",
]

PROTOCOL = 1
"""The version of what is said here."""


class Describe(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Tell how the job is: a `JobReport`."""


class TriggerCheckpoint(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Have a checkpoint taken: the `JobReport` from just before it was asked for.

    A job that does not run at the moment refuses: nothing would come of it.
    """


class Cancel(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Stop the job, and answer when it has ended: `Ended`."""


class TakeSavepoint(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Take a savepoint while the job runs on: `SavepointTaken`.

    Without a directory, or a form, it is what the job has by default; so for the next two.
    """

    directory: str | None = None
    form: str | None = None


class StopWithSavepoint(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """End the job with a savepoint, and answer when it has ended: `SavepointTaken`."""

    directory: str | None = None
    form: str | None = None
    drain: bool = False


class CancelWithSavepoint(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Take a savepoint, cancel the job, and answer when it has ended: `SavepointTaken`."""

    directory: str | None = None
    form: str | None = None


Request: TypeAlias = (
    Describe | TriggerCheckpoint | Cancel | TakeSavepoint | StopWithSavepoint | CancelWithSavepoint
)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The frame that a command line sends."""

    version: int
    token: str
    request: msgspec.Raw

    def __repr__(self) -> str:
        """Without the secret: this ends up in logs."""
        return f"Call(version={self.version})"


class Pulse(msgspec.Struct, frozen=True, tag=True):
    """The driver lives, and is at work on it; an answer will follow."""


class Answered(msgspec.Struct, frozen=True, tag=True):
    """It was done; what came of it is of the type that the request names."""

    body: msgspec.Raw


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It was not done, or failed."""

    error: ToldError


Answer: TypeAlias = Pulse | Answered | Refused


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a job has ended."""

    status: str


class SavepointTaken(msgspec.Struct, frozen=True, kw_only=True):
    """A savepoint that is complete."""

    path: str
    """Its folder: a URL."""
    status: str
    """What the job does, or how it has ended."""


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """Why one attempt has failed."""

    attempt: int
    failed_ms: int
    summary: str


class CheckpointReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one checkpoint or savepoint."""

    checkpoint: int
    status: str
    trigger: str
    triggered_ms: int
    ended_ms: int | None = None
    size_bytes: int = 0
    written_bytes: int = 0
    reason: str = ""
    folder: str = ""
    """Where it is, for one that was completed; a checkpoint may have been deleted since, as
    `retained` says."""
    is_savepoint: bool = False


class CheckpointCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many there have been in this run."""

    begun: int
    completed: int
    failed: int
    aborted: int


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """A running job at one moment."""

    job: str
    run: str
    """What tells this run from others of a job of the same name."""
    status: str
    pid: int
    host: str
    started_ms: int
    storage: str
    """The folder of its checkpoints."""
    holdfast_version: str
    attempts: int
    trouble: str
    failures: tuple[FailureReport, ...]
    """The last ones, the latest last."""
    counts: CheckpointCounts
    checkpoints: tuple[CheckpointReport, ...]
    """Those under way and the last ones that have ended, ascending."""
    last_completed: CheckpointReport | None
    """The newest checkpoint; no savepoint."""
    last_savepoint: CheckpointReport | None = None
    metrics: Mapping[str, Any]
    """As `JobHandle.metrics`, with texts for keys."""
