"""When a call to a remote storage is made again: decided by the kind of trouble, with full jitter.

`RetryPolicy` decides, from facts alone; `Retries` does: it calls, asks the policy, and sleeps on
the clock. What says no (wrong credentials, no permission, a missing bucket) is never asked twice.
A library below must not retry by itself, or the times multiply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

from holdfast.storage.clock import Clock
from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import Invalid

__all__ = ["PAUSES", "Pauses", "Retries", "RetryPolicy", "Tried", "Trouble"]

_Answer = TypeVar("_Answer")


class Trouble(Enum):
    """Why a call failed that may work when it is made again."""

    THROTTLED = "throttled"
    """The store asks for fewer requests: 503 SlowDown, 429."""
    SERVER = "server"
    """The server failed, or is starting or in no state to serve: 500, 502, 504, a standby."""
    CONNECTION = "connection"
    """Refused, cut or silent: whether the call took effect is not known."""
    CONTENDED = "contended"
    """Somebody changes the same object at this moment, and neither was served."""
    CLOCK = "clock"
    """The store finds the request too old: it waited for long, or a clock is wrong."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Before attempt n + 1: a random time up to `base_s * 2 ** (n - 1)`, never over `cap_s`."""

    base_s: float
    cap_s: float
    max_attempts: int | None = None
    """Give up earlier than the policy says."""


PAUSES: Mapping[Trouble, Pauses] = MappingProxyType(
    {
        Trouble.THROTTLED: Pauses(base_s=0.5, cap_s=20.0),
        Trouble.SERVER: Pauses(base_s=0.2, cap_s=10.0),
        Trouble.CONNECTION: Pauses(base_s=0.1, cap_s=5.0),
        Trouble.CONTENDED: Pauses(base_s=0.05, cap_s=1.0),
        Trouble.CLOCK: Pauses(base_s=0.1, cap_s=1.0, max_attempts=3),
    }
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often one call is made, and for how long.

    No attempt begins more than `timeout_s` after the first one. So a call ends, one way or the
    other, within `timeout_s` and the time that one attempt may take.
    """

    max_attempts: int = 8
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise Invalid(
                "option max_attempts is out of range",
                expected="a whole number, 1 or more",
                found=repr(self.max_attempts),
            )
        if type(self.timeout_s) not in (int, float) or not 0 <= self.timeout_s < float("inf"):
            raise Invalid(
                "option retry_timeout_s is out of range",
                expected="seconds, 0 or more",
                found=repr(self.timeout_s),
            )

    def pause_s(
        self, trouble: Trouble, *, attempts: int, elapsed_s: float, entropy: Entropy
    ) -> float | None:
        """How long to wait before the next attempt; None to give up.

        `attempts` were made, all of which failed, in `elapsed_s`.
        """
        pauses = PAUSES[trouble]
        if attempts >= min(self.max_attempts, pauses.max_attempts or self.max_attempts):
            return None
        longest_s = min(pauses.cap_s, pauses.base_s * 2.0 ** min(attempts - 1, 60))
        pause_s = entropy.uniform(0.0, longest_s)
        return pause_s if elapsed_s + pause_s <= self.timeout_s else None


@dataclass(frozen=True, slots=True)
class Tried:
    """What was done before giving up."""

    attempts: int
    elapsed_s: float

    def __str__(self) -> str:
        if self.attempts == 1:
            return "tried once"
        return f"tried {self.attempts} times in {self.elapsed_s:.1f} s"


def _always() -> bool:
    return True


class Retries:
    """Makes calls again as a policy says. Safe to use from many threads."""

    def __init__(self, policy: RetryPolicy, clock: Clock, entropy: Entropy) -> None:
        self._policy = policy
        self._clock = clock
        self._entropy = entropy

    def run(
        self,
        call: Callable[[], _Answer],
        *,
        trouble_of: Callable[[Exception], Trouble | None],
        failed: Callable[[Exception, Tried], Exception],
        wanted: Callable[[], bool] = _always,
    ) -> _Answer:
        """What `call` answers; it is made again while that can help.

        Args:
            call: safe to be made again, also when an earlier one took effect without an answer.
            trouble_of: whether it can help; None when it cannot.
            failed: the error to raise in the end, for the last one and what was tried. It is
                raised as it is: chained only if it says so itself, by its `__cause__`.
            wanted: whether the caller still waits for an answer; asked after each pause.
        """
        begun_s = self._clock.monotonic_s()
        attempts = 0
        while True:
            attempts += 1
            try:
                return call()
            except Exception as error:  # noqa: BLE001 (the caller says what it means)
                failure = error
            tried = Tried(attempts, self._clock.monotonic_s() - begun_s)
            trouble = trouble_of(failure)
            pause_s = trouble and self._policy.pause_s(
                trouble,
                attempts=attempts,
                elapsed_s=tried.elapsed_s,
                entropy=self._entropy,
            )
            if pause_s is not None:
                self._clock.sleep_s(pause_s)
            if pause_s is None or not wanted():
                # Not in the handler: Python would chain the library's error, with what it holds.
                raise failed(failure, tried)
