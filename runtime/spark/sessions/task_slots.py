"""Task slots of Spark sessions: how many there are, can come to be, and are held by jobs.

Slots run as long as their job does. A job that is started beside it and finds too few would take
the task slots that the other one reads its sources with, and both would stand still. So jobs of
this process hold the task slots of a session that they need.
"""

from __future__ import annotations

import re
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

__all__ = ["LIVE_JOBS", "LiveJobs", "SlotHold", "most_task_slots", "task_slots"]

_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def task_slots(context: Any) -> int:
    """How many tasks can run at once, by the executors that have registered."""
    jvm = context._jsc.sc()
    profile = jvm.resourceProfileManager().defaultResourceProfile()
    return int(jvm.maxNumConcurrentTasks(profile))


def most_task_slots(master: str, conf: Mapping[str, str], there: int) -> int | None:
    """How many there will be at most, once all executors have come; None if nothing says so.

    Of a local master that is what is `there`.
    """
    if master == "local" or master.startswith("local["):
        return there
    if found := _LOCAL_CLUSTER.fullmatch(master):
        cores = int(found[1]) * int(found[2])
    elif master.startswith("spark://"):
        cores = _number(conf, "spark.cores.max")
    else:
        instances = _number(conf, "spark.executor.instances")
        cores = instances * _number(conf, "spark.executor.cores")
    return max(there, cores // max(1, _number(conf, "spark.task.cpus"))) if cores else None


def _number(conf: Mapping[str, str], name: str) -> int:
    """What a setting says; 0 if it says nothing that can be counted with."""
    text = conf.get(name, "").strip()
    return int(text) if text.isdecimal() else 0


class SlotHold:
    """The task slots of one job. Safe to call from any thread."""

    def __init__(self, lock: threading.Lock, held: list[SlotHold], job: str, slots: int) -> None:
        self._lock = lock
        self._held = held
        """All that are held in the session, this one among them."""
        self.job = job
        self.slots = slots
        self._is_used = False
        """Whether the job's slots run, or are about to."""

    def enter(self, there: int) -> bool:
        """Use what is held, if so many task slots are enough for it beside what others use.

        Executors may have gone since it was held. Of two jobs that both had room before, one may
        have it now; if both began, neither could read its sources.
        """
        with self._lock:
            self._is_used = self._needed() <= there
            return self._is_used

    def leave(self) -> None:
        """The job's slots have ended; it may begin others."""
        self._is_used = False

    def needed(self) -> int:
        """So many task slots there must be for this job to run, beside those that run by now."""
        with self._lock:
            return self._needed()

    def release(self) -> None:
        """The job has ended. A second time is nothing."""
        with self._lock:
            if self in self._held:
                self._held.remove(self)

    def _needed(self) -> int:
        used = sum(each.slots for each in self._held if each._is_used)
        return used + (0 if self._is_used else self.slots) + 1


class LiveJobs:
    """How many task slots each job holds, by session. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: defaultdict[str, list[SlotHold]] = defaultdict(list)

    def hold(self, session: str, job: str, slots: int, room: int) -> SlotHold | Mapping[str, int]:
        """Hold so many of the `room` task slots if they are free; else return the holds of others.

        One task slot must be left beside those of all jobs, to read sources.
        """
        with self._lock:
            held = self._held[session]
            if sum(each.slots for each in held) + slots < room:
                held.append(SlotHold(self._lock, held, job, slots))
                return held[-1]
            others: Counter[str] = Counter()
            for each in held:
                others[each.job] += each.slots
            return others


LIVE_JOBS = LiveJobs()
"""Those of this process. A session of Spark lives in one, and so does a driver of Holdfast."""
