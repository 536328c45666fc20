"""What a streaming query is set to, how far it has read, and when its source counts as idle.

Spark has no public call for the second, and a query that was stopped looks like one that has read
everything. So an unbounded stream never ends. One that reads what is there now has ended if its
last trigger was completed and found nothing new; otherwise the attempt fails.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["POLLING_MS", "Idleness", "has_looked", "has_seen_all", "query_settings"]


def has_looked(query: StreamingQuery) -> bool:
    """Whether a query has asked its sources for rows, so that its beginning is fixed."""
    trigger = _execution(query).getLatestExecutionContext()
    return trigger.batchId() > 0 or trigger.isCurrentBatchConstructed() or _is_whole(trigger)


def has_seen_all(query: StreamingQuery) -> bool:
    """Whether a query that reads what is there now, and has ended, has read all of it.

    Such a query ends after a trigger that found nothing new or, where a source cannot limit itself,
    after its one batch. One that was stopped has not completed its last batch, or has not looked at
    its sources after it.
    """
    execution = _execution(query)
    trigger = execution.getLatestExecutionContext()
    if not _is_whole(trigger):
        return False
    has_one_batch = str(execution.triggerExecutor().toString()).startswith("SingleBatch")
    return has_one_batch or not trigger.isCurrentBatchConstructed()


def _execution(query: StreamingQuery) -> Any:
    return query._jsq.streamingQuery()


def _is_whole(trigger: Any) -> bool:
    # Spark records the duration of a trigger only when it was not interrupted.
    return bool(trigger.getDuration("triggerExecution").isDefined())


class Idleness:
    """Decides when a source is idle: it was polled for `after_ms` and had no rows.

    Time in which a batch is read or held back does not count. A batch without rows does not end
    the silence, since it brings no watermark. The caller passes the time.
    """

    def __init__(self, after_ms: int | None, now_s: float) -> None:
        self._after_ms = after_ms
        self._silent_since_s = now_s
        self._is_idle = False

    @property
    def may_be(self) -> bool:
        """Whether the source can become idle from here."""
        return self._after_ms is not None and not self._is_idle

    def was_read(self, began_s: float, ended_s: float, rows: int) -> None:
        """A batch was read meanwhile, and admitted."""
        if rows:
            self._silent_since_s = ended_s
            self._is_idle = False
        else:
            self._silent_since_s += ended_s - began_s

    def is_due(self, now_s: float) -> bool:
        """Whether the source has become idle, and that was not reported yet."""
        if self._after_ms is None or self._is_idle:
            return False
        return (now_s - self._silent_since_s) * 1000 >= self._after_ms

    def was_reported(self) -> None:
        """All slots know that the source is idle."""
        self._is_idle = True


POLLING_MS = 100
"""Spark's default of 10 ms makes some eighty polls a second, each of which may list a bucket."""
_FILES = "fs.AbstractFileSystem.file.impl"
_WITH_CHECKSUMS = "org.apache.hadoop.fs.local.LocalFs"
_SETTINGS = {
    "spark.sql.streaming.pollingDelay": f"{POLLING_MS}ms",
    # Of the log of a query alone. Hadoop starts a process of `chmod` for each file that it makes,
    # twice a batch, and as often for files of checksums, which nothing needs: what a checkpoint
    # takes of the log has checksums of its own.
    _FILES: "org.apache.hadoop.fs.local.RawLocalFs",
}
_lock = threading.Lock()
_LONGEST_START_S = 10.0
"""A start that takes longer does not hold up those of other sources and jobs."""


@contextmanager
def query_settings(spark: SparkSession) -> Iterator[None]:
    """A query that starts in this context polls every `POLLING_MS`, with no checksums in its log.

    Values that the session sets have precedence. Its settings are put back afterwards: a query
    reads them once, when it starts.
    """
    context: Any = spark.sparkContext
    # Without it, a query may miss these settings, and is slower.
    is_alone = _lock.acquire(timeout=_LONGEST_START_S)
    try:
        said = set(spark.conf.getAll)
        if context._jsc.hadoopConfiguration().get(_FILES) != _WITH_CHECKSUMS:
            said.add(_FILES)
        ours = [key for key in _SETTINGS if key not in said]
        for key in ours:
            spark.conf.set(key, _SETTINGS[key])
        try:
            yield
        finally:
            for key in ours:
                spark.conf.unset(key)
    finally:
        if is_alone:
            _lock.release()
