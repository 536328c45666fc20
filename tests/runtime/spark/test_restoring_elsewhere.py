"""Checkpoints that do not lie where the job keeps its own: how the way to them is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime import CollectSink, StreamEnvironment
from holdfast.runtime.driver.claiming import (
    ClaimedCheckpoint,
    claim,
    claimed_before,
    claims_as_properties,
)
from holdfast.runtime.driver.restoring import find_restore_point
from holdfast.runtime.spark.storage_settings import SessionStorages
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    NotFound,
    SavepointFolder,
    load_storage,
    names,
)
from holdfast.storage.registry import OpenStorage
from support.jobs.spark_jobs import (
    await_that,
    build,
    make_orders,
    read_orders,
    sinks_at,
    write_orders,
)
from support.servers.s3 import ADMIN, REGION, S3Server


def with_checkpoint(storage: CheckpointStorage) -> str:
    """The folder of a job's only checkpoint."""
    job = storage.job("orders")
    job.take_over().commit(
        CheckpointMetadata(job_id="orders", checkpoint_id=3, triggered_ms=0, completed_ms=0)
    )
    return f"{job.url}/{names.checkpoint_folder(3)}"


def check_restored_and_claimed(
    mine: CheckpointStorage, folder: str, open_storage: OpenStorage
) -> None:
    """A first run restores and claims it; a later one, which knows its URL alone, deletes it."""
    point = find_restore_point(mine.job("orders"), folder, open_storage)
    assert point is not None
    assert point.metadata.checkpoint_id == 3
    assert point.number_in(mine.job("orders")) is None
    job = mine.job("orders")
    (later,) = claimed_before(claims_as_properties([claim(point, job)]), job, open_storage)
    assert isinstance(later, ClaimedCheckpoint)
    later.release()
    while later.owes:
        later.step(10)
    assert later.job.completed() == ()


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and endpoint can be found only in what is given."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def by_session(s3_server: S3Server) -> OpenStorage:
    """What a session that knows the store makes of a URL."""
    conf = {
        "spark.hadoop.fs.s3a.endpoint": s3_server.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.access.key": ADMIN.key,
        "spark.hadoop.fs.s3a.secret.key": ADMIN.secret,
    }
    session = SimpleNamespace(conf=SimpleNamespace(getAll=conf))
    return SessionStorages.of(cast("SparkSession", session))


@pytest.mark.usefixtures("no_credentials")
def test_a_place_in_the_bucket_is_reached_by_the_storage_s_own_options(
    s3_server: S3Server, s3_bucket: str
) -> None:
    folder = with_checkpoint(load_storage(f"s3a://{s3_bucket}/v1", **s3_server.options()))
    mine = load_storage(f"s3://{s3_bucket}/v2", **s3_server.options())
    check_restored_and_claimed(mine, folder, load_storage)


@pytest.mark.usefixtures("no_credentials")
@pytest.mark.parametrize("is_in_a_file", [False, True])
def test_another_bucket_is_reached_as_the_session_says(
    s3_server: S3Server,
    s3_bucket: str,
    by_session: OpenStorage,
    tmp_path_factory: pytest.TempPathFactory,
    is_in_a_file: bool,  # noqa: FBT001
) -> None:
    """Also from a storage of another kind."""
    folder = with_checkpoint(
        load_storage(f"s3a://{s3_server.new_bucket()}/v1", **s3_server.options())
    )
    url = str(tmp_path_factory.mktemp("mine")) if is_in_a_file else f"s3a://{s3_bucket}/v1"
    check_restored_and_claimed(by_session(url), folder, by_session)


@pytest.fixture
def telling(spark: SparkSession, s3_server: S3Server) -> Iterator[SparkSession]:
    """A session that knows the store."""
    settings = {
        "endpoint": s3_server.endpoint,
        "endpoint.region": REGION,
        "access.key": ADMIN.key,
        "secret.key": ADMIN.secret,
    }
    named = {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}
    for name, value in named.items():
        spark.conf.set(name, value)
    yield spark
    for name in named:
        spark.conf.unset(name)


@pytest.mark.slow
@pytest.mark.usefixtures("no_credentials")
def test_slots_write_a_savepoint_to_a_place_that_the_session_knows(
    s3_server: S3Server, s3_bucket: str, telling: SparkSession, tmp_path: Path
) -> None:
    """Its keys came to them with their task."""
    long = [order._replace(user=order.user * 5_000) for order in make_orders(2, 30)]
    write_orders(
        tmp_path / "in", long, 2
    )  # what is short is in the metadata, which the driver writes
    env = StreamEnvironment(
        telling, parallelism=2, storage=str(tmp_path / "mine"), checkpointing="300ms"
    )
    frame = read_orders(env, tmp_path / "in")
    source = env.from_stream(frame, uid="orders")
    job = build(env, source, sinks_at(tmp_path)).execute_async("orders")
    await_that(lambda: job.metrics()["sources"].get("orders", {}).get("rows") == 30, "all rows")
    saved = job.trigger_savepoint(f"s3a://{s3_bucket}/saved", format="native")
    job.cancel()
    there = load_storage(f"s3a://{s3_bucket}/saved", **s3_server.options())
    folder = SavepointFolder(there, saved.rpartition("/")[2])
    assert folder.load().operators["spend"].parts
    files = [info.name for info in there.list(f"{folder.folder}/")]
    assert any("/slot-" in name for name in files), f"slots have written none of {files}"


@pytest.mark.slow
@pytest.mark.usefixtures("no_credentials")
def test_an_environment_asks_its_own_session(s3_bucket: str, telling: SparkSession) -> None:
    """Which the store tells by what it answers: that the checkpoint is not there."""
    env = StreamEnvironment(telling, parallelism=1, storage="memory://elsewhere")
    env.from_batch(telling.range(3), uid="numbers").sink_to(CollectSink(), uid="all")
    folder = f"s3a://{s3_bucket}/v1/orders/{names.checkpoint_folder(9)}"
    with pytest.raises(NotFound, match="there is no checkpoint 9 to restore from"):
        env.execute_async("orders", restore=folder)
