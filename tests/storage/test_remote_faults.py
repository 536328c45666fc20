"""What a network and a server can do to a storage on a real S3 server and a real HDFS.

Either it comes right by itself, or an error says where, what and what to do, in one line, without
a secret and without the stack of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from chaos_http import S3Proxy
from chaos_rpc import HdfsProxy
from chaos_rules import CutAnswer, CutRequest, Delay, Fault, Refuse, Rule
from fight_nursery import HurriedClock
from holdfast.storage import CheckpointStorage, NotFound, SystemClock, load_storage
from servers.hdfs import HdfsServer
from servers.s3 import S3Server

pytestmark = pytest.mark.slow

LATE_S = 0.3


@pytest.fixture
def s3_proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture
def s3(s3_server: S3Server, s3_proxy: S3Proxy, s3_bucket: str) -> CheckpointStorage:
    """A storage behind the proxy, which proved its place before any fault."""
    options = s3_server.options(endpoint=s3_proxy.endpoint)
    storage = load_storage(s3_server.url(s3_bucket, "a b/ü"), clock=HurriedClock(), **options)
    storage.prepare()
    return storage


@pytest.fixture
def hdfs_proxy(hdfs_server: HdfsServer) -> Iterator[HdfsProxy]:
    with HdfsProxy(hdfs_server.port, hdfs_server.data_port) as proxy:
        yield proxy


@pytest.fixture
def hdfs(hdfs_proxy: HdfsProxy, hdfs_url: str) -> CheckpointStorage:
    """A storage behind the proxy, which proved its place before any fault."""
    storage = load_storage(
        hdfs_proxy.url(hdfs_url.rpartition("/")[2]), clock=HurriedClock(), call_timeout_s=10
    )
    storage.prepare()
    return storage


def test_a_late_try_to_begin_a_file_does_not_empty_it(
    hdfs: CheckpointStorage, hdfs_proxy: HdfsProxy
) -> None:
    hdfs_proxy.follow(
        Rule(fault=CutRequest(0), method="create", path="commit"),
        Rule(fault=Refuse(passes="later", later_s=LATE_S), method="create", path="commit", first=2),
        Rule(fault=Delay(2 * LATE_S), method="rename2", path="commit"),
    )
    assert hdfs.create("a/commit", b"what counts") is None
    assert len([request for request, _ in hdfs_proxy.seen if request.method == "create"]) == 3
    assert hdfs.read("a/commit") == b"what counts"


@pytest.mark.parametrize("fault", [CutAnswer(0), Refuse(passes="later", later_s=LATE_S)])
@pytest.mark.parametrize(
    "method", ["create", "addBlock", "complete", "rename2", "getFileInfo", "delete", "mkdirs"]
)
def test_a_call_whose_answer_is_lost_comes_right(
    hdfs: CheckpointStorage, hdfs_proxy: HdfsProxy, method: str, fault: Fault
) -> None:
    hdfs_proxy.follow(Rule(fault=fault, method=method))
    assert hdfs.create("a/commit", b"what counts") is None
    assert hdfs.create("a/commit", b"another") == b"what counts"
    hdfs.write("a/file", b"data")
    assert hdfs.read("a/file") == b"data"
    hdfs.delete(["a/file"])
    SystemClock().sleep_s(LATE_S)
    assert [info.name for info in hdfs.list("")] == ["a/commit"]
    left = [*hdfs.unfinished("")]
    assert len(left) <= (method == "create")  # one that comes late is left, for whoever cleans
    hdfs.delete([write.name for write in left])
    assert [*hdfs.unfinished("")] == []


def test_an_answer_of_s3_that_ends_anywhere_is_asked_for_again(
    s3: CheckpointStorage, s3_proxy: S3Proxy
) -> None:
    s3.write("a/file", b"d" * 300)
    calls: list[Callable[[], bool]] = [
        lambda: s3.read("a/file") == b"d" * 300,
        lambda: [info.name for info in s3.list("a/")] == ["a/file"],
        lambda: s3.create("a/file", b"another") == b"d" * 300,
        lambda: _is_missing(s3, "a/nothing"),
    ]
    for after_bytes in range(0, 900, 23):  # the head has some 400, which may end too early as well
        for call in calls:
            s3_proxy.follow(Rule(fault=CutAnswer(after_bytes)))
            assert call(), after_bytes


def _is_missing(storage: CheckpointStorage, name: str) -> bool:
    try:
        storage.read(name)
    except NotFound:
        return True
    return False
