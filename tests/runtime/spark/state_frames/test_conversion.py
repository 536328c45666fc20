"""Jobs that are moved to another backend by a conversion, on real Spark, and as a job of Spark."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from holdfast.runtime import CheckpointConfig, JobStatus, StreamEnvironment
from holdfast.runtime.cli.application import application
from holdfast.runtime.spark.state_frames.conversion import SparkRunner
from holdfast.savepoints import compare, find_snapshot
from holdfast.savepoints.conversion import Conversion, ConversionOptions
from holdfast.storage import SavepointFolder, load_storage
from support.jobs.spark_jobs import (
    await_that,
    build,
    build_from_files,
    check_answer,
    expected,
    hidden_files,
    make_orders,
    read_orders,
    sinks_at,
    write_orders,
)
from support.states.tried_backends import PLAIN, TRIED, backend_named

FILES, ORDERS = 4, 160
QUICKER = [
    ("hashmap", "checkpoint", "rocksdb"),
    ("changelog-rocksdb", "native", "hashmap"),
    ("sqlite", "canonical", "sqlite"),
]
CELLS = [
    pytest.param(*each, marks=pytest.mark.slow if each in QUICKER else pytest.mark.soak)
    for each in product(TRIED, ("checkpoint", "native", "canonical"), PLAIN)
]
"""What a job was, what it left, and what it becomes."""


def env_of(root: Path, spark: SparkSession, backend: str, **settings: Any) -> StreamEnvironment:
    return StreamEnvironment(
        spark,
        parallelism=settings.pop("parallelism", 1),
        max_parallelism=32,
        backend=backend_named(backend, root / "state"),
        storage=f"file://{root / 'checkpoints'}",
        checkpointing=CheckpointConfig(interval="200ms", on_cancel="retain"),
    )


def begin(root: Path, spark: SparkSession, backend: str, form: str) -> str:
    """Run a job over the first half; answers the savepoint, or the checkpoint that it left."""
    write_orders(root / "all", make_orders(13, ORDERS), FILES)
    (root / "in").mkdir()
    show(root, range(FILES // 2))
    env = env_of(root, spark, backend)
    source = env.from_stream(read_orders(env, root / "in"), uid="orders")
    job = build(env, source, sinks_at(root)).execute_async("orders")

    def has_all() -> bool:
        assert not job.status.is_final, job.failures
        sources: Any = job.metrics()["sources"]
        return bool(sources) and sources["orders"]["rows"] == ORDERS // 2

    await_that(has_all, "the first half")
    if form != "checkpoint":
        return job.stop_with_savepoint(str(root / "savepoints"), format=form)
    begun = job.checkpoints().counts.begun
    job.trigger_checkpoint()

    def has_followed() -> bool:
        newest = job.checkpoints().last_completed
        return newest is not None and newest.checkpoint_id > begun

    await_that(has_followed, "a checkpoint of the first half")
    job.cancel()
    job.result(60)
    stored = load_storage(str(root / "checkpoints")).job("orders")
    return f"{stored.url}/chk-{stored.completed()[-1]:020d}"


def show(root: Path, files: range) -> None:
    for number in files:
        (root / "all" / f"{number:04}.json").rename(root / "in" / f"{number:04}.json")


def finish(root: Path, spark: SparkSession, backend: str, restore: str, parallelism: int) -> None:
    show(root, range(FILES // 2, FILES))
    env = env_of(root, spark, backend, parallelism=parallelism)
    job = build_from_files(env, root).execute_async("moved", restore=restore)
    assert job.result(250) is JobStatus.FINISHED
    answer = expected(make_orders(13, ORDERS))
    check_answer(root, answer)
    # A job that is cancelled while a checkpoint is on its way may leave what it had prepared for
    # that hidden: it is for the next run of its name, and not for this one.
    hidden = [path for uid in answer for path in hidden_files(root / uid)]
    assert [path for path in hidden if "moved" in path.relative_to(root).parts] == []


@pytest.mark.dealt("before", "form", "after", take=1)
@pytest.mark.parametrize(("before", "form", "after"), CELLS)
def test_a_job_that_is_moved_goes_on_as_if_nothing_had_been(
    before: str, form: str, after: str, tmp_path: Path, spark: SparkSession
) -> None:
    source = begin(tmp_path, spark, before, form)
    folder = SavepointFolder(load_storage(str(tmp_path / "moved")), "")
    done = Conversion(
        source=find_snapshot(source),
        destination=folder,
        options=ConversionOptions(backend=after, is_canonical=False, parallelism=2),
        backend=backend_named(after, tmp_path / "work"),
        runner=SparkRunner(spark.sparkContext),
    ).run()
    assert done.rows
    assert compare(find_snapshot(source), find_snapshot(folder.url), lambda _: None).are_equal
    finish(tmp_path, spark, after, folder.url, parallelism=2)


@pytest.mark.slow
@pytest.mark.dealt("before", "after", take=1)
@pytest.mark.parametrize(
    ("before", "after"), [("rocksdb", "hashmap"), ("rocksdb", "changelog-sqlite")]
)
def test_a_retained_checkpoint_is_restored_under_another_backend(
    before: str, after: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Without a conversion, though it is files of RocksDB."""
    source = begin(tmp_path, spark, before, "checkpoint")
    left = find_snapshot(source).metadata.operators["spend"].parts
    assert any("rocksdb/" in str(part.attributes) for part in left)
    finish(tmp_path, spark, after, source, parallelism=2)


@pytest.mark.slow
def test_the_command_converts_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    source = begin(tmp_path, spark, "hashmap", "native")
    moved = str(tmp_path / "moved")
    arguments = ["convert", source, moved, "--max-parallelism", "64", "--spark", "local[2]"]
    result = CliRunner().invoke(application, ["savepoint", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["savepoint"] == f"file://{moved}"
    assert spark.range(3).count() == 3, "the session that was there is not stopped"
    after = find_snapshot(moved)
    assert {left.max_parallelism for left in after.metadata.operators.values()} == {64}
    assert compare(find_snapshot(source), after, lambda _: None).are_equal
