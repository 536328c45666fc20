"""What an attempt of a job is doing, and how it may end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.runtime.driver.events import SourceFailed
from holdfast.runtime.network import Failed

__all__ = [
    "AttemptPhase",
    "Cancelled",
    "FailureKind",
    "Outcome",
    "Succeeded",
    "Unsuccessful",
    "failure_in",
    "first_line_of",
    "source_failure_in",
]


class AttemptPhase(Enum):
    """What an attempt is doing."""

    DEPLOYING = "deploying"
    """Slots are being started."""
    OPENING = "opening"
    """Slots restore their state."""
    RUNNING = "running"
    FINISHING = "finishing"
    """All slots have finished, and are being told that this is all."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """All that the sources gave is processed and committed: they have ended, or were stopped."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody wanted the job to stop."""


class FailureKind(Enum):
    """What has failed, as far as it matters for whether trying again may help."""

    USER_CODE = "user code"
    """A function of the user's raised what has nothing to do with the world around it, or Spark met
    a record or a value that it cannot read."""
    SLOT_KILLED = "slot killed"
    """The process of a slot is gone: alone, or with its executor for want of memory."""
    OTHER = "other"
    """A machine, a network, a storage, Spark: what may be better the next time."""


@dataclass(frozen=True, slots=True)
class Unsuccessful:
    """The attempt has failed; `is_fatal`: so would another one."""

    reason: str
    details: str = ""
    is_fatal: bool = False
    uid: str | None = None
    """The operator or source in which it happened, if it is one."""
    kind: FailureKind = FailureKind.OTHER
    fault: str = ""
    """What makes it the same as another failure; empty if the reason does."""


Outcome = Succeeded | Cancelled | Unsuccessful


def failure_in(event: Failed) -> Unsuccessful:
    """How an attempt ends by what a slot says."""
    where = f"operator {event.uid!r}" if event.uid else f"slot {event.slot}"
    prefix = "" if event.uid and event.uid in event.summary else f"{where} failed: "
    kind = FailureKind.USER_CODE if event.is_users else FailureKind.OTHER
    reason = f"{prefix}{event.summary}"
    return Unsuccessful(reason, event.traceback, event.is_fatal, event.uid, kind)


def source_failure_in(event: SourceFailed) -> Unsuccessful:
    """How an attempt ends by what a source says."""
    reason = f"source {event.uid!r} failed: {event.summary}"
    kind = FailureKind.USER_CODE if event.fault else FailureKind.OTHER
    return Unsuccessful(reason, event.details, event.is_fatal, event.uid, kind, event.fault)


def first_line_of(error: Exception) -> str:
    """In one line: errors of Spark come with the stack of the JVM."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else repr(error)
