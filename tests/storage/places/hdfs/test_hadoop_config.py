"""Where an HDFS is, by URL and Hadoop configuration; and what cannot be honoured is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage import Invalid, load_storage
from holdfast.storage.places.hdfs import storage as hdfs_module
from holdfast.storage.places.hdfs.hadoop_config import (
    HdfsPlace,
    check_config,
    hadoop_options,
    place_of,
    read_hadoop_config,
)
from holdfast.storage.places.hdfs.storage import HdfsCheckpointStorage
from support.servers.hadoop import write_settings

PAIR = {
    "dfs.ha.namenodes.pair": "a,b",
    "dfs.namenode.rpc-address.pair.a": "one:8020",
    "dfs.namenode.rpc-address.pair.b": "two:8020",
}
MOUNTS = {
    "fs.viewfs.mounttable.view.link./data": "hdfs://pair/warehouse/data/",
    "fs.viewfs.mounttable.view.link./data/hot": "hdfs://fast:9000",
    "fs.viewfs.mounttable.view.link./files": "s3a://bucket/files",
    "fs.viewfs.mounttable.all.linkFallback": "hdfs://one:8020/rest",
}


@pytest.fixture(autouse=True)
def no_hadoop_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)


@pytest.mark.parametrize(
    ("url", "name_node", "root"),
    [
        ("hdfs://host:9000/a/b", "hdfs://host:9000", "/a/b"),
        ("hdfs://host:9000", "hdfs://host:9000", ""),
        ("hdfs://host:9000//a//b/", "hdfs://host:9000", "/a/b"),
        ("hdfs://host:9000/with space/100%25#?", "hdfs://host:9000", "/with space/100%25#?"),
        ("hdfs://host/a", "hdfs://host:8020", "/a"),
        ("hdfs://pair/a", "hdfs://pair", "/a"),
        ("hdfs:///a", "hdfs://pair", "/a"),
        ("viewfs://view/data/checkpoints", "hdfs://pair", "/warehouse/data/checkpoints"),
        ("viewfs://view/data/hot/x", "hdfs://fast:9000", "/x"),
        ("viewfs://view/data/hotter", "hdfs://pair", "/warehouse/data/hotter"),
        ("viewfs://all/any/where", "hdfs://one:8020", "/rest/any/where"),
    ],
)
def test_a_url_leads_to_a_directory_of_one_hdfs(url: str, name_node: str, root: str) -> None:
    config = {"fs.defaultFS": "hdfs://pair/", **PAIR, **MOUNTS}
    assert place_of(url, config) == HdfsPlace(name_node, root)


def test_a_viewfs_url_without_cluster_takes_the_default_one() -> None:
    config = {"fs.defaultFS": "viewfs://all", **MOUNTS}
    assert place_of("viewfs:///x", config) == HdfsPlace("hdfs://one:8020", "/rest/x")


@pytest.mark.parametrize(
    ("url", "config", "says"),
    [
        ("hdfs:///a", {}, "expected a host in the URL, or fs.defaultFS with hdfs://"),
        ("hdfs:///a", {"fs.defaultFS": "file:///"}, "found fs.defaultFS 'file:///'"),
        ("hdfs://me:secret@host/a", {}, "names no user .hdfs://host/a."),
        ("hdfs://host/a/../b", {}, "HDFS has no such path .*found '..'"),
        ("hdfs://host/a:b", {}, "HDFS has no such path .*found 'a:b'"),
        ("hdfs:/a", {}, "not the URL of an HDFS"),
        (
            "hdfs://pair/a",
            {"dfs.ha.namenodes.pair": "a,b", "dfs.namenode.rpc-address.pair.a": "one:8020"},
            "expected a Hadoop setting dfs.namenode.rpc-address.pair.b",
        ),
        ("viewfs://view/none", MOUNTS, "has nothing mounted there .*found links /data, "),
        ("viewfs://none/a", MOUNTS, "fs.viewfs.mounttable.none.link./a .*found no links"),
        ("viewfs://view/files/x", MOUNTS, "is not an HDFS .*found s3a://bucket/files"),
        ("viewfs://view/data", MOUNTS, "over several mounts .*found a mount at /data/hot"),
    ],
)
def test_a_url_without_a_reachable_name_node_is_refused(
    url: str, config: dict[str, str], says: str
) -> None:
    with pytest.raises(Invalid, match=says) as caught:
        place_of(url, config)
    assert "secret" not in str(caught.value)


def test_the_configuration_is_read_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = {"fs.defaultFS": "hdfs://${dfs.nameservices}", "io.file.buffer.size": "4096"}
    observer = "org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider"
    proxy = {"dfs.client.failover.proxy.provider.pair": observer}
    site = {"dfs.nameservices": "pair", "dfs.blocksize": "${env.HOLDFAST_TEST_SIZE}", **proxy}
    write_settings(tmp_path / "conf", core, site)
    write_settings(tmp_path / "home" / "etc" / "hadoop", {"fs.defaultFS": "hdfs://home"}, {})
    monkeypatch.setenv("HOLDFAST_TEST_SIZE", "64m")
    expected = {
        "fs.defaultFS": "hdfs://pair",
        "dfs.nameservices": "pair",
        "dfs.blocksize": "64m",
    }
    assert read_hadoop_config(str(tmp_path / "conf")) == expected
    assert read_hadoop_config(None) == {}
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path / "home"))
    assert read_hadoop_config(None) == {"fs.defaultFS": "hdfs://home"}
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "conf"))
    assert read_hadoop_config(None) == expected


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"config_dir names no Hadoop configuration.*no such folder"):
        read_hadoop_config(str(tmp_path / "none"))
    with pytest.raises(Invalid, match=r"a folder with core-site.xml or .*found none of them"):
        read_hadoop_config(str(tmp_path))
    (tmp_path / "core-site.xml").write_text("<configuration><property>")
    with pytest.raises(Invalid, match=rf"cannot be read \[{tmp_path}/core-site.xml\]"):
        read_hadoop_config(str(tmp_path))


def test_settings_in_code_are_stronger_than_files(tmp_path: Path) -> None:
    write_settings(tmp_path, PAIR, {"dfs.replication": "2", "dfs.blocksize": "1k"})
    storage = HdfsCheckpointStorage(
        "hdfs://pair/a",
        config_dir=str(tmp_path),
        config={"dfs.replication": "5", "dfs.client.socket-timeout": "1000"},
        block_size_bytes=4096,
    )
    settings = storage._objects._settings
    assert (settings.replication, settings.block_size_bytes) == (5, 4096)
    assert dict(settings.config)["dfs.client.socket-timeout"] == "1000"
    assert dict(settings.config)["dfs.namenode.rpc-address.pair.a"] == "one:8020"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"replicas": 3}, "option 'replicas' is not known .*expected one of block_size_bytes, "),
        ({"replication": 0}, "replication is out of range: .*found 0"),
        ({"replication": True}, "replication is out of range: .*found True"),
        ({"block_size_bytes": "64m"}, "block_size_bytes is out of range: .*found '64m'"),
        ({"call_timeout_s": 0}, "call_timeout_s is out of range"),
        ({"max_attempts": 0}, "max_attempts is out of range"),
        ({"retry_timeout_s": -1}, "retry_timeout_s is out of range"),
        ({"inline_limit_bytes": -1}, "inline_limit_bytes is out of range"),
        ({"config_dir": 7}, "config_dir is not usable"),
        ({"kerberos_principal": ""}, "kerberos_principal is not usable"),
        ({"kerberos_keytab": "/k"}, "kerberos_keytab has no effect without a principal"),
        ({"kerberos_cache": "/c"}, "kerberos_cache has no effect without a principal"),
        ({"config": ["dfs.replication"]}, "config is not a mapping"),
        ({"config": {"dfs.replication": 3}}, "'dfs.replication' is not written as text"),
        ({"config": {"dfs.replication": "many"}}, "dfs.replication is out of range.*'many'"),
        ({"config": {"dfs.blocksize": "0"}}, "dfs.blocksize is out of range.*'0'"),
        ({"config": {"dfs.client.read.shortcircuit": "true"}}, "would be ignored"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=says):
        load_storage("hdfs://host:1/a", **options)


def test_observers_are_refused() -> None:
    key = "dfs.client.failover.proxy.provider.pair"
    with pytest.raises(Invalid, match="observers, which may lag behind"):
        check_config({key: "org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider"})


def test_spark_s_settings_become_options() -> None:
    conf = {
        "spark.app.name": "x",
        "spark.hadoop.dfs.replication": "2",
        "dfs.replication": "1",
        "spark.hadoop.dfs.ha.namenodes.pair": "a,b",
        "fs.defaultFS": "hdfs://pair",
        "spark.hadoop.fs.s3a.secret.key": "secret",
        "spark.hadoop.io.file.buffer.size": "1",
    }
    assert hadoop_options(conf) == {
        "config": {
            "dfs.replication": "2",
            "dfs.ha.namenodes.pair": "a,b",
            "fs.defaultFS": "hdfs://pair",
        }
    }
    assert hadoop_options({"spark.app.name": "x"}) == {}


def test_both_schemes_are_registered_and_only_settings_travel() -> None:
    kerberos = {"kerberos_principal": "me@REALM", "kerberos_keytab": "/etc/me.keytab"}
    for url in ("hdfs://host:1/a b/ü", "viewfs://all/any"):
        storage = load_storage(url, config=MOUNTS, **kerberos)
        assert isinstance(storage, HdfsCheckpointStorage)
        assert storage.url == url
        copy = pickle.loads(pickle.dumps(storage))
        assert copy._objects._settings == storage._objects._settings
        assert copy.url_of("x") == f"{url}/x"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_module, "find_spec", lambda _: None)
    with pytest.raises(Invalid, match=r'pip install "holdfast-spark\[hdfs\]"'):
        HdfsCheckpointStorage("hdfs://host:1/a")
