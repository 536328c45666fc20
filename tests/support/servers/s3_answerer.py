"""A server that answers S3's requests as it is told, for what a real server cannot be made to say.

It is told answers, one for each request, in order; a request for which there is none ends the test
by an unexpected answer. What was asked is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from holdfast.storage import ManualClock, SeededEntropy
from holdfast.storage.places.s3.storage import S3CheckpointStorage

MARK = "x-amz-meta-holdfast-mark"


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def what(self) -> str:
        """The method, and the kind of request where S3 tells it by the query."""
        kinds = [
            kind for kind in ("uploads", "delete", "list-type", "uploadId") if kind in self.query
        ]
        return " ".join([self.method, *kinds])


@dataclass(frozen=True)
class Answer:
    """One answer; `length` is what it says of its body, if that is a lie."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    cut: bool = False


Told = Answer | Callable[[Asked], Answer]

OK = Answer(headers={"ETag": '"etag"'})
CUT = Answer(cut=True)


def error(code: str, status: int = 400, message: str = "because", inner: str = "") -> Answer:
    """What S3 says no with."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message>{inner}</Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


def xml(text: str) -> Answer:
    """A document."""
    return Answer(200, f"<?xml version='1.0'?>{text}".encode(), {"Content-Type": "application/xml"})


def found(
    body: bytes, *, mark: str = "", etag: str = "etag", span: tuple[int, int] | None = None
) -> Answer:
    """An object, or of its bytes those from the first of the span to before the second."""
    headers = {"ETag": f'"{etag}"'}
    if mark:
        headers[MARK] = mark
    if span is None:
        return Answer(200, body, headers)
    headers["Content-Range"] = f"bytes {span[0]}-{span[1] - 1}/{len(body)}"
    return Answer(206, body[slice(*span)], headers)


SLOW_DOWN = error("SlowDown", 503, "Please reduce your request rate.")
BROKEN = error("InternalError", 500)
REFUSED = error("PreconditionFailed", 412)
ABSENT = error("NoSuchKey", 404)
COMPLETED = xml("<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")


class Answerer:
    """The server; `endpoint` is where it is."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.asked: list[Asked] = []
        self.unexpected: list[str] = []
        self._told: list[Told] = []
        self._lock = threading.Lock()

    def tell(self, *answers: Told) -> None:
        """Answer the next requests so."""
        with self._lock:
            self._told.extend(answers)

    @property
    def whats(self) -> list[str]:
        """What was asked, in short."""
        return [asked.what for asked in self.asked]

    def begin(self) -> None:
        """Forget all."""
        for kept in (self.asked, self.unexpected, self._told):
            kept.clear()

    def end(self) -> None:
        """Check that it was asked for all that it was told, and for no more."""
        assert self.unexpected == [], "unexpected requests"
        assert self._told == [], "answers that were not asked for"

    def answer(self, asked: Asked) -> Answer:
        """What it was told to say to this."""
        with self._lock:
            self.asked.append(asked)
            if not self._told:
                self.unexpected.append(asked.what)
                return error("NobodyExpectedThis", 400, asked.what)
            told = self._told.pop(0)
        return told if isinstance(told, Answer) else told(asked)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answerer: Answerer

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        split = urlsplit(self.path)
        asked = Asked(
            self.command,
            split.path,
            parse_qs(split.query, keep_blank_values=True),
            {name.lower(): value for name, value in self.headers.items()},
            body,
        )
        answer = self.answerer.answer(asked)
        if answer.cut:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        length = len(answer.body) if answer.length is None else answer.length
        if answer.status != 204:
            self.send_header("Content-Length", str(length))
        if answer.length is not None:
            self.close_connection = True
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 (as it is asked for)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def answering() -> Iterator[Answerer]:
    """A server."""
    handler = type("Handler", (_Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        answerer = Answerer(server.server_address[1])
        handler.answerer = answerer  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield answerer
        finally:
            server.shutdown()
            thread.join()


def storage_of(store: Answerer, clock: ManualClock, **options: Any) -> S3CheckpointStorage:
    """A storage on it, whose pauses take no time if the clock does not wait."""
    given = {"key": "AKIDAKIDAKIDAKID", "secret": "a-secret-of-length", **options}
    return S3CheckpointStorage(
        "s3://bucket/root/",
        endpoint=store.endpoint,
        clock=clock,
        entropy=SeededEntropy(5),
        **given,
    )


def proven(store: Answerer) -> None:
    """Tell what a store says to the probes before the first create, if it is a good one."""
    probes: list[Asked] = []

    def keep(asked: Asked) -> Answer:
        probes.append(asked)
        return OK

    def listed(_: Asked) -> Answer:
        return listing(probes[0].path.removeprefix("/bucket/"))

    store.tell(keep, REFUSED, lambda _: found(probes[0].body), listed, uploads(), Answer(204))


def listing(*keys: str, more: str = "", is_cut: bool = False) -> Answer:
    """A page of objects."""
    lines = "".join(
        f"<Contents><Key>{key}</Key><Size>3</Size>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for key in keys
    )
    token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    truncated = str(bool(more) or is_cut).lower()
    return xml(
        f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{lines}{token}</ListBucketResult>"
    )


def uploads(*lines: tuple[str, str], more: bool = False) -> Answer:
    """A page of uploads."""
    shown = "".join(
        f"<Upload><Key>{key}</Key><UploadId>{upload}</UploadId></Upload>" for key, upload in lines
    )
    tail = "<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>"
    return xml(
        f"<ListMultipartUploadsResult><IsTruncated>{str(more).lower()}</IsTruncated>"
        f"{tail if more else ''}{shown}</ListMultipartUploadsResult>"
    )


def begun(upload_id: str = "U") -> Answer:
    """An upload."""
    return xml(
        f"<InitiateMultipartUploadResult><UploadId>{upload_id}</UploadId>"
        "</InitiateMultipartUploadResult>"
    )
