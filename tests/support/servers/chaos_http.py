"""A proxy for S3 that understands HTTP just enough to spoil it, request by request.

What it passes on is what came, byte for byte, `Host` too: so signatures hold. Only `Expect` it
answers itself, which no signature covers.
"""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import dataclass
from typing import TypeAlias
from xml.sax.saxutils import escape

from support.servers.chaos_proxy import LOOPBACK, Pair, Proxy
from support.servers.chaos_rules import (
    Chooser,
    CutAnswer,
    CutRequest,
    Delay,
    DropHeader,
    Fault,
    Refuse,
    Repeat,
    Request,
    Rule,
    Rules,
    Shorten,
)

__all__ = ["S3Proxy", "Seen"]

_BODILESS = (204, 304)
Headers: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came, and what happened to it."""

    request: Request
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer: first line, headers by lower-case name, and all as it came."""

    line: str
    headers: Headers
    head: bytes
    body: bytes

    @property
    def raw(self) -> bytes:
        return self.head + self.body


class S3Proxy(Proxy):
    """Between a client and an S3 server. `chooser` may be changed at any time."""

    def __init__(self, server_port: int, chooser: Chooser | None = None) -> None:
        super().__init__(server_port)
        self.chooser: Chooser = chooser or Rules()
        self._seen: list[Seen] = []
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        """For clients."""
        return f"http://{LOOPBACK}:{self.port}"

    def follow(self, *rules: Rule) -> None:
        """Go by these rules from now on, and forget what was seen."""
        with self._lock:
            self._seen.clear()
        self.chooser = Rules(rules)

    @property
    def seen(self) -> list[Seen]:
        """The requests since the rules began, in order."""
        with self._lock:
            return [*self._seen]

    async def serve(self, client: Pair) -> None:
        server: Pair | None = None
        while (message := await _read_request(client)) is not None:
            request = _request_of(message)
            fault = self.chooser.choose(request)
            with self._lock:
                self._seen.append(Seen(request, fault))
            if server is None or server[0].at_eof():
                server = await self.connect()
            if not await self._spoil(message, fault, client, server):
                return

    async def _spoil(
        self, message: _Message, fault: Fault | None, client: Pair, server: Pair
    ) -> bool:
        """Have a request meet its fault; whether the connection is to go on."""
        if isinstance(fault, CutRequest):
            await self._cut_request(message, fault, server)
            return False
        if isinstance(fault, Refuse):
            await self._refuse(message, fault, client, server)
            return True
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        if isinstance(fault, DropHeader):
            message = _without(message, fault.name)
        answer = await _exchange(message, server)
        if isinstance(fault, Repeat):
            again = await _exchange(message, server)
            answer = again if fault.answer == "second" else answer
        if isinstance(fault, Shorten):
            answer = _shortened(answer, fault.by_bytes)
        limit = fault.after_bytes if isinstance(fault, CutAnswer) else None
        client[1].write(answer.raw[:limit])
        await client[1].drain()
        if limit is not None:
            await _let_go(client)
        return limit is None and "close" not in answer.headers.get("connection", "").lower()

    async def _cut_request(self, message: _Message, fault: CutRequest, server: Pair) -> None:
        server[1].write(message.raw[: fault.after_bytes])
        await _let_go(server)

    async def _refuse(self, message: _Message, fault: Refuse, client: Pair, server: Pair) -> None:
        if fault.passes == "before":
            await _exchange(message, server)
        elif fault.passes == "later":
            self.spawn(self._pass_later(message, fault.later_s))
        client[1].write(_refusal(fault, _request_of(message)))
        await client[1].drain()

    async def _pass_later(self, message: _Message, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await _exchange(message, await self.connect())


async def _let_go(pair: Pair) -> None:
    """End a connection in such a way that what was written before still arrives."""
    await pair[1].drain()
    pair[1].close()
    await pair[1].wait_closed()


async def _exchange(message: _Message, server: Pair) -> _Message:
    """Send a request to the server and read its answer."""
    server[1].write(message.raw)
    await server[1].drain()
    return await _read_answer(server[0], has_body=not message.line.startswith("HEAD "))


async def _read_request(client: Pair) -> _Message | None:
    """The next request; None if there is none. One that waits to be asked for its body is."""
    reader, writer = client
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, headers = _parse(head)
    if headers.pop("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = _drop(head, "expect")
    return _Message(line, headers, head, await _read_body(reader, headers))


async def _read_answer(reader: asyncio.StreamReader, *, has_body: bool) -> _Message:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        line, headers = _parse(head)
        status = int(line.split()[1])
        if status >= 200:
            break
    body = b""
    if has_body and status not in _BODILESS:
        until_end = "content-length" not in headers and "transfer-encoding" not in headers
        body = await (reader.read() if until_end else _read_body(reader, headers))
    return _Message(line, headers, head, body)


async def _read_body(reader: asyncio.StreamReader, headers: Headers) -> bytes:
    """The body as it is on the wire."""
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = bytearray()
    while True:
        size_line = await reader.readuntil(b"\r\n")
        size = int(size_line.partition(b";")[0], 16)
        body += size_line
        if size == 0:
            break
        body += await reader.readexactly(size + 2)
    while (trailer := await reader.readuntil(b"\r\n")) != b"\r\n":
        body += trailer
    return bytes(body + b"\r\n")


def _parse(head: bytes) -> tuple[str, Headers]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines if line]
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _request_of(message: _Message) -> Request:
    method, target, _ = message.line.split(" ", 2)
    path, _, query = target.partition("?")
    return Request(method, path, query, message.headers, message.body)


def _drop(head: bytes, name: str) -> bytes:
    """A head without a header."""
    return re.sub(rb"(?im)^%b:.*\r\n" % re.escape(name.encode()), b"", head)


def _without(message: _Message, name: str) -> _Message:
    headers = {each: value for each, value in message.headers.items() if each != name.lower()}
    return _Message(message.line, headers, _drop(message.head, name), message.body)


def _shortened(answer: _Message, by_bytes: int) -> _Message:
    """An answer whose body lacks its last bytes, and whose head has the new length."""
    body = answer.body[: max(0, len(answer.body) - by_bytes)]
    head = re.sub(
        rb"(?im)^content-length:.*\r\n", b"Content-Length: %d\r\n" % len(body), answer.head
    )
    return _Message(answer.line, answer.headers, head, body)


def _refusal(fault: Refuse, request: Request) -> bytes:
    """An error as S3 words it."""
    said = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{fault.code}</Code><Message>Chaos: {fault.code}.</Message>"
        f"<Resource>{escape(request.path)}</Resource><RequestId>0</RequestId></Error>"
    ).encode()
    body = b"" if request.method == "HEAD" else said
    head = (
        f"HTTP/1.1 {fault.status} Chaos\r\nContent-Type: application/xml\r\n"
        f"Content-Length: {len(said)}\r\n\r\n"
    )
    return head.encode() + body
