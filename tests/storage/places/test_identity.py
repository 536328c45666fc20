"""Which storages are of one place, and how the settings of one lead to another root."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage import CheckpointStorage, JobManagerCheckpointStorage, load_storage
from holdfast.storage.testing.watched_storage import WatchedStorage

PAIR = {
    "dfs.ha.namenodes.pair": "a,b",
    "dfs.namenode.rpc-address.pair.a": "one:8020",
    "dfs.namenode.rpc-address.pair.b": "two:9000",
    "fs.defaultFS": "hdfs://pair",
    "fs.viewfs.mounttable.all.link./jobs": "hdfs://pair/cp",
}
KEYS = {"key": "AKIDAKID", "secret": "of-the-store", "endpoint": "http://minio:9000"}


def opened(url: str) -> CheckpointStorage:
    options: dict[str, Any] = {}
    if url.startswith("s3"):
        options = KEYS
    elif url.startswith(("hdfs", "viewfs")):
        options = {"config": PAIR, "kerberos_principal": "me", "replication": 2}
    elif url.startswith("ftp"):
        options = {"allow_unsafe_commit": True, "storage_options": {"timeout": 7}}
    return load_storage(url, inline_limit_bytes=77, **options)


SAME = [
    ("s3://bucket/cp", "s3a://bucket/cp/"),
    ("s3://bucket", "s3a://bucket/"),
    ("hdfs://nn/cp", "hdfs://nn:8020/cp"),
    ("hdfs://nn/cp", "hdfs://NN/cp//"),
    ("hdfs://pair/cp", "hdfs:///cp"),
    ("hdfs://pair/cp", "hdfs://one/cp"),
    ("hdfs://pair/cp", "hdfs://two:9000/cp"),
    ("hdfs://pair/cp/x", "viewfs://all/jobs/x"),
    ("ftp://u:p@host/cp", "ftp://u@HOST/cp/"),
    ("{tmp}/real", "{tmp}/link"),
    ("{tmp}/real", "file://{tmp}/link/../link/"),
]
OTHER = [
    ("s3://bucket/cp", "s3://bucket/cp2"),
    ("hdfs://pair/cp", "hdfs://pair/cp2"),
    ("hdfs://nn/cp", "hdfs://nn/cp2"),
    ("ftp://u:p@host/cp", "ftp://u@host/cp2"),
    ("{tmp}/real", "{tmp}/other"),
]
ELSEWHERE = [
    ("s3://bucket/cp", "s3://other/cp"),
    ("s3://bucket/cp", "hdfs://bucket/cp"),
    ("s3://bucket/cp", "/cp"),
    ("hdfs://pair/cp", "hdfs://nn/cp"),
    ("hdfs://nn/cp", "hdfs://nn:9000/cp"),
    ("hdfs://pair/cp", "viewfs://unknown/cp"),
    ("hdfs://pair/cp", "s3://pair/cp"),
    ("ftp://u:p@host/cp", "ftp://u@host:2121/cp"),
    ("ftp://u:p@host/cp", "ftp://v@host/cp"),
    ("ftp://u:p@host/cp", "ftp://host2/cp"),
    ("ftp://u:p@host/cp", "ftp://host:port/cp"),
    ("ftp://u:p@host/cp", "{tmp}/real"),
    ("{tmp}/real", "file://host/x"),
    ("{tmp}/real", "s3://bucket/cp"),
    ("memory://a", "memory://b"),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    return tmp_path


@pytest.mark.parametrize(("one", "two"), SAME)
def test_a_place_is_one_however_it_is_spelled(one: str, two: str, place: Path) -> None:
    first, second = opened(one.format(tmp=place)), opened(two.format(tmp=place))
    assert first.identity == second.identity
    assert pickle.loads(pickle.dumps(second)).identity == first.identity
    assert WatchedStorage(first).identity == first.identity
    led = first.at(two.format(tmp=place))
    assert led is not None
    assert led.identity == first.identity


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_the_settings_of_a_storage_lead_to_another_root(one: str, two: str, place: Path) -> None:
    first, second = opened(one.format(tmp=place)), opened(two.format(tmp=place))
    assert first.identity != second.identity
    led = first.at(two.format(tmp=place))
    assert led is not None
    assert led.identity == second.identity
    assert led.url == second.url
    assert led.inline_limit_bytes == 77
    assert first.identity == opened(one.format(tmp=place)).identity, "it stays where it is"
    assert pickle.loads(pickle.dumps(led)).identity == led.identity


@pytest.mark.parametrize(("one", "two"), ELSEWHERE)
def test_settings_are_not_passed_to_another_place(one: str, two: str, place: Path) -> None:
    storage: CheckpointStorage
    is_memory = one.startswith("memory")
    storage = JobManagerCheckpointStorage(one) if is_memory else opened(one.format(tmp=place))
    assert storage.at(two.format(tmp=place)) is None


def test_an_s3_at_another_endpoint_is_another_place() -> None:
    mine = load_storage("s3://bucket/cp", **KEYS)
    assert mine.identity != load_storage("s3://bucket/cp", anon=True).identity
    spelled = {**KEYS, "endpoint": "http://MINIO:9000/"}
    assert mine.identity == load_storage("s3://bucket/cp", **spelled).identity


def test_the_options_go_along() -> None:
    s3: Any = opened("s3://bucket/v2").at("s3a://bucket/v1")
    assert s3._options == opened("s3://bucket/v2")._options  # type: ignore[attr-defined]
    assert s3._verbs._place.prefix == "v1/"
    hdfs: Any = opened("hdfs://pair/v2").at("hdfs://one:8020/v1")
    assert hdfs._objects._settings.kerberos_principal == "me"
    assert hdfs._objects._settings.name_node == "hdfs://pair"
    assert hdfs._objects._root == "/v1"
    ftp: Any = opened("ftp://u:p@host/v2").at("ftp://host/v1")
    assert ftp._objects._address.settings == {
        "host": "host",
        "username": "u",
        "password": "p",
        "timeout": 7,
    }


def test_identity_holds_no_secret() -> None:
    for url in ("s3://bucket/cp", "ftp://u:secretive@host/cp", "http://u:secretive@host/cp"):
        options: Any = KEYS if url.startswith("s3") else {"allow_unsafe_commit": True}
        identity = load_storage(url, **options).identity
        assert "secretive" not in identity
        assert "of-the-store" not in identity
