"""Which jobs of this process hold task slots of a Spark session, so that others cannot have them.

Slots run as long as their job does. A job that is started beside it and finds too few would take
the task slots that the other one reads its sources with, and both would stand still.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

__all__ = ["LIVE_JOBS", "LiveJobs", "SlotHold"]


class SlotHold:
    """The task slots of one job."""

    def __init__(self, jobs: LiveJobs, session: str, slots: int) -> None:
        self._jobs = jobs
        self._session = session
        self.slots = slots
        self.is_used = False
        """Whether the job's slots run, or are about to. Set by `LiveJobs`."""

    def enter(self, there: int) -> bool:
        """Use what is held, if so many task slots are enough for it beside what others use.

        Executors may have gone since it was held. Of two jobs that both had room before, one may
        have it now; if both began, neither could read its sources.
        """
        return self._jobs.enter(self._session, self, there)

    def leave(self) -> None:
        """The job's slots have ended; it may begin others."""
        self.is_used = False

    def needed(self) -> int:
        """So many task slots there must be for this job to run, beside those that run by now."""
        return self._jobs.needed(self._session, self)

    def release(self) -> None:
        """The job has ended. A second time is nothing."""
        self._jobs.release(self._session, self)


class LiveJobs:
    """Who holds how many task slots, by session. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, dict[SlotHold, tuple[str, int]]] = {}

    def hold(self, session: str, job: str, slots: int, room: int) -> SlotHold | Mapping[str, int]:
        """Hold so many of the `room` that there is, if they are free; else who has the others.

        One task slot must be left beside those of all jobs, to read sources.
        """
        with self._lock:
            held = self._held.setdefault(session, {})
            if sum(taken for _, taken in held.values()) + slots < room:
                hold = SlotHold(self, session, slots)
                held[hold] = (job, slots)
                return hold
            others: dict[str, int] = {}
            for other, taken in held.values():
                others[other] = others.get(other, 0) + taken
            return others

    def enter(self, session: str, hold: SlotHold, there: int) -> bool:
        """See `SlotHold.enter`."""
        with self._lock:
            hold.is_used = self._needed(session, hold) <= there
            return hold.is_used

    def needed(self, session: str, hold: SlotHold) -> int:
        """See `SlotHold.needed`."""
        with self._lock:
            return self._needed(session, hold)

    def _needed(self, session: str, hold: SlotHold) -> int:
        used = [each.slots for each in self._held.get(session, {}) if each.is_used]
        return sum(used) + (0 if hold.is_used else hold.slots) + 1

    def release(self, session: str, hold: SlotHold) -> None:
        """What was held is free."""
        with self._lock:
            held = self._held.get(session, {})
            held.pop(hold, None)
            if not held:
                self._held.pop(session, None)


LIVE_JOBS = LiveJobs()
"""Those of this process. A session of Spark lives in one, and so does a driver of Holdfast."""
