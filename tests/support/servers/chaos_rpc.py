"""Proxies for HDFS: one for the calls to the NameNode, one for the data of the DataNode.

The calls are Hadoop's RPC, frames with a length in front, of which this reads the method and the
first argument, mostly a path. The NameNode tells clients the port of the DataNode; in its answers
that port becomes the one of the proxy. It has three bytes there, like the other one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, Self

from support.servers.chaos_proxy import LOOPBACK, Pair, Proxy, abort
from support.servers.chaos_rules import (
    Chooser,
    CutAnswer,
    CutRequest,
    Delay,
    Fault,
    Refuse,
    Request,
    Rule,
    Rules,
)

__all__ = ["HdfsProxy"]

_GREETING_BYTES = 7
_DATA_HEAD_BYTES = 3
_DATA_METHODS = {80: "WRITE_BLOCK", 81: "READ_BLOCK"}
_CHUNK_BYTES = 1 << 16
_NEVER = 1 << 62


class HdfsProxy:
    """Between clients and an HDFS of one NameNode and one DataNode.

    A request's method is that of the call (`rename2`, `complete`, …), or WRITE_BLOCK or READ_BLOCK
    for a connection to the DataNode, with no path. A client cannot be told of an error that is
    none of the server's: `Refuse` cuts the connection.
    """

    def __init__(self, name_port: int, data_port: int, chooser: Chooser | None = None) -> None:
        self.chooser: Chooser = chooser or Rules()
        self._seen: list[tuple[Request, Fault | None]] = []
        self._lock = threading.Lock()
        self._data = _DataProxy(data_port, self)
        self._names = _NameProxy(name_port, self)

    def url(self, path: str = "") -> str:
        """Of a place in it, by this way."""
        return f"hdfs://{LOOPBACK}:{self._names.port}/{path}"

    def follow(self, *rules: Rule) -> None:
        """Go by these rules from now on, and forget what was seen."""
        with self._lock:
            self._seen.clear()
        self.chooser = Rules(rules)

    @property
    def seen(self) -> list[tuple[Request, Fault | None]]:
        """The calls since the rules began, in order."""
        with self._lock:
            return [*self._seen]

    def choose(self, request: Request) -> Fault | None:
        fault = self.chooser.choose(request)
        with self._lock:
            self._seen.append((request, fault))
        return fault

    @property
    def data_ports(self) -> tuple[int, int]:
        """Where the DataNode is, and where clients believe it to be."""
        return self._data.server_port, self._data.port

    def start(self) -> Self:
        self._data.start()
        self._names.start()
        return self

    def stop(self) -> None:
        self._names.stop()
        self._data.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _NameProxy(Proxy):
    """Of the calls."""

    def __init__(self, server_port: int, whole: HdfsProxy) -> None:
        super().__init__(server_port)
        self._whole = whole

    async def serve(self, client: Pair) -> None:
        server = await self.connect()
        server[1].write(await client[0].readexactly(_GREETING_BYTES))
        line = _Line(self._whole, client, server)
        both = [self.spawn(line.pass_calls()), self.spawn(line.pass_answers())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            abort(client[1])
            if line.late_s:  # what was held back still takes effect
                await asyncio.sleep(line.late_s + 1)
        finally:
            for task in both:
                task.cancel()


class _Line:
    """One connection for calls: it ends when either direction does."""

    def __init__(self, whole: HdfsProxy, client: Pair, server: Pair) -> None:
        self._whole = whole
        self._client = client
        self._server = server
        self._cut_answers: dict[int, int] = {}
        """By the number of a call, how much of its answer the client gets."""
        self.late_s = 0.0

    async def pass_calls(self) -> None:
        to, from_ = self._whole.data_ports  # clients speak of the proxy's
        while True:
            frame = _with_port(await _read_frame(self._client[0]), old=from_, new=to)
            number, request = _call_of(frame[4:])
            fault = self._whole.choose(request) if request else None
            if isinstance(fault, CutRequest):
                self._server[1].write(frame[: fault.after_bytes])
                await self._server[1].drain()
                return
            if isinstance(fault, Refuse) and fault.passes == "never":
                return
            if isinstance(fault, Refuse) and fault.passes == "later":
                self.late_s = fault.later_s
                asyncio.get_running_loop().call_later(fault.later_s, self._server[1].write, frame)
                return
            if isinstance(fault, Refuse):
                fault = CutAnswer(0)
            if isinstance(fault, CutAnswer):
                self._cut_answers[number] = fault.after_bytes
            if isinstance(fault, Delay):
                await asyncio.sleep(fault.seconds)
            self._server[1].write(frame)
            await self._server[1].drain()

    async def pass_answers(self) -> None:
        old, new = self._whole.data_ports
        while True:
            frame = _with_port(await _read_frame(self._server[0]), old=old, new=new)
            limit = self._cut_answers.get(_answered(frame[4:]))
            self._client[1].write(frame[:limit])
            await self._client[1].drain()
            if limit is not None:
                return


class _DataProxy(Proxy):
    """Of the data, byte by byte: a fault is for one connection, chosen when it says what it is."""

    def __init__(self, server_port: int, whole: HdfsProxy) -> None:
        super().__init__(server_port)
        self._whole = whole

    async def serve(self, client: Pair) -> None:
        head = await client[0].readexactly(_DATA_HEAD_BYTES)
        method = _DATA_METHODS.get(head[2], f"op {head[2]}")
        fault = self._whole.choose(Request(method, "", "", {}, b""))
        if isinstance(fault, Refuse):
            fault = CutAnswer(0) if fault.passes == "before" else CutRequest(0)
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        up = fault.after_bytes if isinstance(fault, CutRequest) else _NEVER
        down = fault.after_bytes if isinstance(fault, CutAnswer) else _NEVER
        server = await self.connect()
        if up > len(head):
            server[1].write(head)
        both = [
            asyncio.create_task(_pass_bytes(client[0], server[1], up - len(head))),
            asyncio.create_task(_pass_bytes(server[0], client[1], down)),
        ]
        try:
            for ended in asyncio.as_completed(both):
                if await ended:
                    return
        finally:
            for task in both:
                task.cancel()


async def _pass_bytes(source: asyncio.StreamReader, sink: asyncio.StreamWriter, limit: int) -> bool:
    """Pass on what comes, and that no more comes; whether it ended because of the limit."""
    while limit > 0:
        data = await source.read(min(limit, _CHUNK_BYTES))
        if not data:
            sink.write_eof()
            return False
        sink.write(data)
        await sink.drain()
        limit -= len(data)
    sink.close()
    await sink.wait_closed()
    return True


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """One frame, its length in front."""
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big"))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in the encoding of protobuf, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _as_varint(number: int) -> bytes:
    """A number in the encoding of protobuf."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def _messages(payload: bytes) -> Iterator[dict[int, Any]]:
    """The messages of a frame, each with a length in front, by the numbers of their fields."""
    at = 0
    while at < len(payload):
        length, at = _varint(payload, at)
        yield dict(_fields(payload[at : at + length]))
        at += length


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0:
            number, at = _varint(message, at)
            yield tag >> 3, number
        else:  # the headers, and what comes first in arguments, have no other kinds
            length, at = _varint(message, at)
            yield tag >> 3, message[at : at + length]
            at += length


def _call_of(payload: bytes) -> tuple[int, Request | None]:
    """The number of a call and what it is; no request for those that only set up a connection."""
    messages = _messages(payload)
    zigzag = next(messages)[3]
    number = (zigzag >> 1) ^ -(zigzag & 1)
    if number < 0:
        return number, None
    method = next(messages)[1].decode()
    first = next(messages, {}).get(1, b"")
    path = first.decode(errors="replace") if isinstance(first, bytes) else ""
    return number, Request(method, path, "", {}, payload)


def _answered(payload: bytes) -> int:
    """The number of the call that this is the answer of."""
    number: int = next(_messages(payload)).get(1, -1)
    return number


def _with_port(frame: bytes, *, old: int, new: int) -> bytes:
    """A frame that says another port of the DataNode: a field that the one of its web page follows.

    Both ports take three bytes, so all lengths stay.
    """
    before, after = (b"\x20" + _as_varint(port) + b"\x28" for port in (old, new))
    assert len(before) == len(after)
    return frame.replace(before, after)
