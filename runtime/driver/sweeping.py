"""Deletes in the background: on a thread of its own, at a bounded pace, again until it is done."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from holdfast.storage import Clock, Fenced
from holdfast.storage.sweeping import BATCH_OBJECTS

__all__ = ["BackgroundSweeper", "Sweeps"]

_logger = logging.getLogger(__name__)
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_LAST_S = 2.0


class Sweeps(Protocol):
    """What has something to delete, such as `holdfast.storage.sweeping.Sweeper`.

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


class BackgroundSweeper:
    """Has others do what they owe, one batch after the other. Safe to use from any thread.

    At most `most_per_s` objects are deleted in a second; None: as fast as the storage does it.
    What fails is tried again, after pauses that grow; meanwhile nobody waits for it.
    """

    def __init__(self, *sweeps: Sweeps, most_per_s: float | None, clock: Clock) -> None:
        self._sweeps = sweeps
        self._most_per_s = most_per_s
        self._batch = BATCH_OBJECTS
        if most_per_s is not None:  # so that a batch is what may be deleted in a second
            self._batch = max(1, min(BATCH_OBJECTS, int(most_per_s)))
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "holdfast-sweeper")
        self._lock = threading.Lock()
        self._stepping = threading.Lock()
        self._closing = threading.Event()
        self._is_awake = False
        self._failures = 0
        self._failures_in_a_row = 0

    @property
    def owes(self) -> bool:
        """Whether anything is to be done."""
        return any(each.owes for each in self._sweeps)

    def wake(self) -> None:
        """Have it look for what is owed now."""
        with self._lock:
            if not self._is_awake and not self._closing.is_set():
                self._is_awake = True
                self._thread.submit(self._work)

    def finish(self) -> None:
        """Do all that is owed, in the caller's thread, but for what is another process's by now.

        Raises:
            HoldfastError: something could not be done; it is tried again in the background.
        """
        while self.owes:
            with suppress(Fenced):
                self._clock.sleep_s(self._step())

    def close(self) -> None:
        """End, after what can be done in a moment. What is left the next owner finds as orphans."""
        self._closing.set()
        self._thread.shutdown(wait=True)
        end_s = self._clock.monotonic_s() + _LAST_S
        try:
            while self.owes and not self._failures_in_a_row and self._clock.monotonic_s() < end_s:
                self._clock.sleep_s(self._step())
        except Exception as error:  # noqa: BLE001 - nobody waits for it
            self._tell(error)

    def _work(self) -> None:
        """Do one thing in the thread, and see to it that the next one is done."""
        pause_s = self._try()
        self._closing.wait(pause_s)
        with self._lock:
            self._is_awake = self.owes and not self._closing.is_set()
            if self._is_awake:
                self._thread.submit(self._work)

    def _try(self) -> float:
        """Do one thing; answers how long to wait before the next one."""
        try:
            return self._step()
        except Fenced:
            return 0.0  # it is another's concern
        except Exception as error:  # noqa: BLE001 - nobody looks at what a thread raises
            self._tell(error)
            pause_s: float = _FIRST_PAUSE_S * 2.0 ** min(self._failures_in_a_row, 30)
            self._failures_in_a_row += 1
            return min(pause_s, _LONGEST_PAUSE_S)

    def _step(self) -> float:
        """Do one thing; answers for how long that may be enough."""
        deleted = 0
        with self._stepping:
            sweeps = next((each for each in self._sweeps if each.owes), None)
            if sweeps is not None:
                deleted = sweeps.step(self._batch)
        if deleted:
            self._failures_in_a_row = 0
        if not self.owes:
            self._failures = self._failures_in_a_row = 0
        return 0.0 if self._most_per_s is None else deleted / self._most_per_s

    def _tell(self, error: Exception) -> None:
        """Say it ever more rarely: a permission that is missing may be so for months."""
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:
            _logger.warning("what nobody needs could not be deleted, and will be later: %s", error)
