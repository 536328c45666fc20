"""A storage that is named by a URL is set up as the session says."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime.spark.storage_settings import SessionStorages
from holdfast.storage import load_storage
from holdfast.storage.places.hdfs.storage import HdfsCheckpointStorage
from holdfast.storage.places.s3.secrets import Secret
from holdfast.storage.places.s3.storage import S3CheckpointStorage

CONF = {
    "spark.app.name": "x",
    "spark.hadoop.dfs.ha.namenodes.pair": "a",
    "spark.hadoop.dfs.namenode.rpc-address.pair.a": "host:1",
    "spark.hadoop.dfs.replication": "2",
    "spark.hadoop.fs.s3a.endpoint": "http://minio:9000",
    "spark.hadoop.fs.s3a.access.key": "AKID",
    "spark.hadoop.fs.s3a.secret.key": "of-all",
    "spark.hadoop.fs.s3a.bucket.mine.secret.key": "of-mine",
}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """What counts of a session here."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    return cast("SparkSession", SimpleNamespace(conf=SimpleNamespace(getAll=CONF)))


def settings_of(storage: object) -> Any:
    assert isinstance(storage, HdfsCheckpointStorage)
    return storage._objects._settings


def test_hadoop_s_settings_come_from_the_session(session: SparkSession) -> None:
    settings = settings_of(SessionStorages.of(session)("hdfs://pair/a"))
    assert settings.name_node == "hdfs://pair"
    assert settings.replication == 2
    assert dict(settings.config)["dfs.namenode.rpc-address.pair.a"] == "host:1"
    assert settings_of(load_storage("hdfs://pair/a")).name_node == "hdfs://pair:8020"


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_s3_s_settings_come_from_the_session(session: SparkSession, scheme: str) -> None:
    storage = SessionStorages.of(session)(f"{scheme}://mine/a")
    assert isinstance(storage, S3CheckpointStorage)
    assert storage.url == f"{scheme}://mine/a"
    assert storage._options.endpoint_url == "http://minio:9000"
    assert storage._options.secret == Secret("of-mine")
    without = load_storage(f"{scheme}://mine/a")
    assert isinstance(without, S3CheckpointStorage)
    assert without._options.secret is None


def test_the_session_s_storage_settings_travel_with_tasks_and_are_not_shown(
    session: SparkSession,
) -> None:
    """Slots open the place of a savepoint by it: over the network comes only its name."""
    opens = SessionStorages.of(session)
    copy = pickle.loads(pickle.dumps(opens))
    mine: Any = copy("s3a://mine/savepoints")
    its: Any = opens("s3a://mine/savepoints")
    assert isinstance(mine, S3CheckpointStorage)
    assert mine._options == its._options
    assert settings_of(copy("hdfs://pair/a")).name_node == "hdfs://pair"
    assert "of-mine" not in repr(opens)
    assert "spark.app.name" not in opens.conf


def test_other_places_ask_nothing_of_the_session(session: SparkSession) -> None:
    assert SessionStorages.of(session)("memory").url.startswith("memory:")


@pytest.mark.slow
def test_a_real_session_says_what_it_was_told(spark: SparkSession) -> None:
    spark.conf.set("spark.hadoop.dfs.replication", "5")
    try:
        assert settings_of(SessionStorages.of(spark)("hdfs://host:1/a")).replication == 5
    finally:
        spark.conf.unset("spark.hadoop.dfs.replication")
    assert settings_of(SessionStorages.of(spark)("hdfs://host:1/a")).replication is None
