"""Jobs of Spark that leave nothing running: when one fails, its other tasks are waited for."""

from __future__ import annotations

import logging
from typing import Any, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from holdfast.storage.clock import Clock, SystemClock

__all__ = ["TaggedJobs"]

_logger = logging.getLogger(__name__)
_LOOK_S = 0.1
_LOOKS = 3
"""So often in turn nothing may run: what Spark tells of tasks comes a little late."""
_PATIENCE_S = 60.0


class TaggedJobs:
    """The jobs that this thread begins within `with`.

    Spark tells of the first task that fails, while others of the job still run, and write. If
    there is an error, these are cancelled, and it goes on once none of them runs; or after a
    minute, with a warning.
    """

    def __init__(self, context: SparkContext, tag: str, clock: Clock | None = None) -> None:
        self._context, self._tag = context, tag
        self._clock = SystemClock() if clock is None else clock

    def __enter__(self) -> Self:
        self._context.addJobTag(self._tag)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self._context.removeJobTag(self._tag)
            if error is not None:
                self._stop()
        except Py4JError as trouble:  # Spark is gone, or going: no task of it goes on for long
            _logger.warning("the tasks of %s were not waited for: %s", self._tag, trouble)

    def _stop(self) -> None:
        self._context.cancelJobsWithTag(self._tag)
        end_s = self._clock.monotonic_s() + _PATIENCE_S
        quiet = 0
        while quiet < _LOOKS:
            if self._clock.monotonic_s() >= end_s:
                _logger.warning("tasks of %s still run, and may leave files", self._tag)
                return
            quiet = 0 if self._is_running() else quiet + 1
            self._clock.sleep_s(_LOOK_S)

    def _is_running(self) -> bool:
        context: Any = self._context
        tracker = context.statusTracker()
        # Python's tracker has no such method.
        for job in context._jsc.sc().statusTracker().getJobIdsForTag(self._tag):
            info = tracker.getJobInfo(job)
            stages = () if info is None else info.stageIds
            found = (tracker.getStageInfo(stage) for stage in stages)
            if any(stage is not None and stage.numActiveTasks for stage in found):
                return True
        return False
