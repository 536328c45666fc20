"""Jobs whose checkpoints have rows in flight, on real Spark: killed, and gone on with elsewhere."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime import (
    CheckpointConfig,
    JobFailed,
    JobHandle,
    JobStatus,
    NoRestart,
    StreamEnvironment,
)
from holdfast.storage import JobStorage, SystemClock, load_storage
from support.jobs.spark_jobs import (
    await_that,
    build,
    check_complete,
    check_sound,
    expected,
    make_orders,
    read_orders,
    sinks_at,
    write_orders,
)
from support.states.tried_backends import TRIED, backend_named

pytestmark = pytest.mark.slow

_ROW_S = 0.005


def slowly(operator: str, _number: int) -> None:
    if operator == "spend":
        SystemClock().sleep_s(_ROW_S)


def await_rows_in_flight(handle: JobHandle, job: JobStorage) -> None:
    """Return when the newest checkpoint has rows in flight that none before this call had."""
    before = job.completed()

    def has_some() -> bool:
        assert not handle.status.is_final, handle.failures
        latest = job.latest()
        is_new = latest is not None and (not before or latest.checkpoint_id > before[-1])
        return is_new and latest is not None and bool(latest.in_flight)

    await_that(has_some, "a checkpoint with rows in flight")


@pytest.mark.dealt("backend_name")
@pytest.mark.parametrize("backend_name", TRIED)
@pytest.mark.parametrize(
    "slots",
    [
        (2, 3),
        pytest.param((3, 2, 4, 1), marks=pytest.mark.soak),
        pytest.param((2, 2, 2, 2), marks=pytest.mark.soak),
    ],
)
def test_rows_in_flight_are_neither_lost_nor_doubled(
    spark: SparkSession, tmp_path: Path, quick_path: Path, backend_name: str, slots: tuple[int, ...]
) -> None:
    """A slot of each run but the last is killed, and the next run has another number of them."""
    orders = make_orders(11, 1_000, users=100)
    answer = expected(orders)
    write_orders(tmp_path / "in", orders, 2)

    def start(parallelism: int, **job: Any) -> JobHandle:
        env = StreamEnvironment(
            spark,
            parallelism=parallelism,
            backend=backend_named(backend_name, quick_path / "state"),
            storage=f"file://{tmp_path}/checkpoints",
            checkpointing=CheckpointConfig(
                interval="100ms", source_alignment_timeout="20ms", tolerable_failures=100
            ),
            restart=NoRestart(),
        )
        # Many small splits: what one task brings to a slot is processed at once.
        frame = read_orders(env, tmp_path / "in").repartition(16, "user")
        source = env.from_stream(frame, uid="orders", available_now=True)
        build(env, source, sinks_at(tmp_path), **job)
        return env.execute_async("job", restore="latest")

    stored = load_storage(f"file://{tmp_path}/checkpoints").job("job")
    *slow, last = slots
    for parallelism in slow:
        job = start(parallelism, on_row=slowly)
        await_rows_in_flight(job, stored)
        os.kill(job.slot_pids()[0], signal.SIGKILL)
        with pytest.raises(JobFailed):
            job.result(200)
        check_sound(tmp_path, answer)
    latest = stored.latest()
    assert latest is not None
    assert latest.in_flight, "the last run begins with rows in flight"
    assert start(last).result(200) is JobStatus.FINISHED
    check_complete(tmp_path, answer)
