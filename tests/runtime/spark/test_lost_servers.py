"""The server that keeps the checkpoints dies under a job on Spark, and comes back a while later."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import StateBackend
from holdfast.runtime import CheckpointConfig, JobHandle, JobStatus, StreamEnvironment
from holdfast.storage import SystemClock
from support.jobs.spark_jobs import (
    await_checkpoints,
    await_that,
    build,
    build_from_files,
    check_complete,
    check_sound,
    expected,
    make_orders,
    read_orders,
    seen,
    sinks_at,
    write_orders,
)
from support.servers.hdfs import HdfsServer
from support.servers.s3 import S3Server
from support.states.tried_backends import REGISTERED
from support.storages.tried_storages import REMOTE, place_named

pytestmark = pytest.mark.slow

FILES = 3
AWAY_S = 3.0
PAIRS = [*zip(itertools.cycle(REGISTERED), REMOTE)]


def show(root: Path, numbers: range) -> None:
    for number in numbers:
        path = root / "all" / f"{number:04}.json"
        path.rename(root / "in" / path.name)


def rows_of(job: JobHandle) -> int:
    assert not job.status.is_final, job.failures
    sources: Any = job.metrics()["sources"]
    return int(sources["orders"]["rows"]) if sources else 0


def last_seen(root: Path) -> int:
    """The number of the last order that readers see."""
    numbers: list[int] = [n for kind, _, n, _ in seen(root)["out"] if kind == "order"]
    return max(numbers)


@pytest.mark.dealt("backend_name", "storage_name", take=1)
@pytest.mark.parametrize(("backend_name", "storage_name"), PAIRS)
def test_a_job_catches_up_when_the_server_of_its_checkpoints_is_back(
    tmp_path: Path,
    spark: SparkSession,
    backend: StateBackend,
    storage_name: str,
    request: pytest.FixtureRequest,
) -> None:
    server: S3Server | HdfsServer = request.getfixturevalue(f"{storage_name}_server")
    orders = make_orders(11, 240)
    write_orders(tmp_path / "all", orders, FILES)
    (tmp_path / "in").mkdir()
    show(tmp_path, range(1))
    place = place_named(storage_name, tmp_path, request)

    def environment() -> StreamEnvironment:
        return StreamEnvironment(
            spark,
            parallelism=2,
            backend=backend,
            storage=place.storage(inline_limit_bytes=0),
            checkpointing=CheckpointConfig(
                interval="200ms", on_cancel="retain", tolerable_failures=1_000_000
            ),
        )

    env = environment()
    source = env.from_stream(read_orders(env, tmp_path / "in"), uid="orders")
    job = build(env, source, sinks_at(tmp_path)).execute_async("job")
    await_that(lambda: rows_of(job) == 80, "the first third")
    await_checkpoints(job)

    try:
        server.kill()
        show(tmp_path, range(1, 2))
        await_that(lambda: rows_of(job) == 160, "the second third is read meanwhile")
        SystemClock().sleep_s(AWAY_S)
        assert last_seen(tmp_path) < 80, "nothing is committed without a checkpoint"

        server.start()
        await_that(lambda: last_seen(tmp_path) >= 80, "rows of the second third")
        check_sound(tmp_path, expected(orders))
        assert job.metrics()["attempts"] == 1, job.failures
    finally:
        job.cancel()

    show(tmp_path, range(2, FILES))
    last = build_from_files(environment(), tmp_path).execute_async("job", restore="latest")
    assert last.result(250) is JobStatus.FINISHED
    check_complete(tmp_path, expected(orders))
