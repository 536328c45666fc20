"""What the driver does when it is asked: each request by the job's own handle."""

from __future__ import annotations

from typing import Any

from holdfast.runtime.control.messages import (
    Cancel,
    CancelWithSavepoint,
    Describe,
    Ended,
    Request,
    SavepointTaken,
    StopWithSavepoint,
    TakeSavepoint,
    TriggerCheckpoint,
)
from holdfast.runtime.control.registry import Registration
from holdfast.runtime.control.reports import job_report
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.run import JobStatus
from holdfast.storage import Unavailable

__all__ = ["carry_out"]


def carry_out(request: Request, handle: JobHandle, registration: Registration) -> Any:
    """Do what is asked; what came of it is of the type that the request names.

    Raises:
        HoldfastError: it cannot be done.
    """
    match request:
        case Describe():
            return job_report(handle, registration)
        case TriggerCheckpoint():
            if handle.status is not JobStatus.RUNNING:
                raise Unavailable(
                    "no checkpoint can be taken at the moment",
                    where=f"job {registration.job!r}",
                    expected="a job that is running",
                    found=f"it is {handle.status.value}",
                    fix="Try again when it runs",
                )
            report = job_report(handle, registration)
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
