"""Spark's log while queries and tasks of ours stop, because they were told to.

Spark writes stack traces of what it interrupts, and of tasks that find their slots gone, as if they
were failures. What has really failed was told before, by the job. Jobs of the user's own that fail
meanwhile are logged as ever: a filter drops what is of our tasks or queries alone. A task is known
by the mark in the context of its thread, what schedulers say of it by the number of its stage, and
a query by the id of its run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["QuietLog", "mark_jobs", "query_tag", "source_tag"]

_MARK = "mdc.holdfast"
"""A property of jobs that Spark puts into the logging context of the threads of their tasks."""
_RUN = "RUN_ID"
"""What Spark calls the id of a query's run there."""
_NEWEST = 4
"""Of sources with a tag, so many jobs may still have tasks; one alone, as a rule."""


def source_tag(label: str) -> str:
    """The tag of jobs that push a DataFrame of a fixed size, of a run with this label."""
    return f"holdfast-source-{label}"


def query_tag(label: str) -> str:
    """The tag of jobs that push micro-batches, likewise."""
    return f"holdfast-query-{label}"


def mark_jobs(context: Any, tag: str) -> None:
    """Have jobs that this thread begins from now on be known by a tag, and their tasks' log."""
    context.addJobTag(tag)
    context.setLocalProperty(_MARK, tag)


class QuietLog:
    """Keeps out of the log of the driver's JVM what is of these, from `begin` to `end`."""

    def __init__(
        self, spark: SparkSession, tags: Sequence[str] = (), query: StreamingQuery | None = None
    ) -> None:
        """Of jobs with these tags, which `mark_jobs` has given them, or of a query."""
        self._context: Any = spark.sparkContext
        self._tags = tags
        self._run = "" if query is None else str(query.runId)
        self._filter: Any = None

    def begin(self) -> None:
        """From now on. Stages that begin later are not known: nothing begins any more."""
        known = [
            rf"(?:in stage|barrier stage|ResultStage|ShuffleMapStage|TaskSet) {stage}(?:\.\d+)?\b"
            for tag in self._tags
            for stage in self._stages(tag)
        ]
        pairs = [(_MARK, tag) for tag in self._tags]
        if self._run:
            known.append(self._run)
            pairs.append((_RUN, self._run))
        core = self._context._jvm.org.apache.logging.log4j.core
        drop, keep = core.Filter.Result.DENY, core.Filter.Result.NEUTRAL
        kind = core.util.KeyValuePair
        context_map = self._array(kind, [kind(key, value) for key, value in pairs])
        filters = [core.filter.ThreadContextMapFilter.createFilter(context_map, "or", drop, keep)]
        if known:
            told = f"(?s).*(?:{'|'.join(known)}).*"
            filters.append(core.filter.RegexFilter.createFilter(told, None, False, drop, keep))
        # Known before it is there: a call may break off when it is done.
        self._filter = core.filter.CompositeFilter.createFilters(self._array(core.Filter, filters))
        self._configuration().addFilter(self._filter)

    def end(self) -> None:
        """All is logged again. A second time is nothing, and so is without `begin`."""
        if self._filter is not None:
            self._configuration().removeFilter(self._filter)
            self._filter = None

    def _stages(self, tag: str) -> list[int]:
        # Python's tracker has no such method.
        by_tag = self._context._jsc.sc().statusTracker().getJobIdsForTag(tag)
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in sorted(by_tag)[-_NEWEST:]]
        return [stage for job in jobs if job is not None for stage in job.stageIds]

    def _configuration(self) -> Any:
        log4j = self._context._jvm.org.apache.logging.log4j
        return log4j.LogManager.getContext(False).getConfiguration()

    def _array(self, kind: Any, elements: Sequence[Any]) -> Any:
        made = self._context._gateway.new_array(kind, len(elements))
        for place, element in enumerate(elements):
            made[place] = element
        return made
