"""Carries out requests by the job's own handle, in the driver."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.runtime.checkpoint.statistics import CheckpointStatistics, CheckpointStatus
from holdfast.runtime.control.messages import (
    Cancel,
    CancelWithSavepoint,
    CheckpointReport,
    Describe,
    Ended,
    FailureReport,
    JobReport,
    Request,
    SavepointTaken,
    StopWithSavepoint,
    TakeSavepoint,
    TriggerCheckpoint,
)
from holdfast.runtime.control.registry import Registration
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.run import JobStatus
from holdfast.storage import Unavailable, names

__all__ = ["carry_out"]

_KEPT_FAILURES = 10
_LONGEST_TEXT = 4000
"""Limit of the text of a failure or trouble: an error may hold a whole answer of a server."""


def carry_out(request: Request, handle: JobHandle, registration: Registration) -> Any:
    """Do what is asked; the result is of the type that the request names.

    Raises:
        HoldfastError: it cannot be done.
    """
    match request:
        case Describe():
            return _job_report(handle, registration)
        case TriggerCheckpoint():
            if handle.status is not JobStatus.RUNNING:
                raise Unavailable(
                    "no checkpoint can be taken at the moment",
                    where=f"job {registration.job!r}",
                    expected="a job that is running",
                    found=f"it is {handle.status.value}",
                    fix="Try again when it runs",
                )
            report = _job_report(handle, registration)
            handle.trigger_checkpoint()
            return report
        case Cancel():
            handle.cancel()
            return Ended(status=handle.status.value)
        case TakeSavepoint(directory=directory, form=form):
            return _taken(handle, handle.trigger_savepoint(directory, **_said(form)))
        case StopWithSavepoint(directory=directory, form=form, drain=drain):
            path = handle.stop_with_savepoint(directory, drain=drain, **_said(form))
            return _taken(handle, path)
        case CancelWithSavepoint(directory=directory, form=form):
            return _taken(handle, handle.cancel_with_savepoint(directory, **_said(form)))


def _taken(handle: JobHandle, path: str) -> SavepointTaken:
    return SavepointTaken(path=path, status=handle.status.value)


def _said(form: str | None) -> dict[str, str]:
    return {} if form is None else {"format": form}


def _job_report(handle: JobHandle, registration: Registration) -> JobReport:
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
        counts=overview.counts,
        checkpoints=tuple(_checkpoint(each, registration) for each in overview.recent),
        last_completed=None if last is None else _checkpoint(last, registration),
        last_savepoint=None if saved is None else _checkpoint(saved, registration),
        metrics=msgspec.to_builtins(metrics, str_keys=True),
    )


def _checkpoint(known: CheckpointStatistics, registration: Registration) -> CheckpointReport:
    folder = f"{registration.storage}/{names.checkpoint_folder(known.checkpoint_id)}"
    reason = "" if known.reason is None else known.reason.value
    # Operators by slot would be too much for one answer of a job with many of both.
    slots = {slot: replace(each, operators={}) for slot, each in known.slots.items()}
    # All fields that both have go by their names.
    told = msgspec.to_builtins(dataclasses.replace(known, slots=slots), str_keys=True) | {
        "operators": msgspec.to_builtins(known.operators),
        "checkpoint": known.checkpoint_id,
        "reason": _bounded(": ".join(filter(None, (reason, known.detail)))),
        "folder": known.savepoint or folder if known.status is CheckpointStatus.COMPLETED else "",
        "is_savepoint": known.savepoint is not None,
    }
    return msgspec.convert(told, CheckpointReport)


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
