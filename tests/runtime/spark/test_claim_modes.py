"""Jobs that go on from another job's checkpoint, on real Spark: whose it is, and what is left."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime import (
    CheckpointConfig,
    FixedDelayRestart,
    JobFailed,
    JobHandle,
    JobStatus,
    StreamEnvironment,
)
from holdfast.storage import CheckpointStorage, FileHandle, JobStorage, load_storage, names
from support.jobs.spark_jobs import (
    await_checkpoints,
    await_that,
    build,
    build_from_files,
    check_complete,
    expected,
    make_orders,
    read_orders,
    sinks_at,
    write_orders,
)
from support.states.tried_backends import backend_named
from support.storages.tried_storages import LOCAL, place_named

pytestmark = pytest.mark.slow

FILES = 4
ORDERS = 240


class Place:
    """Two jobs over one input, which comes in two halves, and the results of both together."""

    def __init__(
        self, root: Path, spark: SparkSession, storage: CheckpointStorage, backend_name: str
    ) -> None:
        self.root = root
        self.spark = spark
        self.orders = make_orders(11, ORDERS)
        self.backend = backend_named(backend_name, root / "state")
        self.storage = storage
        write_orders(root / "all", self.orders, FILES)
        (root / "in").mkdir()
        self.show(range(FILES // 2))

    def show(self, files: range) -> None:
        for number in files:
            name = f"{number:04}.json"
            (self.root / "all" / name).rename(self.root / "in" / name)

    def env(self, **settings: Any) -> StreamEnvironment:
        return StreamEnvironment(
            self.spark,
            parallelism=1,
            backend=self.backend,
            storage=self.storage,
            checkpointing=CheckpointConfig(
                **{"interval": "200ms", "on_cancel": "retain"} | settings
            ),
            restart=FixedDelayRestart(attempts=3, delay="100ms"),
        )

    def start(self, name: str, settings: dict[str, Any], **restore: Any) -> JobHandle:
        env = self.env(**settings)
        source = env.from_stream(read_orders(env, self.root / "in"), uid="orders")
        return build(env, source, sinks_at(self.root)).execute_async(name, **restore)

    def job(self, name: str) -> JobStorage:
        return self.storage.job(name)


def files_of(job: JobStorage, number: int) -> set[str]:
    """What a checkpoint refers to, each file with the number of the checkpoint that wrote it."""
    found: set[str] = set()
    for handle in job.load(number).handles():
        if isinstance(handle, FileHandle):
            found.add(handle.file)
    return found


def has_all_rows(job: JobHandle) -> bool:
    assert not job.status.is_final, job.failures
    sources: Any = job.metrics()["sources"]
    return bool(sources) and sources["orders"]["rows"] == ORDERS // 2


@pytest.mark.dealt("claim_mode", "storage_name", "backend_name", take=2)
@pytest.mark.parametrize(
    ("claim_mode", "storage_name", "backend_name"),
    [
        ("no-claim", LOCAL, "changelog-rocksdb"),
        ("no-claim", "s3", "rocksdb"),
        ("claim", "hdfs", "rocksdb"),
        ("claim", LOCAL, "changelog-hashmap"),
    ],
)
def test_a_job_goes_on_from_another_s_checkpoint_and_needs_it_no_more(
    claim_mode: str,
    storage_name: str,
    backend_name: str,
    tmp_path: Path,
    spark: SparkSession,
    request: pytest.FixtureRequest,
) -> None:
    storage = place_named(storage_name, tmp_path, request).storage(inline_limit_bytes=0)
    place = Place(tmp_path, spark, storage, backend_name)
    first = place.start("first", {"retained": 1000})
    await_that(lambda: has_all_rows(first), "the first half")
    await_checkpoints(first, 3)
    if claim_mode == "no-claim":
        first.interrupt()
    newest = place.job("first").completed()[-1]
    path = f"{place.job('first').url}/{names.checkpoint_folder(newest)}"

    second = place.start("second", {"retained": 2}, restore=path, claim_mode=claim_mode)
    if claim_mode == "claim":
        with pytest.raises(JobFailed, match="another process has taken over job 'first'"):
            first.result(200)
    await_checkpoints(second, 3)
    begun = [each.checkpoint_id for each in second.checkpoints().recent]
    assert min(begun) > newest, "numbers go on: what sinks name by them is not named twice"
    left = place.job("first").completed()
    assert (newest in left) is (claim_mode == "no-claim")
    assert left[0] == 1, "the others were not touched"
    storage.delete(info.name for info in storage.list("first/"))

    os.kill(second.slot_pids()[0], signal.SIGKILL)
    await_that(lambda: second.metrics()["attempts"] == 2, "another attempt")
    await_checkpoints(second, 2)
    second.interrupt()
    own = place.job("second")
    for number in own.completed():
        there = {info.name.partition("/")[2] for info in own.storage.list("second/")}
        assert files_of(own, number) <= there

    place.show(range(FILES // 2, FILES))
    last = build_from_files(place.env(), tmp_path).execute_async("second", restore="latest")
    assert last.result(250) is JobStatus.FINISHED
    check_complete(tmp_path, expected(place.orders))
    assert [*storage.list("first/")] == []


def test_two_jobs_from_one_savepoint_run_side_by_side(tmp_path: Path, spark: SparkSession) -> None:
    """The position that they go on from has the id of one query. Spark runs one of an id."""
    storage = load_storage(str(tmp_path / "checkpoints"))
    place = Place(tmp_path, spark, storage, "hashmap")
    settings = {"savepoint_dir": str(tmp_path / "savepoints")}
    first = place.start("first", settings)
    await_that(lambda: has_all_rows(first), "all rows of the first half")
    savepoint = first.stop_with_savepoint()

    def on_from(name: str) -> JobHandle:
        env = place.env()
        source = env.from_stream(read_orders(env, tmp_path / "in"), uid="orders")
        return build(env, source, sinks_at(tmp_path / name)).execute_async(name, restore=savepoint)

    jobs = [on_from("left"), on_from("right")]
    try:
        await_checkpoints(jobs[1])
        await_checkpoints(jobs[0])
        place.show(range(FILES // 2, FILES))
        for job in jobs:
            await_that(partial(has_all_rows, job), f"the second half in {job.job_id}")
            await_checkpoints(job)
        assert [(job.metrics()["attempts"], job.failures) for job in jobs] == [(1, ()), (1, ())]
    finally:
        for job in jobs:
            job.cancel()
