"""Watches whether the cluster has the task slots that a running job needs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.storage import Clock

__all__ = ["TaskSlotCount", "TaskSlotWatch"]

_logger = logging.getLogger(__name__)
_LOOK_S = 1.0
_SAID_AFTER_S = 3.0
"""A shortage that ends sooner, as when an executor is replaced, causes no warning."""


@dataclass(frozen=True, slots=True)
class TaskSlotCount:
    """Task slots that are needed, and task slots that exist."""

    needed: int
    """For the slots of all running jobs of the session, and one more to read sources."""
    there: int

    @property
    def lacks(self) -> bool:
        return self.there < self.needed


class TaskSlotWatch:
    """Polls the cluster and warns of a shortage. `look` is for one thread, the rest for any."""

    def __init__(self, job: str, look: Callable[[], TaskSlotCount | None], clock: Clock) -> None:
        self._job = job
        self._look = look
        self._clock = clock
        self._looked_s: float | None = None
        self._lacks_since_s: float | None = None
        self._said = ""
        self.room: TaskSlotCount | None = None
        """The latest count; None if the cluster cannot tell."""
        self.trouble = ""
        """The shortage as a message; empty if there is none."""

    def look(self, *, is_running: bool) -> None:
        """Poll the cluster, unless that was just done.

        A job that `is_running` has all its slots. It may lack only the task slot that reads its
        sources: then it takes checkpoints, and reads nothing.
        """
        now_s = self._clock.monotonic_s()
        if self._looked_s is not None and now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        self.room = room = self._look()
        if room is None or not room.lacks:
            self._is_enough()
            return
        what = "no task slot for sources" if is_running else "too few task slots for the job"
        self.trouble = f"{what}: needs {room.needed}, has {room.there}"
        if self._lacks_since_s is None:
            self._lacks_since_s = now_s
        if self._said != self.trouble and now_s - self._lacks_since_s >= _SAID_AFTER_S:
            self._said = self.trouble
            _logger.warning(
                "job %r: %s. It goes on when there are executors for them", self._job, self.trouble
            )

    def _is_enough(self) -> None:
        if self._said:
            _logger.info("job %r has the task slots that it needs again", self._job)
        self.trouble, self._said, self._lacks_since_s = "", "", None
