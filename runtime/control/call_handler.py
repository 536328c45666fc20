"""One HTTP call to the driver of a running job: admit it, carry it out, answer it.

A call is checked in this order: the user of the calling process, the token, the route, the body.
A caller that fails one check learns nothing of the next.
"""

from __future__ import annotations

import hmac
import io
import logging
import os
import re
import socket
import struct
import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

import msgspec

from holdfast.runtime.control.messages import ROUTES, Answer, Request
from holdfast.runtime.control.registry import Registration
from holdfast.runtime.control.requests import carry_out
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.protocol.error_data import data_of_error
from holdfast.storage import Clock, HoldfastError, Invalid, NotFound, TooLarge, Unavailable
from holdfast.storage.bounded_calls import begun
from holdfast.storage.distribution import holdfast_version
from holdfast.storage.errors import UNREADABLE

__all__ = ["MOST_REQUEST_BYTES", "CallHandler", "ServedJob"]

_logger = logging.getLogger(__name__)

MOST_REQUEST_BYTES = 1 << 16
"""Limit of a request's body. Requests carry names and paths only."""
_MOST_HEAD_BYTES = 1 << 14
_MOST_ANSWER_BYTES = 1 << 24
_REQUEST_WITHIN_S = 5.0
_ANSWER_WITHIN_S = 5.0
_PULSE_S = 1.0
_ROOT = 0
_LENGTH = re.compile("[0-9]{1,9}")
_REQUESTS = {route: request for request, route in ROUTES.items()}
_STATUSES: dict[type, HTTPStatus] = {
    NotFound: HTTPStatus.NOT_FOUND,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""HTTP status by kind of error; 400 for all others. The command reads the body, not the status."""


@dataclass(frozen=True, slots=True)
class ServedJob:
    """What a handler needs of the job that it answers for."""

    handle: JobHandle
    registration: Registration
    clock: Clock
    is_ending: threading.Event
    """Set when the endpoint closes: a call that is still under way is then broken off."""


class CallHandler(BaseHTTPRequestHandler):
    """Handles one connection during construction: reads one call and answers it.

    With `refusal` it reads nothing and answers that.

    Raises:
        OSError: the caller has gone.
    """

    protocol_version = "HTTP/1.1"
    server_version = f"Holdfast/{holdfast_version()}"
    sys_version = ""
    timeout = _ANSWER_WITHIN_S
    # The base class would answer what it cannot parse as HTTP/0.9: without a head.
    default_request_version = protocol_version
    # It sets these two when it reads a request, and a refusal may come before that.
    request_version = protocol_version
    requestline = ""

    def __init__(
        self, connection: socket.socket, job: ServedJob, refusal: HoldfastError | None = None
    ) -> None:
        self._job = job
        self._refusal = refusal
        self._is_chunked = False
        super().__init__(connection, "", cast("Any", None))  # there is no server object

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_BoundedReader(self.connection, self._job.clock))

    def handle(self) -> None:
        try:
            if self._refusal is not None:
                raise self._refusal
            _check_caller(self.connection)
            self.handle_one_request()
        except HoldfastError as error:
            self._refuse(error)

    def do_GET(self) -> None:
        self._answer(self._admitted(self._check_token()))

    do_POST = do_GET  # noqa: N815 - the base class looks methods up by this name

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no HTTP: the base class calls this, and would answer with a page."""
        found = message or HTTPStatus(code).phrase
        self._refuse(Invalid("the driver does not understand the call", found=found))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the base class
        """Log nothing: the base class would write each call to stderr."""

    def _check_token(self) -> str:
        """The route that is asked for, by a caller that knows the secret of this run."""
        given = self.headers.get("Authorization", "")
        expected = f"Bearer {self._job.registration.token}"
        if not hmac.compare_digest(given.encode(errors="replace"), expected.encode()):
            raise Invalid(
                "the token is not that of this run",
                where=f"job {self._job.registration.job!r}",
                fix="Use the holdfast command, as the user who runs the job",
            )
        return f"{self.command} {self.path}"

    def _admitted(self, route: str) -> Request:
        """The request, with fields that this driver knows: it is done as asked, or refused."""
        kind = _REQUESTS.get(route)
        if kind is None:
            raise _unknown_request(f"one of {', '.join(_REQUESTS)}", route)
        try:
            request: Request = msgspec.json.decode(self._body() or b"{}", type=kind)
        except UNREADABLE as error:
            raise _unknown_request("a request that it knows", str(error)) from error
        return request

    def _body(self) -> bytes:
        if self.command == "GET":
            return b""
        said = self.headers.get("Content-Length", "")
        if not _LENGTH.fullmatch(said):
            raise Invalid(
                "the driver does not understand the call",
                expected="a Content-Length in bytes",
                found=repr(said),
            )
        length = int(said)
        if length > MOST_REQUEST_BYTES:
            raise _too_large(f"{length} bytes")
        data = self.rfile.read(length)
        if len(data) < length:
            raise Invalid(
                "a call breaks off", expected=f"{length} bytes", found=f"{len(data)} bytes"
            )
        return data

    def _answer(self, request: Request) -> None:
        self.connection.settimeout(_ANSWER_WITHIN_S)
        job = self._job
        # The request is carried out by a thread of its own: it is completed even if the caller
        # stops waiting, and this thread can tell the caller meanwhile that the driver is alive.
        # It may wait for the end of the job, which shall not hold up that of the process.
        outcome = begun(
            lambda: carry_out(request, job.handle, job.registration), is_awaited_at_exit=False
        )
        while not _is_done(outcome, _PULSE_S):
            # The endpoint closes when the job has ended: what waited for that is about to be done.
            if job.is_ending.is_set() and not _is_done(outcome, _PULSE_S / 2):
                raise Unavailable(
                    "the driver of the job ends, and whether it was done is not known",
                    where=f"job {job.registration.job!r}",
                )
            self._pulse()
        try:
            result = msgspec.Raw(msgspec.json.encode(outcome.result()))
        except HoldfastError:
            raise
        except Exception as error:
            _logger.warning("a command failed", exc_info=True)
            raise Invalid("the driver could not carry it out", found=repr(error)) from error
        self._send(HTTPStatus.OK, Answer(result=result))

    def _refuse(self, error: HoldfastError) -> None:
        status = _STATUSES.get(type(error), HTTPStatus.BAD_REQUEST)
        self._send(status, Answer(error=data_of_error(error)))

    def _pulse(self) -> None:
        """Send a line feed, which JSON allows before the answer, so that the caller waits on."""
        if not self._is_chunked:
            self._is_chunked = True
            # The outcome is not known yet, so neither is the status: the body tells.
            self._send_head(HTTPStatus.OK, "Transfer-Encoding", "chunked")
        self.wfile.write(b"1\r\n\n\r\n")

    def _send(self, status: HTTPStatus, answer: Answer) -> None:
        data = msgspec.json.encode(answer)
        if len(data) > _MOST_ANSWER_BYTES:
            error = Unavailable("the answer is too long to be sent", found=f"{len(data)} bytes")
            data = msgspec.json.encode(Answer(error=data_of_error(error)))
        self.connection.settimeout(_ANSWER_WITHIN_S)
        if self._is_chunked:
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
        else:
            self._send_head(status, "Content-Length", str(len(data)))
            self.wfile.write(data)

    def _send_head(self, status: HTTPStatus, name: str, value: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.send_header(name, value)
        self.end_headers()


class _BoundedReader(io.RawIOBase):
    """Reads a call from a connection within a time and a size, in however small pieces it comes.

    A timeout of the socket alone would begin anew with each piece.
    """

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._deadline_s = clock.monotonic_s() + _REQUEST_WITHIN_S
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """As `io.RawIOBase`.

        Raises:
            Unavailable: the call did not arrive in time.
            TooLarge: it is longer than any call.
        """
        remaining_s = self._deadline_s - self._clock.monotonic_s()
        try:
            self._connection.settimeout(max(remaining_s, 0.001))
            count = self._connection.recv_into(buffer)
        except TimeoutError as error:
            raise Unavailable(
                "the call did not come in time",
                expected=f"all of it within {_REQUEST_WITHIN_S:g} s",
                found=f"{self._count} bytes",
            ) from error
        self._count += count
        if self._count > _MOST_HEAD_BYTES + MOST_REQUEST_BYTES:
            raise _too_large(f"more than {_MOST_HEAD_BYTES + MOST_REQUEST_BYTES} bytes")
        return count


def _is_done(outcome: Future[Any], within_s: float) -> bool:
    return bool(wait([outcome], within_s).done)


def _check_caller(connection: socket.socket) -> None:
    """Refuse processes of other users but root, where the system tells the user.

    Raises:
        Invalid: it is another user.
    """
    kind = getattr(socket, "SO_PEERCRED", None)
    if kind is None:
        return
    layout = struct.Struct("3i")
    _, user, _ = layout.unpack(connection.getsockopt(socket.SOL_SOCKET, kind, layout.size))
    if user not in (_ROOT, os.getuid()):
        raise Invalid(
            "only the user who runs the job may command it",
            expected=f"user {os.getuid()}",
            found=f"user {user}",
        )


def _unknown_request(expected: str, found: str) -> Invalid:
    return Invalid(
        "the driver of the job does not know what it is asked for",
        where=f"Holdfast {holdfast_version()}",
        expected=expected,
        found=found,
        fix="Use the holdfast command of the installation that runs the job",
    )


def _too_large(found: str) -> TooLarge:
    return TooLarge(
        "the call is too long", expected=f"at most {MOST_REQUEST_BYTES} bytes", found=found
    )
