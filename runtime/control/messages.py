"""The HTTP API of a running job's driver: routes, requests and answers, all of them JSON.

A call bears the secret of the run (`Authorization: Bearer <token>`). Its route carries the version
of this API. Requests may not have fields that the driver does not know: it does what is asked, or
refuses. Answers may have more fields than the command knows.

A response may begin with line feeds: the driver sends one each second while it carries out the
request. Its status is then 200 whatever the outcome, so read the outcome from the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from holdfast.runtime.checkpoint.statistics import CheckpointCounts
from holdfast.runtime.protocol.checkpoints import OperatorStatistics, SlotStatistics
from holdfast.runtime.protocol.error_data import ErrorData

__all__ = [
    "ROUTES",
    "Answer",
    "Cancel",
    "CancelWithSavepoint",
    "CheckpointReport",
    "Describe",
    "Ended",
    "FailureReport",
    "JobReport",
    "Request",
    "SavepointTaken",
    "StopWithSavepoint",
    "TakeSavepoint",
    "TriggerCheckpoint",
]


class Describe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Describe the job: a `JobReport`."""


class TriggerCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Trigger a checkpoint: the `JobReport` from just before.

    Refused while the job is not running: the checkpoint would never begin.
    """


class Cancel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stop the job, and answer when it has ended: `Ended`."""


class TakeSavepoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take a savepoint while the job continues: `SavepointTaken`.

    Without a directory, or a form, the job's defaults apply; likewise in the next two.
    """

    directory: str | None = None
    form: str | None = None


class StopWithSavepoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """End the job with a savepoint, and answer when it has ended: `SavepointTaken`."""

    directory: str | None = None
    form: str | None = None
    drain: bool = False


class CancelWithSavepoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take a savepoint, cancel the job, and answer when it has ended: `SavepointTaken`."""

    directory: str | None = None
    form: str | None = None


Request: TypeAlias = (
    Describe | TriggerCheckpoint | Cancel | TakeSavepoint | StopWithSavepoint | CancelWithSavepoint
)

ROUTES: Mapping[type[Request], str] = {
    Describe: "GET /v1/job",
    TriggerCheckpoint: "POST /v1/checkpoints",
    TakeSavepoint: "POST /v1/savepoints",
    Cancel: "POST /v1/cancel",
    CancelWithSavepoint: "POST /v1/cancel-with-savepoint",
    StopWithSavepoint: "POST /v1/stop-with-savepoint",
}
"""Method and path of each request; the body of a POST is the request."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a response: a result of the type that the request names, or an error."""

    result: msgspec.Raw = msgspec.Raw()
    error: ErrorData | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a job has ended."""

    status: str


class SavepointTaken(msgspec.Struct, frozen=True, kw_only=True):
    """A savepoint that is complete."""

    path: str
    """Its folder: a URL."""
    status: str
    """The status of the job."""


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """Why one attempt has failed."""

    attempt: int
    failed_ms: int
    summary: str


class CheckpointReport(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint or savepoint."""

    checkpoint: int
    status: str
    trigger: str
    triggered_ms: int
    ended_ms: int | None = None
    size_bytes: int = 0
    written_bytes: int = 0
    reason: str = ""
    folder: str = ""
    """Where a completed one is; a checkpoint may have been deleted since, as `retained` says."""
    is_savepoint: bool = False
    slots: dict[str, SlotStatistics] = {}
    """By the number of the slot; those that have answered. Without operators."""
    operators: dict[str, OperatorStatistics] = {}
    """By uid, over all slots: the longest times, and sizes in all."""


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """A running job at one moment."""

    job: str
    run: str
    """Identifies this run among those of jobs of the same name."""
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
