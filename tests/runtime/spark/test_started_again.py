"""A job that runs is started again: refused while it runs, and not a moment longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime import CollectSink, JobHandle, StreamEnvironment
from holdfast.storage import Invalid


def start(spark: SparkSession, place: Path) -> JobHandle:
    env = StreamEnvironment(spark, storage=str(place), parallelism=1, checkpointing="1h")
    frame = spark.readStream.format("rate").load().selectExpr("value")
    env.from_stream(frame, uid="rate").sink_to(CollectSink(), uid="out")
    return env.execute_async("again")


@pytest.mark.slow
def test_a_job_is_started_again_as_soon_as_it_has_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    # A caller that waits for its end may be quicker than its endpoint closes.
    start(spark, tmp_path).cancel()
    job = start(spark, tmp_path)
    try:
        with pytest.raises(Invalid, match="job 'again' runs already"):
            start(spark, tmp_path)
    finally:
        job.cancel()
