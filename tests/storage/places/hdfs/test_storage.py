"""Checkpoints in a real HDFS: the suite, and what only an HDFS has."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import hdfs_native
import pytest

from holdfast.storage import Invalid, NotFound, SystemClock, Unavailable, load_storage
from holdfast.storage.places.hdfs.client import HdfsClient
from holdfast.storage.places.hdfs.hadoop_config import HdfsSettings
from holdfast.storage.places.hdfs.storage import HdfsCheckpointStorage
from holdfast.storage.testing import Place
from holdfast.storage.testing.conformance import ObjectClauses
from support.servers.hdfs import HdfsServer
from support.storages.server_places import (
    hdfs_client,
    hdfs_files_below,
    hdfs_path,
    hdfs_place,
)

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


class TestHdfs(ObjectClauses):
    """Clauses about jobs: `tests/storage/places/test_jobs_on_servers.py`."""

    @pytest.fixture
    def place(self, hdfs_server: HdfsServer, hdfs_url: str) -> Place:
        return hdfs_place(hdfs_server, hdfs_url)


@pytest.fixture
def storage(hdfs_url: str) -> HdfsCheckpointStorage:
    return HdfsCheckpointStorage(hdfs_url)


def test_confirmed_writes_are_synced_to_a_disk(
    storage: HdfsCheckpointStorage, hdfs_server: HdfsServer
) -> None:
    """The data node counts how often it had the system bring a file to its disk."""

    def synced() -> int:
        bean = "jmx?qry=Hadoop:service=DataNode,name=DataNodeActivity*"
        page = f"http://127.0.0.1:{hdfs_server._ports['data-web']}/{bean}"
        with urllib.request.urlopen(page, timeout=30) as answer:
            (activity,) = json.load(answer)["beans"]
        return int(activity["FsyncCount"])

    def comes_to(count: int) -> bool:
        """Within the time for which the data node tells what it counted before."""
        for _ in range(100):
            if synced() >= count:
                return True
            clock.sleep_s(0.2)
        return False

    clock = SystemClock()
    synced()
    clock.sleep_s(1.2)  # until all that came before is counted
    before = synced()
    storage.create("created", b"x")
    assert comes_to(before + 1)
    storage.write("written", b"x" * (9 * MIB))
    assert comes_to(before + 2)


class Cutting:
    """The library's client, whose answers get lost: calls take effect, and fail."""

    def __init__(self, client: Any, lost: list[str]) -> None:
        self._client = client
        self._lost = lost
        self.calls: list[str] = []

    @property
    def inner(self) -> Cutting:
        return Cutting(self._client.inner, self._lost)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*arguments: Any) -> Any:
            answer = method(*arguments)
            self.calls.append(name)
            if name in self._lost:
                self._lost.remove(name)
                raise OSError("Connection reset by peer (os error 104)")
            return Cutting(answer, self._lost) if name == "create" else answer

        return call


def cut(storage: HdfsCheckpointStorage, *lost: str) -> Cutting:
    """Have the next answers to these methods of the library lost, one each."""
    storage._objects._settings = HdfsSettings(  # a client of its own
        **{
            name: getattr(storage._objects._settings, name)
            for name in HdfsSettings.__dataclass_fields__
        }
        | {"kerberos_principal": storage.entropy.token()}
    )
    client = storage._objects.client
    made = Cutting(client._connected(), list(lost))
    client._client = made  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("lost", ["create", "close", "rename", "read", "write", "delete"])
def test_a_lost_answer_does_not_lose_a_create(
    storage: HdfsCheckpointStorage, hdfs_server: HdfsServer, lost: str
) -> None:
    cut(storage, lost)
    assert storage.create("job/object", b"mine") is None
    assert storage.create("job/object", b"other") == b"mine"
    assert hdfs_files_below(hdfs_client(hdfs_server), storage.url) == ["job/object"]


@pytest.mark.parametrize("lost", ["create", "close", "get_file_info", "rename"])
def test_a_lost_answer_does_not_lose_a_write(
    storage: HdfsCheckpointStorage, hdfs_server: HdfsServer, lost: str
) -> None:
    storage.write("job/object", b"x" * 5000)
    cut(storage, lost)
    storage.write("job/object", b"y" * 5000)
    assert storage.read("job/object") == b"y" * 5000
    assert hdfs_files_below(hdfs_client(hdfs_server), storage.url) == ["job/object"]


def test_a_lost_answer_does_not_hide_what_others_have_done(
    storage: HdfsCheckpointStorage, hdfs_server: HdfsServer
) -> None:
    """A hidden file that another client deleted is not taken for one that was moved."""
    storage.write("object", b"old")
    client = hdfs_client(hdfs_server)

    class Deleting(Cutting):
        def rename(self, source: str, target: str, overwrite: bool) -> None:  # noqa: FBT001
            if client.delete(source):
                raise OSError("Connection reset by peer (os error 104)")
            self._client.rename(source, target, overwrite)

    made = cut(storage)
    writer = storage.writer("object")
    writer.write(b"new")
    storage._objects.client._client = Deleting(made._client, [])  # type: ignore[assignment]
    with pytest.raises(Unavailable, match="deleted the file under its hidden name"):
        writer.commit()
    assert storage.read("object") == b"old"
    with pytest.raises(Unavailable, match="other clients delete it at this moment"):
        storage.create("new", b"new")
    assert storage.create("object", b"new") == b"old"
    assert hdfs_files_below(client, storage.url) == ["object"]


def test_lost_answers_do_not_keep_from_looking_and_deleting(
    storage: HdfsCheckpointStorage,
) -> None:
    names = [f"job/{number}" for number in range(5)]
    for name in names:
        storage.write(name, b"x")
    cut(storage, "list_status", "delete", "read")
    assert [info.name for info in storage.list("")] == names
    assert storage.read("job/1") == b"x"
    storage.delete(names)
    assert list(storage.list("")) == []


def test_a_half_written_file_can_be_seen_and_deleted_by_others(
    storage: HdfsCheckpointStorage, hdfs_url: str, hdfs_server: HdfsServer
) -> None:
    """With all that a killed writer leaves: data on the way, and the right to go on writing."""
    writer = storage.writer("job/object")
    writer.write(b"x" * (9 * MIB))
    other = load_storage(hdfs_url)
    (left,) = other.unfinished("job/")
    assert left.target == "job/object"
    with pytest.raises(NotFound):
        other.read("job/object")
    other.delete([left.name])
    assert list(other.unfinished("")) == []
    with pytest.raises(Unavailable, match=r"cannot .*writ.* \[hdfs://.*/job/object\]"):
        writer.commit()
    writer.abort()
    with pytest.raises(Invalid, match="committed or aborted before"):
        writer.write(b"x")
    assert hdfs_files_below(hdfs_client(hdfs_server), hdfs_url) == []


def test_an_abort_finishes_nothing(storage: HdfsCheckpointStorage, hdfs_server: HdfsServer) -> None:
    writer = storage.writer("object")
    writer.write(b"x" * (5 * MIB))
    writer.abort()
    writer.abort()
    assert hdfs_files_below(hdfs_client(hdfs_server), storage.url) == []


def test_giving_up_does_not_wait_for_an_hdfs_that_fails(storage: HdfsCheckpointStorage) -> None:
    writer = storage.writer("object")
    client = cut(storage, *["delete"] * 9)
    writer.abort()
    assert client.calls == ["delete"]
    writer = storage.writer("object")
    writer.commit()
    client.calls.clear()
    writer.abort()
    assert client.calls == []


def test_old_probes_are_cleared_away(
    storage: HdfsCheckpointStorage, hdfs_server: HdfsServer
) -> None:
    client = hdfs_client(hdfs_server)
    for name in (".probe.old", ".probe.old.unfinished", ".probe.new.unfinished", ".probes"):
        path = f"{hdfs_path(storage.url)}/{name}"
        client.inner.create(path, hdfs_native.WriteOptions()).close()
        if ".old" in name:
            client.set_times(path, 1000, 1000)
    storage.prepare()
    assert hdfs_files_below(client, storage.url) == [".probe.new.unfinished", ".probes"]


def test_a_place_is_proven_once_for_a_process(storage: HdfsCheckpointStorage) -> None:
    client = cut(storage)
    storage.prepare()
    assert client.calls.count("rename") == 1  # the other was refused
    client.calls.clear()
    storage.prepare()
    load_storage(storage.url).prepare()  # by another client
    assert client.calls == ["mkdirs"]


def test_an_hdfs_that_moves_onto_what_is_there_is_refused(
    storage: HdfsCheckpointStorage, hdfs_server: HdfsServer
) -> None:
    """As a server would that was changed to do so: two drivers could both commit."""

    class Careless(Cutting):
        def rename(self, source: str, target: str, _: bool) -> None:  # noqa: FBT001
            self._client.rename(source, target, True)

    client = cut(storage)
    storage._objects.client._client = Careless(client._client, [])  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(Invalid, match=r"prepare .* found it succeeded"):
            storage.prepare()
    assert hdfs_files_below(hdfs_client(hdfs_server), storage.url) == []


def test_folders_are_created_and_removed_beside_concurrent_writers(
    storage: HdfsCheckpointStorage,
) -> None:
    """The folder goes with its last object; a writer in it at that moment does not fail."""
    failures: list[BaseException] = []

    def use(number: int) -> None:
        try:
            for turn in range(15):
                name = f"job/folder/{number}-{turn}"
                assert storage.create(name, b"x") is None
                storage.delete([name])
        except BaseException as error:  # noqa: BLE001 (it is raised below)
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(storage.list("")) == []
    assert list(storage.unfinished("")) == []


def test_replication_and_block_size_count(hdfs_url: str, hdfs_server: HdfsServer) -> None:
    storage = load_storage(hdfs_url, config={"dfs.blocksize": "1m"}, replication=2)
    storage.write("object", b"x" * (5 * MIB // 2))
    assert storage.read_range("object", MIB - 5, 10) == b"x" * 10
    status = hdfs_client(hdfs_server).get_file_info(f"{hdfs_path(hdfs_url)}/object")
    assert (status.replication, status.blocksize) == (2, MIB)
    storage = load_storage(hdfs_url, block_size_bytes=1)
    with pytest.raises(Invalid, match="Specified block size 1 is less than"):
        storage.write("object", b"x")


def test_a_mount_is_the_place_that_it_leads_to(hdfs_url: str) -> None:
    mount = {"fs.viewfs.mounttable.cluster.link./checkpoints": hdfs_url}
    storage = load_storage("viewfs://cluster/checkpoints/jobs", config=mount)
    storage.prepare()
    assert storage.create("job/object", b"x") is None
    assert load_storage(f"{hdfs_url}/jobs").read("job/object") == b"x"
    with pytest.raises(NotFound, match=r"\[viewfs://cluster/checkpoints/jobs/job/none\]"):
        storage.read("job/none")


def test_a_forked_process_has_a_client_of_its_own(hdfs_url: str) -> None:
    """In a process that has the library's threads only: those of a test run may hold locks."""
    program = """
        import os, sys
        from holdfast.storage import load_storage
        storage = load_storage(sys.argv[1])
        storage.write("parent", b"x")
        storage.read("parent")  # of which the library keeps a connection for a while
        child = os.fork()
        if not child:
            ok = False
            try:
                ok = storage.create("child", b"y") is None and storage.read("parent") == b"x"
            finally:
                os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert storage.read("child") == b"y"
    """
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", dedent(program), hdfs_url],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_process_can_end_as_soon_as_it_has_written(hdfs_url: str) -> None:
    """The library's threads are still at work then."""
    program = """
        import sys
        from holdfast.storage import load_storage
        storage = load_storage(sys.argv[1])
        for number in range(5):
            storage.create(f"object-{number}", b"x" * 1000)
        half = storage.writer("half")
        half.write(b"x" * 5_000_000)
    """
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program), hdfs_url],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    left = load_storage(hdfs_url)
    assert len(list(left.list(""))) == 5
    found = list(left.unfinished(""))
    assert [write.target for write in found] == ["half"], found


def test_kerberos_reaches_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    class Client:
        inner = None

        def __init__(self, url: str, **options: Any) -> None:
            made.update(options, url=url)

    monkeypatch.setattr(hdfs_native, "Client", Client)
    storage = load_storage(
        "hdfs://host:1/a",
        kerberos_principal="me@REALM",
        kerberos_keytab="/etc/me.keytab",
        kerberos_cache="FILE:/tmp/me",
        config={"hadoop.security.authentication": "kerberos"},
    )
    assert isinstance(storage, HdfsCheckpointStorage)
    HdfsClient(storage._objects._settings)._connected()
    assert made["url"] == "hdfs://host:1"
    assert made["kerberos_principal"] == "me@REALM"
    assert made["kerberos_keytab"] == "/etc/me.keytab"
    assert made["kerberos_cache"] == "FILE:/tmp/me"
    assert made["config"]["hadoop.security.authentication"] == "kerberos"


def test_the_ranges_of_an_object_open_it_once(storage: HdfsCheckpointStorage) -> None:
    calls = cut(storage).calls
    storage.write("job/object", b"0123456789")
    calls.clear()
    ranges = [storage.read_range("job/object", offset, 2) for offset in range(0, 12, 2)]
    assert b"".join(ranges) == b"0123456789"
    assert calls == ["read"]


def test_a_kept_open_file_does_not_outlive_its_object(storage: HdfsCheckpointStorage) -> None:
    for content in (b"first", b"second"):
        storage.write("job/object", content)
        assert storage.read_range("job/object", 0, 100) == content
    storage.delete(["job/object"])
    with pytest.raises(NotFound, match="job/object"):
        storage.read_range("job/object", 0, 100)
