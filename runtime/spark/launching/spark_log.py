"""Spark's log while queries and tasks of ours stop, because they were told to.

Spark writes stack traces of what it interrupts, and of tasks that find their slots gone, as if they
were failures. What has really failed was told before, by the job.
"""

from __future__ import annotations

import threading
from typing import Any

from pyspark.sql import SparkSession

__all__ = ["QuietLog"]

_NAMES = (
    "org.apache.hadoop.fs",
    "org.apache.hadoop.util.Shell",
    "org.apache.spark.api.python",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.rdd",
    "org.apache.spark.scheduler",
    "org.apache.spark.sql.execution.python",
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.sql.streaming",
    "org.apache.spark.util.Utils",
)
_lock = threading.Lock()
_before: dict[str, Any] = {}
_holders: set[int] = set()


class QuietLog:
    """Keeps those loggers of the driver's JVM silent from `begin` to `end`; for one attempt."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm

    def begin(self) -> None:
        """From now on; others may do the same at the same time."""
        with _lock:
            # A call may fail in the middle. So what was before is known before anything is changed,
            # and whoever has changed something is a holder, whose `end` puts it back.
            if not _holders:
                known = self._context().getConfiguration().getLoggers()
                # What is kept already, an earlier end could not put back: it is not what it was.
                own = {name: known.get(name) for name in _NAMES if name not in _before}
                levels = {
                    name: None if each is None else each.getLevel() for name, each in own.items()
                }
                _before.update(levels)
            is_first = not _holders
            _holders.add(id(self))
            if is_first:
                off = self._jvm.org.apache.logging.log4j.Level.OFF
                for name in _NAMES:
                    self._set(name, off)

    def end(self) -> None:
        """The levels are as before, once nobody else needs them quiet."""
        with _lock:
            if id(self) not in _holders:
                return
            _holders.remove(id(self))
            if _holders:
                return
            try:
                # One that cannot be put back is tried again at the next end.
                for name in list(_before):
                    self._put_back(name, _before[name])
                    del _before[name]
            finally:
                self._context().updateLoggers()

    def _put_back(self, name: str, level: Any) -> None:
        if level is None:
            # With a level of its own it would pass the filter of Spark's shells.
            self._context().getConfiguration().removeLogger(name)
        else:
            self._set(name, level)

    def _context(self) -> Any:
        return self._jvm.org.apache.logging.log4j.LogManager.getContext(False)

    def _set(self, name: str, level: Any) -> None:
        self._jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(name, level)
