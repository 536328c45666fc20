"""The proxy before an S3 server passes on what comes, and spoils just what it is told to."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from holdfast.storage import SystemClock
from support.servers.chaos_http import S3Proxy
from support.servers.chaos_rules import (
    DEALS,
    CutAnswer,
    CutRequest,
    Delay,
    DropHeader,
    Fault,
    Refuse,
    Repeat,
    Request,
    Rule,
    Shorten,
    Weather,
)
from support.servers.ports import LOOPBACK
from support.servers.s3 import S3Server

CUT = (http.client.RemoteDisconnected, http.client.IncompleteRead, ConnectionError)


class Store(ThreadingHTTPServer):
    """Keeps what is put; answers a put with how many there were, and a second time says 412."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.puts: list[str] = []
        super().__init__((LOOPBACK, 0), Handler)

    def handle_error(self, *_: object) -> None:
        """A client that has gone is nothing to print."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_PUT(self) -> None:
        size = int(self.headers["content-length"])
        body = self.rfile.read(size)
        if len(body) < size:
            self.close_connection = True
            return
        self.server.puts.append(self.path)
        taken = self.headers["if-none-match"] == "*" and self.path in self.server.kept
        if not taken:
            self.server.kept[self.path] = body
        self.reply(412 if taken else 200, f"put {len(self.server.puts)}".encode())

    def do_GET(self) -> None:
        body = self.server.kept.get(self.path)
        self.reply(404 if body is None else 200, body or b"")

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if self.path.startswith("/chunked"):
            self.send_header("Transfer-Encoding", "chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as store:
        threading.Thread(target=store.serve_forever, args=[0.01], daemon=True).start()
        yield store
        store.shutdown()


@pytest.fixture
def proxy(store: Store) -> Iterator[S3Proxy]:
    with S3Proxy(store.server_port) as proxy:
        yield proxy


def ask(
    proxy: S3Proxy, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, proxy.port, timeout=10)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers=named)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def await_puts(store: Store, count: int) -> None:
    clock = SystemClock()
    end_s = clock.monotonic_s() + 10
    while len(store.puts) < count:
        assert clock.monotonic_s() < end_s
        clock.sleep_s(0.01)


@pytest.mark.parametrize("path", ["/a%20b/%C3%BC?x=1&y", "/chunked"])
def test_the_proxy_passes_requests_and_answers_on(proxy: S3Proxy, store: Store, path: str) -> None:
    assert ask(proxy, "PUT", path, b"data" * 50_000, Expect="100-continue") == (200, b"put 1")
    assert store.kept == {path: b"data" * 50_000}
    assert ask(proxy, "GET", path) == (200, b"data" * 50_000)
    assert ask(proxy, "GET", "/none") == (404, b"")
    assert [seen.request.method for seen in proxy.seen] == ["PUT", "GET", "GET"]
    assert proxy.seen[0].request.path == path.partition("?")[0]


def test_one_connection_serves_many_requests(proxy: S3Proxy) -> None:
    connection = http.client.HTTPConnection(LOOPBACK, proxy.port, timeout=10)
    for number in range(1, 4):
        connection.request("PUT", "/key", body=b"x")
        assert connection.getresponse().read() == f"put {number}".encode()
    connection.close()


@pytest.mark.parametrize("after_bytes", [0, 10, 200])
def test_a_request_that_is_cut_does_not_take_effect(
    proxy: S3Proxy, store: Store, after_bytes: int
) -> None:
    proxy.follow(Rule(fault=CutRequest(after_bytes), method="PUT"))
    with pytest.raises(CUT):
        ask(proxy, "PUT", "/key", b"x" * 1000)
    assert store.kept == {}
    assert ask(proxy, "PUT", "/key", b"again")[0] == 200


@pytest.mark.parametrize("after_bytes", [0, 10, 300])
def test_an_answer_that_is_cut_took_effect(proxy: S3Proxy, store: Store, after_bytes: int) -> None:
    store.kept["/key"] = b"y" * 500
    proxy.follow(Rule(fault=CutAnswer(after_bytes), times=2))
    with pytest.raises((*CUT, http.client.BadStatusLine)):
        ask(proxy, "GET", "/key")
    with suppress(*CUT, http.client.BadStatusLine):
        ask(proxy, "PUT", "/key", b"x")
    assert store.kept == {"/key": b"x"}


def test_a_refused_request_takes_effect_never_before_or_later(proxy: S3Proxy, store: Store) -> None:
    proxy.follow(
        Rule(fault=Refuse(503, "SlowDown"), path="never"),
        Rule(fault=Refuse(500, "InternalError", passes="before"), path="before"),
        Rule(fault=Refuse(500, "InternalError", passes="later", later_s=0.3), path="later"),
    )
    status, body = ask(proxy, "PUT", "/never", b"x")
    assert status == 503
    assert b"<Code>SlowDown</Code>" in body
    assert ask(proxy, "PUT", "/before", b"x")[0] == 500
    assert ask(proxy, "PUT", "/later", b"x")[0] == 500
    assert [*store.kept] == ["/before"]
    await_puts(store, 2)
    assert store.puts == ["/before", "/later"]


@pytest.mark.parametrize(("answer", "status"), [("first", 200), ("second", 412)])
def test_a_repeated_request_comes_twice(
    proxy: S3Proxy, store: Store, answer: str, status: int
) -> None:
    repeat = Repeat("first") if answer == "first" else Repeat("second")
    proxy.follow(Rule(fault=repeat))
    assert ask(proxy, "PUT", "/key", b"x", If_None_Match="*")[0] == status
    assert store.puts == ["/key", "/key"]


def test_a_dropped_header_is_not_seen(proxy: S3Proxy, store: Store) -> None:
    proxy.follow(Rule(fault=DropHeader("If-None-Match"), times=None))
    assert ask(proxy, "PUT", "/key", b"x", If_None_Match="*")[0] == 200
    assert ask(proxy, "PUT", "/key", b"y", If_None_Match="*")[0] == 200
    assert store.kept == {"/key": b"y"}


def test_a_shortened_answer_looks_whole(proxy: S3Proxy, store: Store) -> None:
    store.kept["/key"] = b"0123456789"
    proxy.follow(Rule(fault=Shorten(3)))
    assert ask(proxy, "GET", "/key") == (200, b"0123456")


def test_a_delay_is_one(proxy: S3Proxy) -> None:
    clock = SystemClock()
    proxy.follow(Rule(fault=Delay(0.3)))
    begun_s = clock.monotonic_s()
    assert ask(proxy, "GET", "/none")[0] == 404
    assert clock.monotonic_s() - begun_s >= 0.3


def test_rules_count_the_requests_that_fit(proxy: S3Proxy) -> None:
    rule = Rule(fault=Refuse(), method="GET", path=r"/k.y\?part=", first=2, times=2)
    proxy.follow(rule)
    assert ask(proxy, "PUT", "/key?part=1", b"")[0] == 200
    assert not rule.was_met
    statuses = [ask(proxy, "GET", "/key?part=1")[0] for _ in range(4)]
    assert statuses == [200, 503, 503, 200]
    assert ask(proxy, "GET", "/key")[0] == 404
    assert rule.was_met


def test_a_seed_deals_the_same_faults_again() -> None:
    requests = [Request("PUT", f"/{number % 50}", "", {}, b"x") for number in range(400)]

    def dealt(seed: int) -> list[Fault | None]:
        weather = Weather(seed, 0.5)
        return [weather.choose(request) for request in requests]

    assert dealt(1) == dealt(1) != dealt(2)
    weather = Weather(3, 0.5)
    assert 80 < sum(weather.choose(request) is not None for request in requests) < 200
    assert {*weather.tally} == {*DEALS}


def test_an_unreachable_server_is_not_an_error_of_the_proxy(store: Store) -> None:
    store.server_close()
    with S3Proxy(store.server_port) as proxy, pytest.raises(CUT):
        ask(proxy, "GET", "/key")


@pytest.mark.slow
def test_a_real_client_and_a_real_server_do_not_notice_it(
    s3_server: S3Server, s3_bucket: str
) -> None:
    with S3Proxy(s3_server.port) as proxy:
        client = s3_server.client(endpoint=proxy.endpoint)
        data = bytes(range(256)) * 40_000  # 10 MB
        client.put_object(Bucket=s3_bucket, Key="ü b/+", Body=data, IfNoneMatch="*")
        found = client.get_object(Bucket=s3_bucket, Key="ü b/+", Range="bytes=5-9000004")
        assert found["Body"].read() == data[5:9_000_005]
        upload = client.create_multipart_upload(Bucket=s3_bucket, Key="parts")["UploadId"]
        part = {"Bucket": s3_bucket, "Key": "parts", "UploadId": upload, "PartNumber": 1}
        tag = client.upload_part(Body=data, **part)["ETag"]
        whole = {"Parts": [{"ETag": tag, "PartNumber": 1}]}
        client.complete_multipart_upload(
            Bucket=s3_bucket, Key="parts", UploadId=upload, MultipartUpload=whole
        )
        listed = client.list_objects_v2(Bucket=s3_bucket)["Contents"]
        assert {each["Key"]: each["Size"] for each in listed} == {
            "parts": len(data),
            "ü b/+": len(data),
        }
        names = [{"Key": each["Key"]} for each in listed]
        gone = client.delete_objects(Bucket=s3_bucket, Delete={"Objects": names})
        assert len(gone["Deleted"]) == 2
        assert {seen.request.method for seen in proxy.seen} == {"PUT", "GET", "POST"}


@pytest.mark.slow
def test_a_real_client_meets_faults(s3_server: S3Server, s3_bucket: str) -> None:
    with S3Proxy(s3_server.port) as proxy:
        client = s3_server.client(endpoint=proxy.endpoint)
        direct = s3_server.client()

        def keys() -> list[str]:
            listed = direct.list_objects_v2(Bucket=s3_bucket)
            return [each["Key"] for each in listed.get("Contents", [])]

        proxy.follow(Rule(fault=CutRequest(900), method="PUT"))
        with pytest.raises(BotoCoreError):
            client.put_object(Bucket=s3_bucket, Key="cut", Body=b"x" * 10_000)
        proxy.follow(Rule(fault=CutAnswer(0), method="PUT"))
        with pytest.raises(BotoCoreError):
            client.put_object(Bucket=s3_bucket, Key="lost", Body=b"x")
        proxy.follow(Rule(fault=Refuse(), method="PUT"))
        with pytest.raises(ClientError, match="SlowDown"):
            client.put_object(Bucket=s3_bucket, Key="refused", Body=b"x")
        assert keys() == ["lost"]
        proxy.follow(Rule(fault=DropHeader("if-none-match"), times=None))
        for body in (b"one", b"two"):  # a store that knows no conditions, signature or not
            with suppress(ClientError):
                client.put_object(Bucket=s3_bucket, Key="one", Body=body, IfNoneMatch="*")
