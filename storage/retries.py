"""Retries and backoff, the same for the whole house.

- `Backoff` computes pauses that double.
- `repeat_while_unavailable` repeats a call while it raises `Unavailable`.
- `Retries` repeats requests to a remote storage. `RetryPolicy` decides from facts alone, by the
  kind of trouble and with full jitter; `Retries` calls, asks the policy and sleeps on the clock. A
  refusal (wrong credentials, no permission, a missing bucket) is never repeated. A library below
  must not retry by itself, or the times multiply.

Every call may be made again: a write has the same bytes under the same name, a create compares what
it finds, a delete may find nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

from holdfast.storage.clock import Clock
from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import Unavailable
from holdfast.storage.options.checks import check_count, check_number

__all__ = [
    "Backoff",
    "Retries",
    "RetryPolicy",
    "Tried",
    "Trouble",
    "repeat_while_unavailable",
]

_Answer = TypeVar("_Answer")

# Doubling a float this often stays finite; every pause has reached its bound long before.
_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failure in a row: `first_s`, and never over `longest_s`."""

    first_s: float
    longest_s: float = math.inf

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row, 1 or more."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


def _ignore(error: Unavailable, tries: int) -> None:
    """Default of `repeat_while_unavailable`."""


def repeat_while_unavailable(
    call: Callable[[], _Answer],
    backoff: Backoff,
    *,
    pause: Callable[[float], bool | None],
    most: float = math.inf,
    failed: Callable[[Unavailable, int], None] = _ignore,
) -> _Answer:
    """The answer of `call`, which is made again while it raises `Unavailable`.

    Args:
        call: safe to repeat, also when an earlier call took effect without an answer.
        backoff: how long to pause between calls.
        pause: waits so many seconds; True gives up early. `Event.wait` and `Clock.sleep_s` fit.
        most: how often to call before giving up.
        failed: told of each failure and its number, from 1; what it raises ends the loop.

    Raises:
        Unavailable: the last one, when it gives up.
    """
    tries = 1
    while True:
        try:
            return call()
        except Unavailable as error:
            failed(error, tries)
            if tries >= most or pause(backoff.pause_s(tries)):
                raise
        tries += 1


class Trouble(Enum):
    """Why a call failed that may work when it is made again."""

    THROTTLED = "throttled"
    """The store asks for fewer requests: 503 SlowDown, 429."""
    SERVER = "server"
    """The server failed, or is starting or in no state to serve: 500, 502, 504, a standby."""
    CONNECTION = "connection"
    """Refused, cut or silent: whether the call took effect is not known."""
    CONTENDED = "contended"
    """Another request changes the same object at this moment, and neither was served."""
    CLOCK = "clock"
    """The store finds the request too old: it waited for long, or a clock is wrong."""


_BACKOFFS: Mapping[Trouble, Backoff] = MappingProxyType(
    {
        # A store that asks for fewer requests is given the most time.
        Trouble.THROTTLED: Backoff(first_s=0.5, longest_s=20.0),
        Trouble.SERVER: Backoff(first_s=0.2, longest_s=10.0),
        Trouble.CONNECTION: Backoff(first_s=0.1, longest_s=5.0),
        Trouble.CONTENDED: Backoff(first_s=0.05, longest_s=1.0),
        Trouble.CLOCK: Backoff(first_s=0.1, longest_s=1.0),
    }
)
# A wrong clock does not mend by waiting; a request that waited too long is signed anew each time.
_MOST_ATTEMPTS = {Trouble.CLOCK: 3}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often one call is made, and for how long.

    No attempt begins more than `timeout_s` after the first one. So a call ends, one way or the
    other, within `timeout_s` and the time that one attempt may take.
    """

    max_attempts: int = 8
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        check_count(self.max_attempts, name="option max_attempts", least=1)
        check_number(self.timeout_s, name="option retry_timeout_s", least=0)

    def pause_s(
        self, trouble: Trouble, *, attempts: int, elapsed_s: float, entropy: Entropy
    ) -> float | None:
        """How long to wait before the next attempt; None to give up.

        `attempts` were made, all of which failed, in `elapsed_s`.
        """
        if attempts >= min(self.max_attempts, _MOST_ATTEMPTS.get(trouble, self.max_attempts)):
            return None
        # Full jitter: clients that failed together do not come back together.
        pause_s = entropy.uniform(0.0, _BACKOFFS[trouble].pause_s(attempts))
        return pause_s if elapsed_s + pause_s <= self.timeout_s else None


@dataclass(frozen=True, slots=True)
class Tried:
    """The attempts made before giving up."""

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
        """The answer of `call`, which is repeated while that can help.

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
