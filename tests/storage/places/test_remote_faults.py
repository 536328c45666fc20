"""What a network and a server can do to a storage on a real S3 server and a real HDFS.

Either it comes right by itself, or an error says where, what and what to do, in one line, without
a secret and without the stack of a server.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from holdfast.storage import (
    CheckpointStorage,
    Corrupt,
    HoldfastError,
    Invalid,
    NotFound,
    SystemClock,
    Unavailable,
    load_storage,
)
from support.kills.rival_drivers import HurriedClock
from support.servers.chaos_http import S3Proxy
from support.servers.chaos_rpc import HdfsProxy
from support.servers.chaos_rules import (
    CutAnswer,
    CutRequest,
    Delay,
    DropHeader,
    Fault,
    Refuse,
    Repeat,
    Rule,
    Shorten,
)
from support.servers.hdfs import HdfsServer
from support.servers.s3 import ADMIN, KEEPER, READER, STRANGER, S3Server

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
    assert len(left) <= 1  # a try that was given up, or comes late, is left to cleaning
    hdfs.delete([write.name for write in left])
    assert [*hdfs.unfinished("")] == []


@pytest.fixture
def place(s3_server: S3Server, s3_bucket: str) -> Callable[..., CheckpointStorage]:
    """Makes a storage in the bucket of this test, with other options than those that are right."""

    def made(bucket: str = s3_bucket, **options: Any) -> CheckpointStorage:
        given = {**s3_server.options(), "max_attempts": 3, **options}
        return load_storage(s3_server.url(bucket, "place"), clock=HurriedClock(), **given)

    return made


Place: TypeAlias = Callable[..., CheckpointStorage]


def told(call: Callable[[], object], kind: type[HoldfastError]) -> str:
    """What the error of a call says, which is one line and tells no secret."""
    with pytest.raises(kind) as caught:
        call()
    said = str(caught.value)
    assert "\n" not in said
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(each.secret in shown + repr(caught.value) for each in (ADMIN, READER, KEEPER))
    return said


def test_wrong_credentials_are_told(place: Place) -> None:
    unknown = place(key=STRANGER.key, secret=STRANGER.secret)
    assert "credentials that are valid here" in told(unknown.prepare, Invalid)
    wrong = place(secret="not the secret")
    said = told(wrong.prepare, Invalid)
    assert "SignatureDoesNotMatch" in said
    assert ADMIN.key not in said
    assert "not the secret" not in said


def test_a_missing_bucket_is_told(place: Place) -> None:
    said = told(place("no-such-bucket").prepare, Invalid)
    assert "NoSuchBucket" in said
    assert "Create bucket no-such-bucket" in said


def test_a_missing_permission_to_write_is_reported(place: Place, s3_bucket: str) -> None:
    reader = place(key=READER.key, secret=READER.secret)
    said = told(reader.prepare, Invalid)
    assert "AccessDenied" in said
    assert f"Allow these credentials to read, write, list and delete in bucket {s3_bucket}" in said
    place().write("a/file", b"data")
    assert reader.read("a/file") == b"data"  # a restore needs no more


def test_a_missing_permission_to_delete_is_reported(place: Place, s3_bucket: str) -> None:
    keeper = place(key=KEEPER.key, secret=KEEPER.secret)
    assert "delete" in told(keeper.prepare, Invalid)
    place().write("a/file", b"data")
    said = told(lambda: keeper.delete(["a/file", "a/other"]), Invalid)
    assert "AccessDenied" in said
    assert f"bucket {s3_bucket}" in said
    assert place().read("a/file") == b"data"


def test_an_unreachable_endpoint_is_reported(place: Place, s3_server: S3Server) -> None:
    with S3Proxy(s3_server.port) as proxy:
        gone = proxy.endpoint
    said = told(place(endpoint=gone).prepare, Unavailable)
    assert gone in said
    assert "tried 3 times" in said


def test_a_store_that_ignores_conditions_is_refused(s3_server: S3Server, s3_proxy: S3Proxy) -> None:
    url = s3_server.url(s3_server.public_bucket(), "place")
    s3_proxy.follow(Rule(fault=DropHeader("If-None-Match"), times=None))

    def place(**options: bool) -> CheckpointStorage:
        return load_storage(url, endpoint=s3_proxy.endpoint, anon=True, **options)

    said = told(place().prepare, Invalid)
    assert "does not honour conditional requests" in said
    assert "allow_unsafe_commit" in said
    told(lambda: place().create("a/commit", b"first"), Invalid)
    unsafe = place(allow_unsafe_commit=True)
    unsafe.prepare()
    assert not unsafe.capabilities.atomic_create
    assert unsafe.create("a/commit", b"first") is None
    assert [info.name for info in unsafe.list("")] == ["a/commit"]


def test_a_versioned_bucket_serves(place: Place, s3_server: S3Server) -> None:
    bucket = s3_server.new_bucket(versioning=True)
    storage = place(bucket)
    storage.prepare()
    assert storage.create("a/commit", b"first") is None
    assert storage.create("a/commit", b"second") == b"first"
    storage.delete(["a/commit"])
    assert [*storage.list("")] == []
    told(lambda: storage.read("a/commit"), NotFound)
    assert storage.create("a/commit", b"third") is None
    assert storage.read("a/commit") == b"third"


@pytest.mark.parametrize("status", [(503, "SlowDown"), (500, "InternalError"), (502, "BadGateway")])
def test_trouble_that_ends_is_not_noticed(
    s3: CheckpointStorage, s3_proxy: S3Proxy, status: tuple[int, str]
) -> None:
    def troubled() -> None:
        s3_proxy.follow(Rule(fault=Refuse(*status), times=5))

    troubled()
    assert s3.create("a/commit", b"data") is None
    troubled()
    s3.write("a/file", b"more")
    troubled()
    assert s3.read("a/file") == b"more"
    troubled()
    assert [info.name for info in s3.list("")] == ["a/commit", "a/file"]
    troubled()
    s3.delete(["a/commit", "a/file"])
    assert [*s3.list("")] == []


def test_trouble_that_does_not_end_is_told(place: Place, s3_proxy: S3Proxy) -> None:
    s3_proxy.follow(Rule(fault=Refuse(503, "SlowDown"), times=None))
    slow = place(endpoint=s3_proxy.endpoint)
    said = told(lambda: slow.write("a/file", b"data"), Unavailable)
    assert "SlowDown" in said
    assert "tried 3 times" in said
    assert len(s3_proxy.seen) == 3


PART_BYTES = 5 << 20
REST_BYTES = 100_000
CLASSES: dict[str, Fault] = {
    "before it": CutRequest(0),
    "in its head": CutRequest(100),
    "in its first bytes": CutRequest(2_000),
    "in its body": CutRequest(REST_BYTES // 2),
    "in its last byte": CutRequest(-1),
    "before the answer": CutAnswer(0),
    "in the head of the answer": CutAnswer(120),
    "in the answer": CutAnswer(450),
    "with an error though it took effect": Refuse(500, "InternalError", passes="before"),
    "with an error and effect later": Refuse(500, "InternalError", passes="later", later_s=0.1),
    "twice": Repeat(),
}
STEPS = {
    "begin": ("POST", r"\?uploads"),
    "first part": ("PUT", r"partNumber=1\b"),
    "last part": ("PUT", r"partNumber=2\b"),
    "complete": ("POST", "uploadId="),
}


@pytest.mark.parametrize("step", STEPS)
def test_an_upload_in_parts_that_is_cut_anywhere_comes_right(
    s3: CheckpointStorage, s3_server: S3Server, s3_proxy: S3Proxy, s3_bucket: str, step: str
) -> None:
    options = s3_server.options(endpoint=s3_proxy.endpoint)
    parts = load_storage(s3.url, **options, part_size_bytes=PART_BYTES, clock=HurriedClock())
    parts.prepare()
    data = random.Random(step).randbytes(PART_BYTES + REST_BYTES)
    method, path = STEPS[step]
    for number, (where, fault) in enumerate(CLASSES.items()):
        rule = Rule(fault=fault, method=method, path=path)
        s3_proxy.follow(rule)
        parts.write(f"a/file-{number}", data)
        assert rule.was_met, where
        assert parts.read(f"a/file-{number}") == data, where
    SystemClock().sleep_s(LATE_S)
    left = [write.name for write in parts.unfinished("")]
    # A write that began without an answer is left to cleaning.
    assert len(left) <= (len(CLASSES) - 2 if step == "begin" else 0)
    parts.delete(left)
    assert [*parts.unfinished("")] == []
    assert "Uploads" not in s3_server.client().list_multipart_uploads(Bucket=s3_bucket)


def test_a_server_that_is_killed_is_waited_for(place: Place, s3_server: S3Server) -> None:
    storage = load_storage(place().url, **s3_server.options(), retry_timeout_s=60, max_attempts=50)
    storage.prepare()
    assert storage.create("a/commit", b"data") is None
    s3_server.kill()
    again = threading.Thread(target=s3_server.start)
    again.start()
    storage.write("a/file", b"more")
    again.join()
    assert storage.create("a/commit", b"other") == b"data"
    assert [info.name for info in storage.list("")] == ["a/commit", "a/file"]


def test_bytes_that_are_missing_though_the_answer_looks_whole_are_found_out(
    s3: CheckpointStorage, s3_proxy: S3Proxy
) -> None:
    job = s3.job("a job")
    data = bytes(range(256)) * 400
    with job.segments(1) as writer:
        handle = writer.add(data)
    assert job.read(handle) == data
    s3_proxy.follow(Rule(fault=Shorten(10), method="GET", path="chk-", times=None))
    assert "chk-" in told(lambda: job.read(handle), Corrupt)


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
    for after_bytes in range(0, 900, 37):  # the head has some 400, which may end too early as well
        for call in calls:
            s3_proxy.follow(Rule(fault=CutAnswer(after_bytes)))
            assert call(), after_bytes


def _is_missing(storage: CheckpointStorage, name: str) -> bool:
    try:
        storage.read(name)
    except NotFound:
        return True
    return False
