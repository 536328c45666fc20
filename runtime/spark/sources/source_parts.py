"""What both kinds of sources share on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DayTimeIntervalType,
    NumericType,
    TimestampNTZType,
    TimestampType,
)

from holdfast.runtime.driver.run_parts import SourceOpening
from holdfast.runtime.spark.sessions.session_checks import CRASH_REPORTS
from holdfast.runtime.spark.sources.push import Pushed, Pusher
from holdfast.runtime.stream import SourceWatermark
from holdfast.storage import Fenced, Unavailable

__all__ = ["BACKLOG_BYTES", "SourceTime", "counted", "pusher", "use_long_batches"]

BACKLOG_BYTES = 8 * 1024 * 1024
"""A slot that has more than this of a source to process gets no further batch of it."""

_BATCH_ROWS = 64 * 1024
_UNBOUNDED = 2**31 - 1
_FIXED_WIDTH = (
    BooleanType,
    DateType,
    DayTimeIntervalType,
    NumericType,
    TimestampNTZType,
    TimestampType,
)


class SourceTime:
    """The watermark of a source, computed from the summaries of its pushes."""

    def __init__(self, watermark: SourceWatermark | None) -> None:
        self._watermark = watermark
        self._latest: int | None = None

    def after(self, latest: Iterable[int | None]) -> int | None:
        """The watermark after rows of which these are the latest times; None without rows."""
        # Without rows the last one is not repeated: it would mark an idle source as active.
        moments = [moment for moment in latest if moment is not None]
        if not moments or self._watermark is None:
            return None
        self._latest = max(moments if self._latest is None else [*moments, self._latest])
        return self._latest - self._watermark.max_delay_ms - 1


def pusher(
    opening: SourceOpening,
    watermark: SourceWatermark | None,
    slots: Mapping[int, str],
    batch: int | None,
) -> Pusher:
    """The function by which tasks push; `batch` None: each split is a batch of its own."""
    return Pusher(
        source=opening.uid,
        batch=batch,
        edges=opening.edges,
        time_column=None if watermark is None else watermark.column,
        slots=slots,
        max_parallelism=opening.plan.max_parallelism,
        credentials=opening.credentials,
    )


def counted(answers: Iterable[Iterable[Any]]) -> list[Pushed]:
    """The summaries of tasks, if all rows were pushed.

    Raises:
        Fenced: the slots have left the attempt of the job; it ends in a moment.
        Unavailable: a slot cannot be reached.
    """
    pushed = [Pushed(*answer) for answer in answers]
    if any(each.is_void for each in pushed):
        raise Fenced("the slots are done with this attempt")
    lost = next((each.lost for each in pushed if each.lost), "")
    if lost:
        raise Unavailable("a slot cannot be reached", found=lost)
    return pushed


def use_long_batches(frame: DataFrame) -> None:
    """Have Spark hand rows of a DataFrame to Python in long batches.

    The DataFrame's session must be the source's own, not the user's: these settings stay.
    Python is set up there as for slots, so tasks of sources run in idle workers of slots.
    """
    conf = frame.sparkSession.conf
    conf.set(CRASH_REPORTS, "true")
    conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_BATCH_ROWS))
    # Spark adds up the bytes of a batch after each row, which costs as much as all the rest of the
    # transfer. Where no row can be long, the number of rows is bound enough.
    if all(isinstance(field.dataType, _FIXED_WIDTH) for field in frame.schema):
        conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_UNBOUNDED))
