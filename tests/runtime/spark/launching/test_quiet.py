"""Spark is quiet about what it is told to do, and looks for rows no more often than it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from holdfast.runtime.spark.launching.spark_log import QuietLog
from holdfast.runtime.spark.sources.query_progress import POLLING_MS, slow_polling

SCHEDULER = "org.apache.spark.scheduler.TaskSetManager"
POLLING = "spark.sql.streaming.pollingDelay"


def level(spark: SparkSession, name: str) -> str:
    jvm: Any = spark._jvm
    return str(jvm.org.apache.logging.log4j.LogManager.getLogger(name).getLevel().toString())


def configured(spark: SparkSession) -> set[str]:
    jvm: Any = spark._jvm
    context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    return set(context.getConfiguration().getLoggers())


def test_loggers_are_silent_as_long_as_one_attempt_ends(spark: SparkSession) -> None:
    before, known = level(spark, SCHEDULER), configured(spark)
    one, other = QuietLog(spark), QuietLog(spark)
    one.begin()
    other.begin()
    assert level(spark, SCHEDULER) == "OFF"
    assert level(spark, "org.apache.spark.SparkContext") == before
    one.end()
    one.end()
    assert level(spark, SCHEDULER) == "OFF"
    other.end()
    assert level(spark, SCHEDULER) == before
    assert configured(spark) == known, "what has a level of its own passes the filter of shells"


def test_a_silent_source_is_looked_at_ten_times_a_second(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.readStream.format("rate").load()

    def delay_of(place: str) -> int:
        with slow_polling(spark):
            writer = frame.writeStream.format("noop")
            query = writer.option("checkpointLocation", str(tmp_path / place)).start()
        try:
            jvm_query: Any = query._jsq
            return int(jvm_query.streamingQuery().pollingDelayMs())
        finally:
            query.stop()

    assert delay_of("a") == POLLING_MS
    assert POLLING not in spark.conf.getAll
    spark.conf.set(POLLING, "30ms")
    try:
        assert delay_of("b") == 30, "what a session says counts"
        assert spark.conf.get(POLLING) == "30ms"
    finally:
        spark.conf.unset(POLLING)
