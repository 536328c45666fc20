"""Deletes in the background: on a thread of its own, at a bounded pace, again until it is done."""

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
    """What has something to delete, such as `holdfast.storage.jobs.deletion.Sweeper`.

    Its steps are done one after the other, by one thread or another.
    """

    @property
    def owes(self) -> bool:
        """Whether anything is to be done."""
        ...

    def step(self, most: int) -> int:
        """Do the next thing, and answer how many objects it has deleted, at most so many.

        Raises:
            Fenced: it is not this process's to delete. It owes nothing any more.
            Exception: it could not be done, and is still owed.
        """
        ...


@dataclass(eq=False)
class _Turn:
    """One of those that have something to delete, and how it fares."""

    sweeps: Sweeps
    last: int = 0
    """Which of all turns its last one was."""
    failures: int = 0
    """Since it owed nothing."""
    failures_in_a_row: int = 0
    due_s: float = -math.inf
    """Before this it is not tried again in the background."""


class BackgroundSweeper:
    """Has others do what they owe, one batch after the other. Safe to use from any thread.

    At most `most_per_s` objects are deleted in a second; None: as fast as the storage does it.
    They take turns. What fails is tried again, after pauses that grow; meanwhile the others have
    their turns, and nobody waits for it.
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
        """What the time is at least: the thread may have waited so long."""
        self._is_awake = False

    @property
    def owes(self) -> bool:
        """Whether anything is to be done."""
        return any(each.sweeps.owes for each in self._turns)

    def wake(self) -> None:
        """Have it look for what is owed now."""
        self._roused.set()
        with self._lock:
            if not self._is_awake and not self._closing.is_set():
                self._is_awake = True
                self._thread.submit(self._work)

    def finish(self) -> None:
        """Do all that is owed, in the caller's thread, but for what is another process's by now.

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
        """End, after what can be done in a moment. What is left the next owner finds as orphans."""
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
        """Do one thing in the thread, or wait until it is due, and see to it that more is done."""
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
        """Whose turn it is, of those that owe anything and are none of these."""
        owing = (each for each in self._turns if each.sweeps.owes and each not in but)
        return min(owing, key=lambda each: each.last, default=None)

    def _try(self, turn: _Turn, now_s: float = 0.0) -> float:
        """Do one thing; answers for how long that may be enough. Who fails has to pause."""
        try:
            return self._step(turn)
        except Fenced:
            return 0.0  # it is another's concern
        except Exception as error:  # noqa: BLE001 - nobody looks at what a thread raises
            self._tell(turn, error)
            turn.failures_in_a_row += 1
            turn.due_s = now_s + _PAUSES.pause_s(turn.failures_in_a_row)
            return 0.0

    def _step(self, turn: _Turn) -> float:
        """Do one thing; answers for how long that may be enough."""
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
        """Say it ever more rarely: a permission that is missing may be so for months."""
        turn.failures += 1
        if turn.failures & (turn.failures - 1) == 0:
            _logger.warning("what nobody needs could not be deleted, and will be later: %s", error)
