"""Phases of an attempt, and the outcomes that it can end with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.runtime.driver.events import SourceFailed
from holdfast.runtime.protocol.messages import Failed

__all__ = [
    "AttemptPhase",
    "Cancelled",
    "FailureKind",
    "Outcome",
    "Succeeded",
    "Unsuccessful",
    "classify_slot_failure",
    "classify_source_failure",
    "first_line_of",
]


class AttemptPhase(Enum):
    """What an attempt is doing at the moment."""

    DEPLOYING = "deploying"
    """Slots are being started."""
    OPENING = "opening"
    """Slots restore their state."""
    RUNNING = "running"
    FINISHING = "finishing"
    """All slots have finished their input, and are told to close."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """All rows of the sources are processed and committed; sources have ended or were stopped."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Cancellation was requested."""


class FailureKind(Enum):
    """Classes of failures, by whether another attempt may help."""

    USER_CODE = "user code"
    """A user's function raised an error that its environment does not explain, or Spark met a
    record or a value that it cannot read."""
    SLOT_KILLED = "slot killed"
    """The process of a slot is gone: alone, or with an executor that ran out of memory."""
    OTHER = "other"
    """A machine, a network, a storage, or Spark: another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Unsuccessful:
    """The attempt has failed. If `is_fatal`, another attempt would fail in the same way."""

    reason: str
    details: str = ""
    is_fatal: bool = False
    uid: str | None = None
    """The operator or source that failed; None if neither did."""
    kind: FailureKind = FailureKind.OTHER
    fault: str = ""
    """Identifies the failure among others; empty: `reason` does."""


Outcome = Succeeded | Cancelled | Unsuccessful


def classify_slot_failure(event: Failed) -> Unsuccessful:
    """The outcome for a failure that a slot has reported."""
    where = f"operator {event.uid!r}" if event.uid else f"slot {event.slot}"
    prefix = "" if event.uid and event.uid in event.summary else f"{where} failed: "
    kind = FailureKind.USER_CODE if event.is_users else FailureKind.OTHER
    reason = f"{prefix}{event.summary}"
    return Unsuccessful(reason, event.traceback, event.is_fatal, event.uid, kind)


def classify_source_failure(event: SourceFailed) -> Unsuccessful:
    """The outcome for a failure that a source has reported."""
    reason = f"source {event.uid!r} failed: {event.summary}"
    kind = FailureKind.USER_CODE if event.fault else FailureKind.OTHER
    return Unsuccessful(reason, event.details, event.is_fatal, event.uid, kind, event.fault)


def first_line_of(error: Exception) -> str:
    """The error in one line; errors of Spark carry the stack of the JVM."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else repr(error)
