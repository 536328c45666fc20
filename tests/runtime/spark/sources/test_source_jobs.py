"""What becomes of a whole job when its sources are disturbed, or cannot be read in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from holdfast.runtime import (
    CheckpointConfig,
    CollectSink,
    JobFailed,
    JobHandle,
    JobStatus,
    KeyedProcessFunction,
    StreamEnvironment,
)
from holdfast.storage import SystemClock, load_storage
from support.jobs.spark_jobs import await_checkpoints, await_that

pytestmark = pytest.mark.slow

ROWS = 4_000
SPLITS, SPLITS_BEFORE = 12, 8
"""The first splits are read as two waves of four tasks; the rest waits for a file."""


class Place:
    """A job over shuffled rows that stops in the middle of them until it may go on."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        self.gate, self.raised = root / "gate", root / "raised"
        self.storage = str(root / "checkpoints")

    def start(self, restore: str | None = None) -> JobHandle:
        gate, raised = self.gate, self.raised

        def wait_at_gate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            while context and context.partitionId() >= SPLITS_BEFORE and not gate.exists():
                SystemClock().sleep_s(0.02)
            yield from batches

        class Timely(KeyedProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
                if gate.exists() and not raised.exists():
                    raised.touch()
                    raise ValueError("once")
                yield value.n, ctx.timestamp() <= ctx.timer_service().current_watermark()

        numbers = self.spark.range(0, ROWS, 1, 4).selectExpr("id as n", "1000 * id as ts")
        shuffled = numbers.repartition(SPLITS)
        frame = shuffled.mapInArrow(wait_at_gate, shuffled.schema)
        env = StreamEnvironment(
            self.spark,
            parallelism=2,
            storage=self.storage,
            checkpointing=CheckpointConfig(interval="100ms", on_cancel="retain"),
        )
        stream = env.from_batch(frame, uid="in").with_watermark("ts", 0)
        timely = stream.key_by("n").process(Timely(), "n long, is_late boolean", uid="timely")
        timely.sink_to(CollectSink(), uid="out")
        return env.execute_async("shuffled", restore=restore)

    def splits_done(self) -> int:
        latest = load_storage(self.storage).job("shuffled").latest()
        return 0 if latest is None else int(latest.sources["in"].attributes["splits_done"])

    def start_and_get_to_the_middle(self) -> JobHandle:
        job = self.start()
        await_that(lambda: self.splits_done() == SPLITS_BEFORE or job.status.is_final, "the middle")
        assert not job.status.is_final, job.failures
        return job


def test_shuffled_rows_go_on_where_they_were_and_none_is_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(tmp_path, spark)
    job = place.start_and_get_to_the_middle()
    place.gate.touch()
    assert job.result(250) is JobStatus.FINISHED
    assert len(job.failures) == 1
    assert place.raised.exists()
    rows = sorted(tuple(row.values()) for row in job.collected("out").to_pylist())
    assert rows == [(n, False) for n in range(ROWS)]


def test_another_run_does_not_go_on_in_the_middle_of_shuffled_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(tmp_path, spark)
    place.start_and_get_to_the_middle().cancel()
    with pytest.raises(JobFailed) as caught:
        place.start("latest").result(200)
    assert str(caught.value).splitlines()[0] == (
        "source 'in' failed: source 'in' was read in part when the checkpoint was taken, and only "
        "the run that took it knows which rows each split has: expected a DataFrame of files, a "
        "range or rows of the driver, with no shuffle or the like after it, found 8 of 12 splits "
        "done, of another kind. Write the DataFrame to files and read those, or start the job "
        "afresh"
    )
    assert place.splits_done() == SPLITS_BEFORE


def test_a_job_whose_query_others_stop_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    class Echo(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield (value.value,)

    env = StreamEnvironment(spark, parallelism=1, storage=str(tmp_path), checkpointing="200ms")
    rate = spark.readStream.format("rate").option("rowsPerSecond", 20).load().select("value")
    echo = env.from_stream(rate, uid="in").key_by("value").process(Echo(), "n long", uid="echo")
    echo.sink_to(CollectSink(), uid="out")
    job = env.execute_async("endless")
    try:
        await_checkpoints(job, 3)
        for query in spark.streams.active:
            query.stop()
        await_that(lambda: job.failures, "a failure")
        await_that(lambda: job.status is JobStatus.RUNNING, "the next attempt")
        before = job.collected("out").num_rows
        await_that(lambda: job.collected("out").num_rows > before + 20, "more rows")
        assert load_storage(str(tmp_path)).job("endless").latest() is not None
        assert "was stopped from outside before its end" in job.failures[0]
        rows = sorted(row["n"] for row in job.collected("out").to_pylist())
        assert rows == list(range(len(rows)))
    finally:
        job.cancel()
