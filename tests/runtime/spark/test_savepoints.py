"""Savepoints of jobs on real Spark: taken under load, stopped with, moved, and gone on from."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import (
    CheckpointConfig,
    CheckpointStatus,
    FileSink,
    FixedDelayRestart,
    JobFailed,
    JobHandle,
    JobStatus,
    KeyedContext,
    KeyedProcessFunction,
    NoRestart,
    RuntimeContext,
    StreamEnvironment,
)
from holdfast.storage import (
    Invalid,
    NotFound,
    SavepointFolder,
    SystemClock,
    Unavailable,
    load_storage,
)
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
    visible_files,
    write_orders,
)
from support.states.tried_backends import backend_named
from support.storages.tried_storages import place_named

pytestmark = pytest.mark.slow

FILES = 4
ORDERS = 240


class Place:
    """A job over an input that comes in two halves, its results, and where its savepoints go."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root = root
        self.spark = spark
        self.orders = make_orders(13, ORDERS)
        self.savepoints = root / "savepoints"
        write_orders(root / "all", self.orders, FILES)
        (root / "in").mkdir()
        self.show(range(FILES // 2))

    def show(self, files: range) -> None:
        for number in files:
            name = f"{number:04}.json"
            (self.root / "all" / name).rename(self.root / "in" / name)

    def env(
        self,
        backend_name: str = "hashmap",
        *,
        parallelism: int = 1,
        max_parallelism: int | None = 32,
        storage: Any = None,
        restart: Any = None,
        **settings: Any,
    ) -> StreamEnvironment:
        return StreamEnvironment(
            self.spark,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            backend=backend_named(backend_name, self.root / "state"),
            storage=storage or f"file://{self.root / 'checkpoints'}",
            checkpointing=CheckpointConfig(
                **{"interval": "200ms", "savepoint_dir": str(self.savepoints)} | settings
            ),
            restart=restart or FixedDelayRestart(attempts=3, delay="100ms"),
        )

    def start(self, env: StreamEnvironment, name: str = "orders", **restore: Any) -> JobHandle:
        source = env.from_stream(read_orders(env, self.root / "in"), uid="orders")
        return build(env, source, sinks_at(self.root)).execute_async(name, **restore)

    def finish(self, env: StreamEnvironment, name: str, **restore: Any) -> None:
        """Go on with all of the input, to its end."""
        self.show(range(FILES // 2, FILES))
        job = build_from_files(env, self.root).execute_async(name, **restore)
        assert job.result(250) is JobStatus.FINISHED
        check_complete(self.root, expected(self.orders))


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def await_half(job: JobHandle) -> None:
    def has_all() -> bool:
        assert not job.status.is_final, job.failures
        sources: Any = job.metrics()["sources"]
        return bool(sources) and sources["orders"]["rows"] == ORDERS // 2

    await_that(has_all, "half of the orders")


def loaded(path: str, form: str = "canonical") -> SavepointFolder:
    folder = SavepointFolder(load_storage(path), "")
    metadata = folder.load()
    assert metadata.kind == "savepoint"
    assert metadata.properties["format"] == form
    return folder


@pytest.mark.dealt("form", "before", "after", "parallelism", "max_parallelism", take=2)
@pytest.mark.parametrize(
    ("form", "before", "after", "parallelism", "max_parallelism"),
    [
        ("native", "rocksdb", "rocksdb", 1, None),
        ("native", "changelog-rocksdb", "rocksdb", 2, 32),
        ("canonical", "rocksdb", "hashmap", 2, 32),
        ("canonical", "hashmap", "changelog-rocksdb", 2, 24),
    ],
)
def test_a_job_that_was_stopped_goes_on_elsewhere_as_if_nothing_had_been(
    place: Place,
    form: str,
    before: str,
    after: str,
    parallelism: int,
    max_parallelism: int | None,
) -> None:
    """Moved, under another name, backend and parallelism, at most and now; rows are seen once.

    A max parallelism that is not set follows that of the native savepoint, of which it is not 128.
    """
    job = place.start(place.env(before))
    await_half(job)
    path = job.stop_with_savepoint(format=form)
    assert job.status is JobStatus.FINISHED
    assert path.startswith(f"file://{place.savepoints}/savepoint-")
    assert loaded(path, form).read_metadata().job_id == "orders"
    check_sound(place.root, expected(place.orders))
    half = seen(place.root)
    assert half["out"], "what was written before it is committed"
    assert not [*(place.root / "checkpoints" / "orders").glob("chk-*")], "it has finished"
    again = place.start(place.env(before), restore="latest")
    assert again.status is JobStatus.FINISHED
    assert any(path in note for note in again.notes), "it says how to go on"

    moved = place.root / "kept" / "before the upgrade"
    moved.parent.mkdir()
    shutil.move(path.removeprefix("file://"), moved)
    with pytest.raises(NotFound, match="there is no savepoint"):
        place.start(place.env(after), restore=path)
    env = place.env(after, parallelism=parallelism, max_parallelism=max_parallelism)
    place.finish(env, "orders-v2", restore=str(moved))
    assert moved.joinpath("_metadata").exists(), "it belongs to no job"


def test_savepoints_are_taken_under_load_and_the_job_continues(place: Place) -> None:
    job = place.start(place.env("rocksdb", max_concurrent=2))
    await_checkpoints(job)
    paths = [job.trigger_savepoint() for _ in range(2)]
    elsewhere = job.trigger_savepoint(str(place.root / "elsewhere"))
    assert len({*paths, elsewhere}) == 3
    overview = job.checkpoints()
    assert overview.last_savepoint is not None
    assert overview.last_savepoint.savepoint == elsewhere
    assert overview.last_savepoint.status is CheckpointStatus.COMPLETED
    await_checkpoints(job, 3)
    os.kill(job.slot_pids()[0], signal.SIGKILL)
    await_that(lambda: job.metrics()["attempts"] == 2, "another attempt")
    await_checkpoints(job)
    for path in (*paths, elsewhere):
        loaded(path)
    job.interrupt()
    place.finish(place.env("rocksdb"), "orders", restore="latest")
    for path in (*paths, elsewhere):
        loaded(path)


def test_a_cancelled_job_goes_on_from_its_savepoint_which_it_may_claim(place: Place) -> None:
    job = place.start(place.env("changelog-hashmap"))
    await_half(job)
    path = job.cancel_with_savepoint()
    assert job.status is JobStatus.CANCELLED
    assert not [*(place.root / "checkpoints" / "orders").glob("chk-*")]
    loaded(path)
    env = place.env("rocksdb", parallelism=2)
    place.finish(env, "orders", restore=f"{path}/_metadata", claim_mode="claim")
    await_that(lambda: not [*place.savepoints.rglob("*")], "it was claimed, and is deleted")


def test_a_drained_job_has_flushed_all(place: Place) -> None:
    """Timers have fired as if the input had ended, and the job can still be gone on from."""
    half = [order for order in place.orders if order.n < ORDERS // 2]
    job = place.start(place.env("rocksdb"))
    await_half(job)
    path = job.stop_with_savepoint(drain=True)
    assert job.status is JobStatus.FINISHED
    check_complete(place.root, expected(half))
    loaded(path)
    again = place.start(place.env("rocksdb"), "again", restore=path)
    place.show(range(FILES // 2, FILES))
    await_that(lambda: seen(place.root)["out"] - expected(half)["out"], "more rows")
    again.cancel()


class _ClosesLate(KeyedProcessFunction):
    """Counts, and lets the other slot end seconds before it does itself."""

    def open(self, ctx: RuntimeContext) -> None:
        self.slot = ctx.slot
        self.total = ctx.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterable[Any]:
        total = (self.total.value() or 0) + 1
        self.total.update(total)
        yield value.k, total

    def close(self) -> None:
        if self.slot:
            SystemClock().sleep_s(2)


def test_a_batch_that_meets_slots_which_have_ended_is_no_failure_of_a_stop(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Spark still pushes a long one when the savepoint is complete. Then all goes on, exactly."""

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            SystemClock().sleep_s(0.3)
            yield batch

    def start(**restore: Any) -> JobHandle:
        env = StreamEnvironment(
            spark,
            parallelism=2,
            storage=str(tmp_path / "checkpoints"),
            checkpointing=CheckpointConfig(interval="300ms", savepoint_dir=str(tmp_path / "saved")),
            restart=FixedDelayRestart(attempts=3, delay="100ms"),
        )
        rate = spark.readStream.format("rate").option("numPartitions", 12)
        rows = rate.option("rowsPerSecond", 100).load().selectExpr("value % 7 as k")
        source = env.from_stream(rows.mapInArrow(slowly, "k long"), uid="rows").key_by("k")
        counted = source.process(_ClosesLate(), "k long, total long", uid="count")
        counted.sink_to(FileSink(str(tmp_path / "out"), format="json"), uid="out")
        return env.execute_async("count", **restore)

    def seen() -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for path in visible_files(tmp_path / "out"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                found.setdefault(row["k"], []).append(row["total"])
        return {key: sorted(totals) for key, totals in found.items()}

    def has_rows(job: JobHandle) -> bool:
        sources: Any = job.metrics()["sources"]
        return bool(sources) and sources["rows"]["rows"] > 0

    path, before = None, 0
    for _ in range(2):
        job = start(restore=path)
        await_that(partial(has_rows, job), "rows")
        path = job.stop_with_savepoint()
        assert (job.status, job.failures) == (JobStatus.FINISHED, ())
        assert all(totals == [*range(1, len(totals) + 1)] for totals in seen().values())
        after = sum(map(len, seen().values()))
        assert after > before
        before = after


def test_a_savepoint_fails_with_the_attempt_and_leaves_nothing(place: Place) -> None:
    job = place.start(place.env("rocksdb"))
    await_checkpoints(job)
    told: list[str] = []

    def ask() -> None:
        for _ in range(200):
            try:
                job.trigger_savepoint()
            except Unavailable as error:
                told.append(str(error))
                return

    asking = threading.Thread(target=ask)
    asking.start()
    os.kill(job.slot_pids()[0], signal.SIGKILL)
    asking.join(120)
    assert told
    await_that(lambda: job.metrics()["attempts"] == 2, "another attempt")
    await_checkpoints(job)
    for folder in place.savepoints.iterdir():
        loaded(str(folder))
    path = job.stop_with_savepoint()
    place.finish(place.env("changelog-rocksdb"), "orders", restore=path)


@pytest.mark.dealt("name")
@pytest.mark.parametrize("name", ["s3", "hdfs"])
def test_savepoints_go_to_other_storages(
    place: Place, name: str, request: pytest.FixtureRequest
) -> None:
    other = place_named(name, place.root, request).storage()
    env = place.env("rocksdb", storage=other, savepoint_dir=other.url_of("savepoints"))
    job = place.start(env)
    await_half(job)
    path = job.stop_with_savepoint()
    again = place.env("rocksdb", parallelism=2, storage=other)
    place.finish(again, "orders", restore=path)


def test_a_job_goes_on_though_its_output_was_moved_away_if_that_is_said(place: Place) -> None:
    """What was committed is another program's now; what is new is written beside nothing."""
    # Without a checkpoint before it, the savepoint lists all output: sinks look for what it lists.
    job = place.start(place.env(interval="1h"))
    await_half(job)
    path = job.stop_with_savepoint()
    moved = visible_files(place.root / "out")
    assert moved
    (place.root / "away").mkdir()
    for file in moved:
        file.rename(place.root / "away" / file.name)
    job = place.start(place.env(restart=NoRestart()), restore=path)
    with pytest.raises(JobFailed, match="allow_missing_output=True"):
        job.result(120)
    job = place.start(place.env(), restore=path, allow_missing_output=True)
    place.show(range(FILES // 2, FILES))
    await_half(job)
    job.stop_with_savepoint(drain=True)
    for file in (place.root / "away").iterdir():
        file.rename(place.root / "out" / file.name)
    check_complete(place.root, expected(place.orders))


def test_a_storage_that_is_a_file_is_refused_before_anything_is_begun(place: Place) -> None:
    (place.root / "file").write_bytes(b"mine")
    env = place.env(storage=str(place.root / "file"))
    with pytest.raises(Invalid, match="expected a directory, found Not a directory") as caught:
        place.start(env)
    assert str(place.root / "file") in caught.value.where
    assert (place.root / "file").read_bytes() == b"mine"


def test_impossible_savepoint_requests_are_refused(place: Place) -> None:
    job = place.start(place.env(savepoint_dir=None))
    await_checkpoints(job, 1)
    with pytest.raises(Invalid, match="no directory is given for the savepoint"):
        job.trigger_savepoint()
    with pytest.raises(Invalid, match="cannot be kept here"):
        job.stop_with_savepoint("memory://place")
    with pytest.raises(Invalid, match="format is not one of the choices"):
        job.trigger_savepoint(str(place.savepoints), format="parquet")
    (place.root / "file").write_bytes(b"")
    with pytest.raises(Invalid):
        job.trigger_savepoint(str(place.root / "file" / "dir"))
    assert job.status is JobStatus.RUNNING
    job.cancel()
    with pytest.raises(Unavailable, match="no savepoint can be taken now"):
        job.trigger_savepoint(str(place.savepoints))


def test_the_session_says_where_savepoints_go(place: Place) -> None:
    names = ("state.savepoints.dir", "execution.checkpointing.savepoint-dir")
    keys = [f"spark.holdfast.{name}" for name in names]
    try:
        for number, key in enumerate(keys):
            folder = place.root / f"said-{number}"
            place.spark.conf.set(key, str(folder))
            job = place.start(place.env(savepoint_dir=None), f"job-{number}")
            await_checkpoints(job, 1)
            assert job.trigger_savepoint().startswith(f"file://{folder}/savepoint-")
            job.cancel()
            place.spark.conf.unset(key)
        for key in keys:
            place.spark.conf.set(key, str(place.root))
        with pytest.raises(Invalid, match="savepoint-dir' is there twice"):
            place.env(savepoint_dir=None)
    finally:
        for key in keys:
            place.spark.conf.unset(key)
