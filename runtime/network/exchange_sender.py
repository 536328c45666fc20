"""Sends from an operator chain to a channel of another slot: a queue, and a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from holdfast.runtime.columns.types import detached
from holdfast.runtime.network.connection import Connection, Stream
from holdfast.runtime.network.credentials import Credentials
from holdfast.runtime.network.element_stream import PULSE_S
from holdfast.runtime.protocol.elements import Element, size_bytes
from holdfast.runtime.protocol.messages import Exchange
from holdfast.runtime.task.channel import Bell, Closed
from holdfast.storage import HoldfastError, Unavailable

__all__ = ["ExchangeSender"]

_CLOSE_TIMEOUT_S = 5.0


class ExchangeSender:
    """One ordered stream of elements to one channel of another slot, for a whole attempt.

    `send` is called by the slot's thread and never waits: check `has_room` before it. When the
    receiver takes something from a full queue, `bell` rings. The first error goes to `on_error`,
    once, in the sender's own thread; elements sent after it are dropped.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        *,
        edge: str,
        sender: int,
        schema: pa.Schema,
        capacity_bytes: int,
        bell: Bell,
        on_error: Callable[[HoldfastError], None],
    ) -> None:
        self._where = f"edge {edge!r} from slot {sender} to {address}"
        self._opening = Exchange(edge=edge, sender=sender)
        self._schema = schema
        self._capacity_bytes = capacity_bytes
        self._bell = bell
        self._on_error = on_error
        self._connection = Connection(address, credentials, timeout_s=0, retry_for_s=0)
        self._stream: Stream | None = None
        self._queue: deque[tuple[Element, int]] = deque()
        self._size_bytes = 0
        self._changed = threading.Condition(threading.Lock())
        self._is_last = False
        self._is_cancelled = False
        self._error: HoldfastError | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"holdfast-exchange-{edge}", daemon=True
        )
        self._thread.start()

    @property
    def size_bytes(self) -> int:
        """Bytes that wait to be sent, or are being sent."""
        return self._size_bytes

    @property
    def has_room(self) -> bool:
        """Whether the queue is not full. `send` does not check it."""
        return self._size_bytes < self._capacity_bytes

    def send(self, element: Element) -> None:
        """Append an element to the queue, also to a full one."""
        if isinstance(element, pa.RecordBatch):
            element = detached(element)
        size = size_bytes(element)
        with self._changed:
            if self._error is None and not self._is_cancelled:
                self._queue.append((element, size))
                self._size_bytes += size
                self._changed.notify()

    def end(self, timeout_s: float) -> bool:
        """End the stream. True if it ended within the timeout, in success or by an error."""
        with self._changed:
            self._is_last = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def finish(self, timeout_s: float) -> None:
        """Return when the receiver has all elements in its channel. Nothing may be sent after it.

        Raises:
            Unavailable: not all was received within that time.
            HoldfastError: why the stream failed.
        """
        if not self.end(timeout_s):
            raise Unavailable(
                "elements were sent and not received in time",
                where=self._where,
                found=f"{self._size_bytes} bytes on the way after {timeout_s} s",
            )
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop at once. Elements that were not received are lost; after `finish` there are none."""
        with self._changed:
            self._is_cancelled = True
            self._queue.clear()
            self._changed.notify()
            stream = self._stream
        if stream is not None:
            stream.cancel()
        self._thread.join(_CLOSE_TIMEOUT_S)  # gRPC cannot be told to stop connecting
        self._connection.close()

    def _run(self) -> None:
        try:
            stream = self._open()
            while (element := self._next(stream)) is not None:
                stream.send(element)
                self._sent()
            stream.finish()
        except HoldfastError as error:
            self._fail(error)

    def _open(self) -> Stream:
        stream = self._connection.open(self._opening, self._schema, where=self._where)
        with self._changed:
            self._stream = stream
        return stream

    def _next(self, stream: Stream) -> Element | None:
        """The next element, as soon as there is one; None after the last."""
        while True:
            with self._changed:
                if not (self._queue or self._is_last or self._is_cancelled):
                    self._changed.wait(PULSE_S)
                if self._is_cancelled:
                    raise Closed("the sender was closed", where=self._where)
                if self._queue:
                    return self._queue[0][0]
                if self._is_last:
                    return None
            stream.pulse()

    def _sent(self) -> None:
        with self._changed:
            was_full = not self.has_room
            if self._queue:
                self._size_bytes -= self._queue.popleft()[1]
        if was_full:
            self._bell.ring()

    def _fail(self, error: HoldfastError) -> None:
        with self._changed:
            self._error = error
            is_cancelled = self._is_cancelled
            self._queue.clear()
            self._size_bytes = 0
        if self._stream is not None:
            self._stream.cancel()
        self._bell.ring()
        if not is_cancelled:
            self._on_error(error)
