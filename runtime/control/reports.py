"""What the driver of a job answers of it: plain data, out of what its handle tells."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.runtime.checkpoint import CheckpointOverview, CheckpointStatistics, CheckpointStatus
from holdfast.runtime.control.messages import (
    CheckpointCounts,
    CheckpointReport,
    FailureReport,
    JobReport,
)
from holdfast.runtime.control.registry import Registration
from holdfast.runtime.driver.handle import JobHandle
from holdfast.storage import names

__all__ = ["job_report"]

_KEPT_FAILURES = 10
_LONGEST_TEXT = 4000
"""Of a failure or of trouble: an error may hold what a server has answered."""


def job_report(handle: JobHandle, registration: Registration) -> JobReport:
    """How the job is at this moment."""
    overview = handle.checkpoints()
    metrics = handle.metrics()
    last, saved = overview.last_completed, overview.last_savepoint
    return JobReport(
        job=registration.job,
        run=registration.run,
        status=handle.status.value,
        pid=registration.pid,
        host=registration.host,
        started_ms=registration.started_ms,
        storage=registration.storage,
        holdfast_version=registration.holdfast_version,
        attempts=metrics["attempts"],
        trouble=_bounded(handle.trouble),
        failures=tuple(
            FailureReport(
                attempt=failure.attempt,
                failed_ms=failure.failed_ms,
                summary=_bounded(failure.summary),
            )
            for failure in handle.failure_details[-_KEPT_FAILURES:]
        ),
        counts=_counts(overview),
        checkpoints=tuple(_checkpoint(each, registration) for each in overview.recent),
        last_completed=None if last is None else _checkpoint(last, registration),
        last_savepoint=None if saved is None else _checkpoint(saved, registration),
        metrics=_with_texts_for_keys(metrics),
    )


def _counts(overview: CheckpointOverview) -> CheckpointCounts:
    counts = overview.counts
    return CheckpointCounts(
        begun=counts.begun,
        completed=counts.completed,
        failed=counts.failed,
        aborted=counts.aborted,
    )


def _checkpoint(known: CheckpointStatistics, registration: Registration) -> CheckpointReport:
    number = known.checkpoint_id
    is_completed = known.status is CheckpointStatus.COMPLETED
    folder = known.savepoint or f"{registration.storage}/{names.checkpoint_folder(number)}"
    reason = "" if known.reason is None else known.reason.value
    return CheckpointReport(
        checkpoint=number,
        status=known.status.value,
        trigger=known.trigger.value,
        triggered_ms=known.triggered_ms,
        ended_ms=known.ended_ms,
        size_bytes=known.size_bytes,
        written_bytes=known.written_bytes,
        reason=_bounded(": ".join(filter(None, (reason, known.detail)))),
        folder=folder if is_completed else "",
        is_savepoint=known.savepoint is not None,
    )


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _with_texts_for_keys(metrics: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(metrics, str_keys=True)
    return plain
