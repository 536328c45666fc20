"""Proxies that stand between a client and a real server and have things go wrong, by plan.

Here is what they share: an event loop in a thread, a port, and streams that end in bad ways. For S3
there is `chaos_http.py`, for HDFS `chaos_rpc.py`.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self, TypeVar

__all__ = ["LOOPBACK", "Pair", "Proxy", "abort"]

LOOPBACK = "127.0.0.1"
_LIMIT_BYTES = 1 << 20
_Answer = TypeVar("_Answer")
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def abort(writer: asyncio.StreamWriter) -> None:
    """End a connection as a network does: at once, both ways, whatever was still to be sent."""
    writer.transport.abort()


def _end_with(task: asyncio.Task[Any] | None, writer: asyncio.StreamWriter) -> None:
    # Not by `finally` in the task: one that is cancelled before it runs never gets there.
    assert task is not None
    task.add_done_callback(lambda _: abort(writer))


class Proxy(ABC):
    """Listens on a port of its own from `start` to `stop`, and serves in a thread."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where clients connect."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def start(self) -> Self:
        self._thread.start()
        self._server = self.call(
            asyncio.start_server(self._accept, LOOPBACK, 0, limit=_LIMIT_BYTES)
        )
        return self

    def stop(self) -> None:
        """Cut all connections, and end. What went wrong in the proxy itself is raised here."""
        if self._server is None:
            return
        self.call(self._end(self._server))
        self._server = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._errors:
            raise self._errors[0]

    def call(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Have the proxy's thread do something."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def cut_all(self) -> None:
        """Cut every connection that there is now."""
        self.call(self._cancel_all())

    @abstractmethod
    async def serve(self, client: Pair) -> None:
        """Everything that happens on one connection; it is ended after that."""

    async def connect(self) -> Pair:
        """A connection to the server; it ends with the task that asks for it."""
        pair = await asyncio.open_connection(LOOPBACK, self.server_port, limit=_LIMIT_BYTES)
        _end_with(asyncio.current_task(), pair[1])
        return pair

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside; an error of it is one of the proxy."""
        task = self._loop.create_task(self._watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _end_with(self.spawn(self._serve((reader, writer))), writer)

    async def _serve(self, client: Pair) -> None:
        await self.serve(client)
        client[1].close()

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # one of the two has gone
        except Exception as error:  # noqa: BLE001 - it is raised where the proxy is stopped
            self._errors.append(error)

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        await self._cancel_all()
        await server.wait_closed()

    async def _cancel_all(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
