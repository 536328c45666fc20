"""One call to the driver: what is admitted, and what is refused before anything is done.

The job is played: see `job_with_endpoint.py`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPResponse
from pathlib import Path

import msgspec
import pytest

from holdfast.runtime.control import call_handler as handler_module
from holdfast.runtime.control.call_handler import MOST_REQUEST_BYTES
from holdfast.runtime.control.client import JobClient
from holdfast.runtime.control.messages import Answer
from holdfast.runtime.driver.run import JobStatus
from holdfast.runtime.protocol.error_data import ErrorData
from holdfast.storage import Invalid, TooLarge
from support.jobs.job_with_endpoint import Live, live_job
from support.jobs.run_of_played_attempts import play_attempts


@pytest.fixture(autouse=True)
def _played(monkeypatch: pytest.MonkeyPatch) -> None:
    play_attempts(monkeypatch)


@pytest.fixture
def live(quick_path: Path) -> Iterator[Live]:
    with live_job(quick_path / "runs") as live:
        yield live


def connect(live: Live) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(live.found.socket))
    return connection


def answer(connection: socket.socket) -> Answer:
    """What the driver says to what was sent, whatever that was."""
    connection.settimeout(20)
    with closing(HTTPResponse(connection)) as response:
        response.begin()
        return msgspec.json.decode(response.read(), type=Answer)


def refusal(live: Live, data: bytes) -> ErrorData:
    with closing(connect(live)) as connection:
        connection.sendall(data)
        refused = answer(connection).error
    assert refused is not None
    return refused


def told(error: ErrorData) -> str:
    return f"{error.what}: {error.expected}, {error.found}"


def call(
    live: Live,
    route: str = "GET /v1/job",
    *,
    token: str | None = None,
    body: bytes = b"",
    length: int | None = None,
) -> bytes:
    """A call as bytes; `length` is what it says that its body is long."""
    token = live.found.registration.token if token is None else token
    length = len(body) if length is None else length
    head = f"{route} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + body


def test_a_request_is_carried_out_without_a_waiting_client(live: Live) -> None:
    with closing(connect(live)) as connection:
        connection.sendall(call(live, "POST /v1/cancel"))
    assert live.handle.result(20) is JobStatus.CANCELLED


@pytest.mark.parametrize("token", ["", "0" * 32, "ü"])
def test_a_wrong_token_is_refused(live: Live, token: str) -> None:
    for route in ("POST /v1/cancel", "POST /no/such/thing"):
        refused = refusal(live, call(live, route, token=token, length=MOST_REQUEST_BYTES + 1))
        assert refused.what == "the token is not that of this run"
    assert live.handle.status is JobStatus.RUNNING


def test_a_call_without_a_token_is_refused(live: Live) -> None:
    refused = refusal(live, b"POST /v1/cancel HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert refused.what == "the token is not that of this run"
    assert live.handle.status is JobStatus.RUNNING


@pytest.mark.parametrize(
    ("route", "body", "expected"),
    [
        ("GET /v2/job", b"", "does not know what it is asked for: one of GET /v1/job"),
        ("POST /v1/job", b"", ", POST /v1/job"),
        ("POST /v1/explode", b"{}", ", POST /v1/explode"),
        ("POST /v1/cancel", b'{"drain": true}', "unknown field `drain`"),
        ("POST /v1/cancel", b"3", "Expected `object`"),
        ("POST /v1/cancel", b"\xff\x00", "does not know what it is asked for"),
        ("POST /v1/cancel", b"[" * 60_000, "does not know what it is asked for"),
        ("DELETE /v1/job", b"", "does not understand the call"),
    ],
)
def test_unknown_routes_and_arguments_are_refused(
    live: Live, route: str, body: bytes, expected: str
) -> None:
    assert expected in told(refusal(live, call(live, route, body=body)))
    assert live.handle.status is JobStatus.RUNNING


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\x00\n",
        b"[]\r\n\r\n",
        b"GET /v1/job SPDY/9\r\n\r\n",
        b"\0\0\0\x09abcdefghi\n",
        b"GET /v1/job HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    ],
)
def test_nonsense_is_refused(live: Live, data: bytes) -> None:
    assert "does not understand the call" in refusal(live, data).what
    assert live.client.describe().status == "running"


@pytest.mark.parametrize("length", ["", "-1", "0x10", "1_0", "٣"])
def test_a_body_of_no_length_is_refused(live: Live, length: str) -> None:
    said = call(live, "POST /v1/cancel").replace(
        b"Content-Length: 0", f"Content-Length: {length}".encode()
    )
    assert refusal(live, said).expected == "a Content-Length in bytes"
    assert live.handle.status is JobStatus.RUNNING


def test_a_call_that_is_too_long_is_not_read(live: Live) -> None:
    longest = b"{}".ljust(MOST_REQUEST_BYTES)
    with closing(connect(live)) as connection:
        connection.sendall(call(live, "POST /v1/checkpoints", body=longest))
        assert answer(connection).error is None
    # No byte of the body is sent: the driver must not wait for it.
    refused = refusal(live, call(live, "POST /v1/cancel", length=MOST_REQUEST_BYTES + 1))
    assert refused.kind == TooLarge.__name__
    assert f"at most {MOST_REQUEST_BYTES} bytes" in refused.expected
    headers = b"GET /v1/job HTTP/1.1\r\n" + b"".join(
        b"h%d: %s\r\n" % (number, b"x" * 30_000) for number in range(3)
    )
    assert refusal(live, headers).kind == TooLarge.__name__


def test_a_call_that_does_not_come_is_given_up(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = call(live, "POST /v1/cancel", body=b"{}", length=9)
    monkeypatch.setattr(handler_module, "_REQUEST_WITHIN_S", 0.2)
    for sent in (b"", whole[:3], whole[:40], whole):
        with closing(connect(live)) as connection:
            connection.sendall(sent)
            refused = answer(connection).error
            assert refused is not None
            assert "did not come in time" in refused.what
    monkeypatch.setattr(handler_module, "_REQUEST_WITHIN_S", 20.0)
    with closing(connect(live)) as connection:
        connection.sendall(whole)
        connection.shutdown(socket.SHUT_WR)
        refused = answer(connection).error
        assert refused is not None
        assert "breaks off" in refused.what
    assert live.handle.status is JobStatus.RUNNING


def test_a_call_that_drips_is_given_up(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time counts from its beginning, and not from the last byte."""
    monkeypatch.setattr(handler_module, "_REQUEST_WITHIN_S", 0.3)
    is_told = threading.Event()

    def drip(connection: socket.socket) -> None:
        with suppress(OSError):
            while not is_told.wait(0.02):
                connection.sendall(b"a")

    with closing(connect(live)) as connection:
        dripping = threading.Thread(target=drip, args=(connection,))
        dripping.start()
        refused = answer(connection).error
        is_told.set()
        dripping.join()
    assert refused is not None
    assert "did not come in time" in refused.what


def test_another_user_is_refused(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    found = live.found
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(handler_module, "_ROOT", 54321)
    with pytest.raises(Invalid, match=r"only the user who runs the job.*user 12345"):
        JobClient(found).describe()
