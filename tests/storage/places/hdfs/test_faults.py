"""A real HDFS that cannot do what is asked of it: a clear error in bounded time, and it goes on."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from holdfast.storage import Invalid, ManualClock, NotFound, SystemClock, Unavailable, load_storage
from holdfast.storage.checkpoint_storage import CheckpointStorage
from support.servers.hdfs import HdfsServer
from support.servers.hdfs_ha import HdfsPair
from support.servers.ports import LOOPBACK, Ports

pytestmark = pytest.mark.slow

JAVA = ("\n", "\\n", "\tat ", "java.", "org.apache.hadoop.hdfs.server", "RPCError")


def quick(url: str, **options: object) -> CheckpointStorage:
    """A storage that gives up soon."""
    return load_storage(url, **{"max_attempts": 2, **options})


def told(kind: type[Exception], call: Callable[[], object]) -> str:
    """What a user is told; nothing of it is Java's."""
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert not [part for part in JAVA if part in text], text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return text


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(50)
        yield f"hdfs://{LOOPBACK}:{listener.getsockname()[1]}/a"


def test_a_wrong_port_is_told() -> None:
    ports = Ports()
    try:
        storage = quick(f"hdfs://{LOOPBACK}:{ports.take()}/a")
        for call in (
            storage.prepare,
            partial(storage.create, "x", b"x"),
            partial(storage.read, "x"),
        ):
            text = told(Unavailable, call)
            assert "Connection refused" in text
            assert "(tried 2 times in " in text
            assert "Check host and port" in text
        told(Unavailable, lambda: list(storage.list("")))
        told(Unavailable, lambda: storage.delete(["x"]))
    finally:
        ports.close()


def test_a_wrong_host_is_told() -> None:
    text = told(Unavailable, quick("hdfs://no-such-host.invalid:8020/a").prepare)
    assert "no-such-host.invalid" in text
    assert "Check host and port" in text


def test_silence_ends(silent: str) -> None:
    clock = SystemClock()
    storage = quick(silent, call_timeout_s=0.3)
    for call in (storage.prepare, partial(storage.create, "x", b"x"), partial(storage.read, "x")):
        begun_s = clock.monotonic_s()
        assert "no answer in 0.3 s (tried 2 times" in told(Unavailable, call)
        assert clock.monotonic_s() - begun_s < 10


def test_a_name_node_that_is_silent_is_passed_over(
    silent: str, hdfs_server: HdfsServer, hdfs_url: str
) -> None:
    """As one is whose machine has lost its power: connections are neither made nor refused."""
    config = {
        "dfs.ha.namenodes.pair": "dead, alive",
        "dfs.namenode.rpc-address.pair.dead": silent.split("/")[2],
        "dfs.namenode.rpc-address.pair.alive": f"{LOOPBACK}:{hdfs_server.port}",
    }
    url = hdfs_url.replace(f"{LOOPBACK}:{hdfs_server.port}", "pair")
    storage = load_storage(url, config=config, call_timeout_s=1)
    storage.prepare()
    assert storage.create("job/object", b"x") is None
    assert load_storage(hdfs_url).read("job/object") == b"x"


def test_pauses_are_taken_on_the_clock_of_the_storage() -> None:
    clock = ManualClock()
    ports = Ports()
    try:
        storage = load_storage(f"hdfs://{LOOPBACK}:{ports.take()}/a", clock=clock, max_attempts=9)
        told(Unavailable, storage.prepare)
    finally:
        ports.close()
    assert 0 < clock.now_ms() < 60_000


def test_safe_mode_is_told(hdfs_server: HdfsServer, hdfs_url: str) -> None:
    storage = quick(hdfs_url)
    storage.write("job/object", b"x")
    hdfs_server.set_safe_mode(on=True)
    calls = (
        storage.prepare,
        partial(storage.create, "job/new", b"x"),
        partial(storage.write, "job/object", b"y"),
        partial(storage.delete, ["job/object"]),
    )
    for call in calls:
        text = told(Unavailable, call)
        assert "Name node is in safe mode" in text
        assert "hdfs dfsadmin -safemode get" in text
    assert storage.read("job/object") == b"x"
    hdfs_server.set_safe_mode(on=False)
    storage.prepare()
    assert storage.create("job/new", b"x") is None
    assert [info.name for info in storage.list("")] == ["job/new", "job/object"]
    assert list(storage.unfinished("")) == []


def test_a_data_node_that_is_down_is_told(hdfs_server: HdfsServer, hdfs_url: str) -> None:
    storage = quick(hdfs_url)
    storage.write("job/object", b"x" * 1000)
    begun = storage.writer("job/begun")
    begun.write(b"x" * 9_000_000)
    hdfs_server.kill_data_node()
    for call in (
        storage.prepare,
        partial(storage.create, "job/new", b"x"),
        partial(storage.write, "job/new", b"x"),
        begun.commit,
        partial(storage.read, "job/object"),
    ):
        assert "hdfs dfsadmin -report" in told(Unavailable, call)
    begun.abort()
    assert [info.name for info in storage.list("")] == ["job/object"]
    hdfs_server.start()
    storage.prepare()
    assert storage.create("job/new", b"x") is None
    assert storage.read("job/object") == b"x" * 1000
    assert list(storage.unfinished("")) == []


def test_no_permission_is_told(
    hdfs_server: HdfsServer, hdfs_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = load_storage(hdfs_url)
    mine.prepare()
    mine.write("job/object", b"x")
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    theirs = load_storage(hdfs_url)
    assert theirs.read("job/object") == b"x"
    for call in (
        theirs.prepare,
        partial(theirs.create, "job/object", b"y"),
        partial(theirs.write, "job/object", b"y"),
        partial(theirs.delete, ["job/object"]),
        load_storage(hdfs_server.url("of-alice")).prepare,
    ):
        text = told(Invalid, call)
        assert "Permission denied: user=alice, access=WRITE" in text
        assert "expected permission" in text
    monkeypatch.undo()
    assert mine.read("job/object") == b"x"
    assert [info.name for info in mine.list("")] == ["job/object"]


def test_a_full_place_is_told(hdfs_server: HdfsServer, hdfs_url: str) -> None:
    storage = load_storage(hdfs_url, block_size_bytes=1 << 20)
    storage.prepare()
    path = "/" + hdfs_url.split("/", 3)[3]
    hdfs_server.admin("-setSpaceQuota", "1m", path)
    storage.write("small", b"x" * 1000)
    text = told(Unavailable, partial(storage.write, "large", b"x" * (3 << 20)))
    assert "quota" in text
    assert "Free space or raise the quota" in text
    assert [info.name for info in storage.list("")] == ["small"]
    assert list(storage.unfinished("")) == []


def test_confirmed_writes_survive_a_killed_name_node(
    hdfs_server: HdfsServer, hdfs_url: str
) -> None:
    storage = load_storage(hdfs_url)
    for number in range(5):
        assert storage.create(f"job/{number}", b"x" * number) is None
    storage.delete(["job/0"])
    hdfs_server.kill_name_node()
    told(Unavailable, partial(quick(hdfs_url).read, "job/1"))
    hdfs_server.start()
    assert [info.size_bytes for info in storage.list("")] == [1, 2, 3, 4]
    assert storage.create("job/5", b"x") is None
    with pytest.raises(NotFound):
        storage.read("job/0")


def test_another_name_node_takes_over() -> None:
    """The active one is killed, in the midst of a write too; the storage notices nothing."""
    with HdfsPair() as servers:
        text = told(Unavailable, _quick_pair(servers).prepare)
        assert "expected an active name node" in text
        servers.make_active("first")
        storage = load_storage(servers.url("a"), config_dir=str(servers.settings))
        storage.prepare()
        assert storage.create("job/one", b"1") is None
        writer = storage.writer("job/two")
        writer.write(b"2" * 9_000_000)
        servers.kill("first")
        assert "Check host and port" in told(Unavailable, partial(_quick_pair(servers).read, "x"))
        servers.make_active("second", alone=True)
        assert storage.create("job/one", b"other") == b"1"
        writer.commit()
        assert storage.create("job/three", b"3") is None
        names = [(info.name, info.size_bytes) for info in storage.list("")]
        assert names == [("job/one", 1), ("job/three", 1), ("job/two", 9_000_000)]


def _quick_pair(servers: HdfsPair) -> CheckpointStorage:
    return quick(servers.url("a"), config_dir=str(servers.settings))
