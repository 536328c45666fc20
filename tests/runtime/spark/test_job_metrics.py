"""What the handle of a job tells of state while the job runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import (
    CheckpointConfig,
    CollectSink,
    JobHandle,
    JobStatus,
    KeyedProcessFunction,
    StreamEnvironment,
)
from support.documents.told_metrics import documented
from support.jobs.spark_jobs import await_checkpoints, await_that
from support.states.tried_backends import backend_named

pytestmark = pytest.mark.slow


class Total(KeyedProcessFunction):
    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


def states_of(job: JobHandle, state: str) -> list[Mapping[str, float]]:
    """The numbers of a state of the operator `totals`, of each slot that has told them."""
    slots: Any = job.metrics()["slots"]
    operators = [slot["operators"].get("totals", {"states": {}}) for slot in slots.values()]
    return [each["states"][state] for each in operators if state in each["states"]]


def test_a_job_on_rocksdb_tells_of_its_state_while_it_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    class Totals(Total):  # pickled by value: slots do not know this module
        process_element = Total.process_element

    env = StreamEnvironment(
        spark,
        parallelism=2,
        backend=backend_named("rocksdb", tmp_path / "state"),
        storage=str(tmp_path / "checkpoints"),
        checkpointing=CheckpointConfig(interval="300ms"),
    )
    rate = spark.readStream.format("rate").option("rowsPerSecond", 500).load()
    numbers = env.from_stream(rate.selectExpr("value % 50 as key", "value as n"), uid="numbers")
    totals = numbers.key_by("key").process(Totals(), "key long, n long", uid="totals")
    totals.sink_to(CollectSink(), uid="out")
    job = env.execute_async("metrics")
    try:
        await_checkpoints(job)
        await_that(
            lambda: (
                sum(each["entries"] for each in states_of(job, "total")) >= 50
                and min((each["files_bytes"] for each in states_of(job, "total")), default=0) > 0
            ),
            "entries in files of both slots",
        )
        told = job.metrics()
    finally:
        job.cancel()
    assert job.status is JobStatus.CANCELLED
    assert set(told) == documented("Of the job")
    assert set(told["slots"]) == {0, 1}
    for slot in told["slots"].values():
        assert set(slot) == documented("Of a slot")
        assert slot["rows"] > 0
        assert set(slot["backend"]) == documented("`backend`")
        assert slot["backend"]["cache_bytes"] > 0
        assert set(slot["operators"]) == {"totals", "out"}
        keyed = slot["operators"]["totals"]
        assert set(keyed["store"]) == documented("`store`")
        assert set(keyed["states"]) == {
            "total",
            "_timers/user-timers/event",
            "_timers/user-timers/processing",
        }
        for numbers_of_state in keyed["states"].values():
            assert set(numbers_of_state) == documented("`states`")
        assert keyed["states"]["total"]["entries"] > 0
        sink = slot["operators"]["out"]
        assert (sink["store"], sink["states"]) == ({}, {})
        assert set(sink["operator_states"]["committables"]) == documented("`operator_states`")
