"""Jobs on Spark of which a part is busy: the others go on, and what hangs has a name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime import (
    CheckpointConfig,
    CollectSink,
    JobFailed,
    JobStatus,
    KeyedProcessFunction,
    NoRestart,
    StreamEnvironment,
)
from holdfast.storage import SystemClock
from support.jobs.spark_jobs import await_checkpoints, await_that

pytestmark = pytest.mark.slow

FEW, MANY = 10, 1000
"""Rows of a micro-batch. Many are worked on for longer than Spark takes for the next ones."""


class Toil(KeyedProcessFunction):
    """Takes three milliseconds for each row, and answers few."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        SystemClock().sleep_s(0.003)
        if value.value % 100 == 0:
            yield (value.value,)


def test_both_get_their_checkpoints_though_one_always_has_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The one with more is the last of the slot's chains: it was served whenever it had rows."""
    storage = str(tmp_path / "checkpoints")
    config = CheckpointConfig(interval="300ms", timeout="12s", tolerable_failures=0)
    env = StreamEnvironment(spark, parallelism=1, storage=storage, checkpointing=config)
    for uid, rows in (("few", FEW), ("many", MANY)):
        frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
        wide = frame.selectExpr("value", "value % 7 as k", "repeat('x', 9000) as filling")
        toil = env.from_stream(wide, uid=uid).key_by("k").process(Toil(), "n long", uid=f"of {uid}")
        toil.sink_to(CollectSink(), uid=f"{uid}-out")
    job = env.execute_async("pipelines")

    try:
        # There are quick ones before there are rows.
        await_that(lambda: job.metrics()["sources"].get("many", {}).get("batches", 0) > 1, "rows")
        await_checkpoints(job, 1)
        assert job.status is JobStatus.RUNNING, job.failures
        counts = job.checkpoints().counts
        assert (counts.failed, job.failures) == (0, ())
    finally:
        job.cancel()


class Hanging(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        SystemClock().sleep_s(600)


def test_a_function_that_never_returns_is_named_when_a_checkpoint_expires(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = CheckpointConfig(interval="300ms", timeout="6s", tolerable_failures=0)
    env = StreamEnvironment(
        spark,
        parallelism=1,
        storage=str(tmp_path),
        checkpointing=config,
        restart=NoRestart(),
    )
    numbers = env.from_batch(spark.range(4), uid="in")
    numbers.key_by("id").process(Hanging(), "n long", uid="hangs").sink_to(CollectSink(), uid="out")
    job = env.execute_async("hangs")
    with pytest.raises(JobFailed) as caught:
        job.result(120)
    told = str(caught.value)
    assert "no answer from slots 0 within 6 s; slot 0: operator 'hangs' has been in " in told
    assert "Hanging.process_element (test_liveness.py, line " in told
