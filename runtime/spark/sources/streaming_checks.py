"""Whether Spark would run a streaming DataFrame at all: asked before a job starts by it."""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from holdfast.storage import Invalid

__all__ = ["check_supported"]

_SWITCH = "spark.sql.streaming.unsupportedOperationCheck"


def check_supported(frame: DataFrame, uid: str) -> None:
    """Ask Spark what it would say when the query starts, long after the job has.

    Raises:
        Invalid: it is a stream that Spark cannot process, such as one that is to be sorted.
    """
    spark: Any = frame.sparkSession
    if str(spark.conf.get(_SWITCH, "true")).lower() == "false":
        return  # who has set that knows what is supported
    plan, sql = frame._jdf.queryExecution().analyzed(), spark._jvm.org.apache.spark.sql
    append = sql.streaming.OutputMode.Append()
    try:
        sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, append)
    except AnalysisException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise Invalid(
            f"Spark cannot process source {uid!r} as a stream",
            where="from_stream",
            found=lines[0] if lines else repr(error),
            fix="Leave that out of the DataFrame, and do it in the job",
        ) from error
