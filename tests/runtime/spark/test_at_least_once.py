"""Jobs whose checkpoints are at-least-once, on real Spark: slots are killed, and no row is lost."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime import CheckpointConfig, FixedDelayRestart, JobStatus, StreamEnvironment
from support.jobs.spark_jobs import (
    await_checkpoints,
    build,
    make_orders,
    read_orders,
    seen,
    sinks_at,
    write_orders,
)
from support.states.tried_backends import TRIED, backend_named

pytestmark = pytest.mark.slow

FILES = 12


@pytest.mark.dealt("backend_name")
@pytest.mark.parametrize("backend_name", TRIED)
@pytest.mark.parametrize(
    "kills", [1, pytest.param(4, marks=pytest.mark.soak), pytest.param(8, marks=pytest.mark.soak)]
)
def test_no_row_is_lost_when_slots_are_killed(
    spark: SparkSession, tmp_path: Path, backend_name: str, kills: int
) -> None:
    orders = make_orders(7, 240)
    write_orders(tmp_path / "in", orders, FILES)
    env = StreamEnvironment(
        spark,
        parallelism=2,
        backend=backend_named(backend_name, tmp_path / "state"),
        storage=f"file://{tmp_path}/checkpoints",
        checkpointing=CheckpointConfig(
            interval="100ms", mode="at-least-once", max_concurrent=2, tolerable_failures=100
        ),
        restart=FixedDelayRestart(attempts=2 * kills, delay="0s"),
    )
    source = env.from_stream(read_orders(env, tmp_path / "in"), uid="orders", available_now=True)
    job = build(env, source, sinks_at(tmp_path)).execute_async("twice")
    assert any("at-least-once" in note for note in job.notes)
    for killed in range(kills):
        await_checkpoints(job)
        os.kill(job.slot_pids()[killed % 2], signal.SIGKILL)
    assert job.result(200) is JobStatus.FINISHED
    attempts = job.metrics()["attempts"]
    assert attempts == kills + 1
    counted = Counter(row[2] for row in seen(tmp_path)["out"].elements() if row[0] == "order")
    assert {*counted} == {order.n for order in orders}
    assert max(counted.values()) <= attempts, "only the replay counts again"
