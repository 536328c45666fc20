"""What users say of RocksDB gets to where their state is; what cannot work is told by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import StateBackend, ValueStateDescriptor, load_backend
from holdfast.runtime import (
    CollectSink,
    JobFailed,
    JobHandle,
    JobStatus,
    KeyedProcessFunction,
    StreamEnvironment,
)
from support.jobs.spark_jobs import await_checkpoints, await_that, check_no_state_is_left

pytestmark = pytest.mark.slow


class Total(KeyedProcessFunction):
    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


def start(
    spark: SparkSession, frame: Any, backend: str | StateBackend, **options: Any
) -> JobHandle:
    class Totals(Total):  # pickled by value: slots do not know this module
        process_element = Total.process_element

    env = StreamEnvironment(spark, parallelism=2, backend=backend, **options)
    read = env.from_stream if frame.isStreaming else env.from_batch
    numbers = read(frame, uid="numbers").key_by("key")
    numbers.process(Totals(), "key long, n long", uid="totals").sink_to(CollectSink(), uid="out")
    return env.execute_async("totals")


def caches_of(job: JobHandle) -> list[int]:
    """How large the cache of each slot may become, of those that have told it."""
    slots: Any = job.metrics()["slots"]
    return [slot["backend"].get("cache_limit_bytes") for slot in slots.values()]


def test_a_job_finds_rocksdb_by_its_name(spark: SparkSession) -> None:
    numbers = spark.range(100).selectExpr("id % 3 as key", "id as n")
    job = start(spark, numbers, "rocksdb")
    assert job.result(200) is JobStatus.FINISHED
    totals: dict[int, int] = {}
    for row in job.collected("out").to_pylist():
        totals[row["key"]] = max(row["n"], totals.get(row["key"], 0))
    assert totals == {key: sum(range(key, 100, 3)) for key in range(3)}


def test_settings_of_rocksdb_get_to_every_slot(spark: SparkSession, tmp_path: Path) -> None:
    disks = [tmp_path / "one", tmp_path / "two"]
    backend = load_backend(
        "rocksdb",
        memory="48m",
        predefined="spinning-disk",
        options={"compression": "kLZ4Compression", "write_buffer_size": 3 << 20},
        directories=list(map(str, disks)),
    )
    rate = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    numbers = rate.selectExpr("value % 50 as key", "value as n")
    job = start(spark, numbers, backend, storage=str(tmp_path / "kept"), checkpointing="200ms")
    try:
        await_checkpoints(job)
        told: dict[Path, str] = {}
        for disk in disks:
            for path in sorted(disk.rglob("OPTIONS-*")):
                told[path.parent] = path.read_text()
        await_that(lambda: caches_of(job) == [40 << 20] * 2, "caches of 5/6 of the memory")
    finally:
        job.cancel()
    assert len(told) == 2, "a database for each slot"
    for text in told.values():
        families = text.split("[CFOptions ")[2:]  # the first one is RocksDB's own, and not used
        assert families
        for family in families:
            assert "  compression=kLZ4Compression" in family
            assert "  write_buffer_size=3145728" in family
            assert "  compaction_style=kCompactionStyleLevel" in family
    for disk in disks:
        check_no_state_is_left(disk)


def test_a_directory_that_cannot_be_written_to_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    backend = load_backend("rocksdb", directories=[str(tmp_path / "file" / "state")])
    job = start(spark, spark.range(10).selectExpr("id as key", "id as n"), backend)
    told = f"a directory for state cannot be made [{tmp_path}/file/state]"
    with pytest.raises(JobFailed, match=re.escape(told)):
        job.result(200)
