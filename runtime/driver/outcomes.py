"""What an attempt of a job is doing, and how it may end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.runtime.network import Failed

__all__ = [
    "Cancelled",
    "Outcome",
    "Phase",
    "Succeeded",
    "Unsuccessful",
    "failure_in",
    "first_line_of",
    "has_died",
]


class Phase(Enum):
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


@dataclass(frozen=True, slots=True)
class Unsuccessful:
    """The attempt has failed; `is_fatal`: so would another one."""

    reason: str
    details: str = ""
    is_fatal: bool = False
    uid: str | None = None
    """The operator or source in which it happened, if it is one."""


Outcome = Succeeded | Cancelled | Unsuccessful


def failure_in(event: Failed) -> Unsuccessful:
    """How an attempt ends by what a slot says."""
    where = f"operator {event.uid!r}" if event.uid else f"slot {event.slot}"
    prefix = "" if event.uid and event.uid in event.summary else f"{where} failed: "
    return Unsuccessful(f"{prefix}{event.summary}", event.traceback, event.is_fatal, event.uid)


def first_line_of(error: Exception) -> str:
    """In one line: errors of Spark come with the stack of the JVM."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else repr(error)


def has_died(error: str | None) -> bool:
    """Whether Spark says that a process of Python is gone."""
    return error is not None and "Python worker exited unexpectedly" in error
