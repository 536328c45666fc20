"""How far a streaming query has come, where its public side does not say it.

Spark shows a query that was stopped like one that has read all. So a stream without end never ends,
and one that reads what is there now has ended if its last look at its sources was whole and found
nothing; otherwise the attempt fails.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["has_looked", "has_seen_all"]


def has_looked(query: StreamingQuery) -> bool:
    """Whether a query has asked its sources for rows, so where it begins is settled."""
    trigger = _execution(query).getLatestExecutionContext()
    return trigger.batchId() > 0 or trigger.isCurrentBatchConstructed() or _is_whole(trigger)


def has_seen_all(query: StreamingQuery) -> bool:
    """Whether a query that reads what is there now, and is over, ended because it has read it all.

    Such a query ends after a look at its sources that found nothing new; where a source cannot end
    by itself, after its one batch. When somebody stops it, its last batch is not done, or done
    with no look after it.
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
    """Spark notes how long a trigger took only when nothing has broken it off."""
    return bool(trigger.getDuration("triggerExecution").isDefined())
