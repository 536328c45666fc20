"""The record of a failed attempt, as job handles show it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.runtime.api.errors import JobFailed
from holdfast.runtime.driver.failure.repeated_failures import Repeat
from holdfast.runtime.driver.outcomes import Unsuccessful

__all__ = ["Failure", "failure_of", "job_failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt has failed."""

    attempt: int
    failed_ms: int
    """When, in milliseconds since 1970."""
    summary: str
    """In one line."""
    count: int = 1
    """How often in a row it has occurred, with no checkpoint that got past it."""
    uid: str | None = None
    """The operator or source that failed; None if neither did."""
    traceback: str = ""
    """The traceback of the user's code, or the error of Spark; empty if there is none."""

    def __str__(self) -> str:
        return f"{self.summary}\n\n{self.traceback}" if self.traceback else self.summary


def failure_of(outcome: Unsuccessful, repeat: Repeat, *, attempt: int, failed_ms: int) -> Failure:
    """The failure that ended an attempt."""
    return Failure(
        attempt=attempt,
        failed_ms=failed_ms,
        summary=f"{outcome.reason}{repeat.told}",
        count=repeat.count,
        uid=outcome.uid,
        traceback=outcome.details.rstrip(),
    )


def job_failed(failure: Failure) -> JobFailed:
    """The error of the job, for the failure after which no attempt followed."""
    return JobFailed(failure.summary, uid=failure.uid, traceback=failure.traceback)
