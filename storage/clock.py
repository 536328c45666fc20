"""The only module that asks the machine what time it is.

Components take a `Clock`, so that a test or a simulation decides how time passes. No other module
calls `time.time`, `time.monotonic` or `time.sleep`; lint and `tests/test_tidy.py` check that.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """The time, as components see it. Safe to call from any thread."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch: for people and for time to live. May jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment: for durations and deadlines. Never goes back."""
        ...

    def sleep_s(self, seconds: float) -> None:
        """Return after `seconds` have passed on this clock."""
        ...

    def wait_s(self, event: threading.Event, seconds: float) -> bool:
        """Return when the event is set, or as `sleep_s` does; whether it is set."""
        ...


class SystemClock:
    """The machine's clock. Stateless, so it pickles as nothing."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep_s(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait_s(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)


class ManualClock:
    """A clock that stands still until a test moves it; sleeping moves it too."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._now_ms / 1000

    def sleep_s(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def wait_s(self, event: threading.Event, seconds: float) -> bool:
        if not event.is_set():
            self.sleep_s(seconds)
        return event.is_set()

    def advance(self, milliseconds: int) -> None:
        """Move time on by `milliseconds`."""
        self._now_ms += milliseconds
