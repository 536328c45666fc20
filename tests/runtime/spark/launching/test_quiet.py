"""Spark is quiet about what it is told to do, and looks for rows no more often than it must."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from holdfast.runtime.spark.launching.spark_log import QuietLog, mark_jobs
from holdfast.runtime.spark.sources.query_progress import POLLING_MS, query_settings
from support.jobs.spark_jobs import await_that

FILES = "fs.AbstractFileSystem.file.impl"
POLLING = "spark.sql.streaming.pollingDelay"


@pytest.fixture
def heard(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A file of all that is logged in the driver's JVM."""
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    configuration = log4j.LogManager.getContext(False).getConfiguration()
    builder = log4j.core.appender.FileAppender.newBuilder()
    builder.withFileName(str(tmp_path / "heard")).setName("heard")
    builder.setLayout(log4j.core.layout.PatternLayout.createDefaultLayout())
    appender = builder.build()
    appender.start()
    configuration.getRootLogger().addAppender(appender, None, None)
    try:
        yield tmp_path / "heard"
    finally:
        configuration.getRootLogger().removeAppender("heard")
        appender.stop()


def failing(spark: SparkSession, what: str, tag: str | None = None) -> None:
    """A job of which each task fails; in a thread of its own, where a tag is no other job's."""

    def fails(_: int) -> None:
        raise ValueError(what)

    def run() -> None:
        if tag is not None:
            mark_jobs(spark.sparkContext, tag)
        with suppress(Exception):
            spark.sparkContext.parallelize([1, 2], 2).foreach(fails)

    thread = InheritableThread(target=run)
    thread.start()
    thread.join()


def test_a_job_of_the_users_that_fails_while_an_attempt_ends_is_logged(
    spark: SparkSession, heard: Path
) -> None:
    quiet = QuietLog(spark, ("holdfast-one", "holdfast-other"))
    quiet.begin()
    failing(spark, "of the user's")
    failing(spark, "of ours", tag="holdfast-other")
    told = heard.read_text()
    assert "Exception in task" in told
    assert "ValueError: of the user's" in told
    assert "ValueError: of ours" not in told
    quiet.end()
    failing(spark, "told again", tag="holdfast-other")
    assert "ValueError: told again" in heard.read_text()


def test_spark_s_log_of_our_stages_and_runs_is_suppressed(spark: SparkSession, heard: Path) -> None:
    failing(spark, "of ours", tag="holdfast-stages")
    jvm: Any = spark._jvm
    (job,) = spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag("holdfast-stages")
    info = spark.sparkContext.statusTracker().getJobInfo(job)
    assert info is not None
    (stage,) = info.stageIds
    logger = jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.scheduler.Any")
    run = "0b2b7bb2-7d71-4bfa-8d52-5d5a5d8c8a55"
    query: Any = SimpleNamespace(runId=run)
    quiet = QuietLog(spark, ("holdfast-stages",), query)
    quiet.begin()
    try:
        for line in (
            f"Lost task 0.0 in stage {stage}.0 (TID 7777)",
            f"ResultStage {stage} (collect at x) failed",
            f"Failed to cancel job group {run}.",
            f"Lost task 0.0 in stage {stage}1.0 (TID 8888)",
        ):
            logger.error(line)
    finally:
        quiet.end()
    told = heard.read_text()
    assert "(TID 7777)" not in told
    assert "(TID 8888)" in told, "of another stage, whose number begins alike"
    assert "ResultStage" not in told
    assert run not in told


def test_a_silent_source_is_looked_at_ten_times_a_second(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.readStream.format("rate").load()

    def delay_of(place: str) -> int:
        with query_settings(spark):
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


def test_a_query_writes_no_files_of_checksums_unless_the_session_has_said_how(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hadoop starts a process for each file that it makes."""
    frame = spark.readStream.format("rate").load()

    def has_checksums(place: Path) -> bool:
        with query_settings(spark):
            query = (
                frame.writeStream.format("noop").option("checkpointLocation", str(place)).start()
            )
        try:
            await_that((place / "commits" / "0").exists, "a batch")
        finally:
            query.stop()
        return bool(list(place.rglob("*.crc")))

    assert not has_checksums(tmp_path / "ours")
    assert FILES not in spark.conf.getAll
    spark.conf.set(FILES, "org.apache.hadoop.fs.local.LocalFs")
    try:
        assert has_checksums(tmp_path / "theirs")
    finally:
        spark.conf.unset(FILES)
