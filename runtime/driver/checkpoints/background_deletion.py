"""Deletes in the background: on its own thread, at a bounded rate, with retries."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from holdfast.storage import Clock, Fenced
from holdfast.storage.jobs.deletion import BATCH_OBJECTS
from holdfast.storage.retries import Backoff

__all__ = ["BackgroundSweeper", "Sweeps"]

_logger = logging.getLogger(__name__)
_PAUSES = Backoff(first_s=1.0, longest_s=60.0)
_LAST_S = 2.0


class Sweeps(Protocol):
    """Something with objects to delete, such as `holdfast.storage.jobs.deletion.Sweeper`.

    Steps are called one after the other, but not always by the same thread.
    """

    @property
    def owes(self) -> bool:
        """Whether anything is left to delete."""

    def step(self, most: int) -> int:
        """Delete at most `most` objects, and return how many were deleted.

        Raises:
            Fenced: another process owns these objects now; nothing is owed any more.
            Exception: the deletion failed, and is still owed.
        """


@dataclass(eq=False)
class _Turn:
    """The state of one `Sweeps` in the rotation."""

    sweeps: Sweeps
    last: int = 0
    """The number of its latest turn."""
    failures: int = 0
    """Failures since it last owed nothing."""
    failures_in_a_row: int = 0
    due_s: float = -math.inf
    """The time before which it is not retried in the background."""


class BackgroundSweeper:
    """Calls each `Sweeps` in turn, one batch after the other. Safe to use from any thread.

    At most `most_per_s` objects are deleted in a second; None: as fast as the storage allows. A
    failure is retried after pauses that grow, and does not hold up the others.
    """

    def __init__(self, *sweeps: Sweeps, most_per_s: float | None, clock: Clock) -> None:
        self._turns = tuple(map(_Turn, sweeps))
        self._counted = 0
        self._most_per_s = most_per_s
        self._batch = BATCH_OBJECTS
        if most_per_s is not None:  # so that a batch is what may be deleted in a second
            self._batch = max(1, min(BATCH_OBJECTS, int(most_per_s)))
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "holdfast-sweeper")
        self._lock = threading.Lock()
        self._stepping = threading.Lock()
        self._closing = threading.Event()
        self._roused = threading.Event()
        self._reached_s = -math.inf
        """A lower bound of the time: the thread has waited until then."""
        self._is_awake = False

    @property
    def owes(self) -> bool:
        return any(each.sweeps.owes for each in self._turns)

    def wake(self) -> None:
        """Wake the thread, because something may be owed."""
        self._roused.set()
        with self._lock:
            if not self._is_awake and not self._closing.is_set():
                self._is_awake = True
                self._thread.submit(self._work)

    def finish(self) -> None:
        """Delete all that is owed, in the caller's thread.

        Raises:
            HoldfastError: something could not be done; it is tried again in the background.
        """
        failed: list[_Turn] = []
        first: Exception | None = None
        while (turn := self._next(but=failed)) is not None:
            try:
                self._clock.sleep_s(self._step(turn))
            except Fenced:
                continue
            except Exception as error:  # noqa: BLE001 - raised when all others are done
                failed.append(turn)
                first = first or error
        if first is not None:
            self.wake()
            raise first

    def close(self) -> None:
        """Stop, after a short time for deletions. The next owner finds the rest as orphans."""
        self._closing.set()
        self._roused.set()
        self._thread.shutdown(wait=True)
        end_s = self._clock.monotonic_s() + _LAST_S
        while self._clock.monotonic_s() < end_s:
            turn = self._next(but=[each for each in self._turns if each.failures_in_a_row])
            if turn is None:
                return
            self._clock.sleep_s(self._try(turn))

    def _work(self) -> None:
        """Do one step in the thread, or wait until one is due; then submit itself again."""
        self._roused.clear()
        now_s = max(self._clock.monotonic_s(), self._reached_s)
        turn = self._next(but=[each for each in self._turns if each.due_s > now_s])
        if turn is not None:
            self._closing.wait(self._try(turn, now_s))
        else:
            dues_s = [each.due_s for each in self._turns if each.sweeps.owes]
            pause_s = min(dues_s, default=now_s) - now_s
            if not self._roused.wait(pause_s):
                self._reached_s = now_s + pause_s
        with self._lock:
            self._is_awake = self.owes and not self._closing.is_set()
            if self._is_awake:
                self._thread.submit(self._work)

    def _next(self, *, but: Collection[_Turn]) -> _Turn | None:
        """The one with the oldest turn among those that owe anything and are not excluded."""
        owing = (each for each in self._turns if each.sweeps.owes and each not in but)
        return min(owing, key=lambda each: each.last, default=None)

    def _try(self, turn: _Turn, now_s: float = 0.0) -> float:
        """Do one step, log a failure, and return how long the rate limit asks to pause."""
        try:
            return self._step(turn)
        except Fenced:
            return 0.0  # another process owns these objects now
        except Exception as error:  # noqa: BLE001 - an error of the thread would be lost
            self._tell(turn, error)
            turn.failures_in_a_row += 1
            turn.due_s = now_s + _PAUSES.pause_s(turn.failures_in_a_row)
            return 0.0

    def _step(self, turn: _Turn) -> float:
        """Do one step, and return how long the rate limit asks to pause."""
        with self._stepping:
            self._counted += 1
            turn.last = self._counted
            deleted = turn.sweeps.step(self._batch) if turn.sweeps.owes else 0
        if deleted:
            turn.failures_in_a_row = 0
        if not turn.sweeps.owes:
            turn.failures = turn.failures_in_a_row = 0
            turn.due_s = -math.inf
        return 0.0 if self._most_per_s is None else deleted / self._most_per_s

    def _tell(self, turn: _Turn, error: Exception) -> None:
        """Log failures ever more rarely: a missing permission may stay missing for months."""
        turn.failures += 1
        if turn.failures & (turn.failures - 1) == 0:
            _logger.warning("obsolete files could not be deleted, and will be later: %s", error)
