"""Sends from operator chains to the channels of another slot: queues, one thread, one stream.

All channels between two slots share a stream, and none holds up another: the receiver grants each
channel room for so many bytes, and what it has no room for waits here, in the channel's own queue.
So the stream itself never stands still.

Batches that wait for the same channel are sent as one. Small ones wait for more of them until a
timeout after the last ones were sent, so rows that come after a pause are sent at once, and nothing
waits longer than the timeout. A mark sends what is before it.
"""

from __future__ import annotations

import math
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from itertools import starmap

import pyarrow as pa

from holdfast.runtime.columns.types import copied, detached, has_dictionary
from holdfast.runtime.network.connection import Connection, Stream
from holdfast.runtime.network.credentials import Credentials
from holdfast.runtime.network.element_stream import ACKNOWLEDGED, PULSE_S, piece_bytes, pieces
from holdfast.runtime.network.exchange_frames import (
    FRAMES,
    Frame,
    RowFrames,
    decode_grants,
    mark_frame,
    schema_frame,
)
from holdfast.runtime.network.flight_errors import raising_house_errors
from holdfast.runtime.protocol.elements import Element, size_bytes
from holdfast.runtime.protocol.messages import Exchange
from holdfast.runtime.task.channel import Closed, Rings
from holdfast.storage import HoldfastError, Invalid, SystemClock, Unavailable

__all__ = ["ExchangeSender", "OutgoingChannel"]

# Up to here a copy costs less than a frame does.
_JOIN_BYTES = 256 << 10
_CLOSE_TIMEOUT_S = 5.0
_REASON_TIMEOUT_S = 1.0


class OutgoingChannel:
    """The upstream end of one channel to another slot. Elements keep their order.

    `send` is called by the slot's thread and never waits: check `has_room` before it.
    """

    def __init__(
        self,
        place: int,
        schema: pa.Schema,
        *,
        capacity_bytes: int,
        timeout_s: float,
        changed: threading.Condition,
        bell: Rings,
    ) -> None:
        self._capacity_bytes = capacity_bytes
        self._piece_bytes = piece_bytes(capacity_bytes)
        self._least_bytes = min(_JOIN_BYTES, self._piece_bytes)
        self._changed = changed
        self.bell = bell
        """Rings when a full queue has room again. The chain that sends may put its own here."""
        self._size_bytes = 0
        self._place = place
        self._frames = RowFrames(place, schema)
        self._may_join = not any(map(has_dictionary, schema.types))
        self._timeout_s = timeout_s if self._may_join else 0.0
        self._rows_sent_s = -math.inf
        self._limit_bytes = self._room_bytes = self._sent_bytes = 0
        self._marks = 0
        """How many of those that wait are marks."""
        self.queue: deque[tuple[Element, int]] | None = deque()
        """What is not being sent yet, and its sizes, under the sender's lock; None: it is over."""

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
        parts = [element]
        if isinstance(element, pa.RecordBatch):
            parts = list(pieces(detached(element), self._piece_bytes))
            if len(parts) > 1:  # a slice would keep the whole batch until the last one is sent
                parts = [copied(part) for part in parts]
        sized = [(part, size_bytes(part)) for part in parts]
        with self._changed:
            if self.queue is None:
                return
            is_first = not self.queue
            self.queue += sized
            self._size_bytes += sum(size for _, size in sized)
            self._marks += not isinstance(element, pa.RecordBatch)
            if is_first or not self._may_wait:  # else the writer looks at the timeout
                self._changed.notify()

    def granted(self, limit_bytes: int, room_bytes: int) -> None:
        """The receiver has room for so much since the beginning, for `room_bytes` in all."""
        self._limit_bytes = max(limit_bytes, self._limit_bytes)
        self._room_bytes = room_bytes

    @property
    def _may_wait(self) -> bool:
        """Whether what is in the queue is so little that more may be waited for."""
        return not self._marks and self._size_bytes < self._least_bytes

    def ready_s(self) -> float:
        """When there is something to send: now or before, later, or never for all that is known."""
        if not self.queue:
            return math.inf
        room, size = self._limit_bytes - self._sent_bytes, self.queue[0][1]
        # The receiver tells of room in larger amounts, so "all of it" is not quite all.
        if not (size <= room or (room > 0 and room * 4 >= self._room_bytes * 3)):
            return math.inf
        return self._rows_sent_s + self._timeout_s if self._may_wait else -math.inf

    def begin(self, now_s: float) -> tuple[list[Element], int]:
        """Take what is to be sent next from the queue: a mark, or batches to be sent as one.

        Also returns its size. It counts until it is `sent`.
        """
        assert self.queue
        element, size = self.queue.popleft()
        taken = [element]
        if isinstance(element, pa.RecordBatch):
            self._rows_sent_s = now_s
            most_bytes = min(self._least_bytes, self._limit_bytes - self._sent_bytes)
            while self.queue and self._may_join and size + self.queue[0][1] <= most_bytes:
                if not isinstance(self.queue[0][0], pa.RecordBatch):
                    break
                element, more = self.queue.popleft()
                taken.append(element)
                size += more
        else:
            self._marks -= 1
        self._sent_bytes += size
        return taken, size

    def frame(self, taken: list[Element]) -> Frame:
        """The frame of what `begin` has taken.

        Raises:
            Invalid: it is rows that do not fit the edge.
        """
        element = taken[0]
        if isinstance(element, pa.RecordBatch):
            return self._frames.frame(taken)
        return mark_frame(self._place, element)

    def sent(self, size: int) -> bool:
        """An element is on its way; returns whether the queue was full with it."""
        was_full = not self.has_room
        self._size_bytes -= size
        return was_full

    def give_up(self) -> None:
        """Drop what waits, and what is still to come."""
        self.queue = None
        self._size_bytes = self._marks = 0


class ExchangeSender:
    """The stream to one other slot, for a whole attempt, with a channel for each edge.

    When a queue that was full has room again `bell` rings, or what the channel has instead. The
    first error goes to `on_error`, once, in a thread of the sender; elements sent after it are
    dropped.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        *,
        sender: int,
        edges: Mapping[str, pa.Schema],
        capacity_bytes: int,
        bell: Rings,
        on_error: Callable[[HoldfastError], None],
        buffer_timeout_s: float = 0.0,
    ) -> None:
        self._where = f"slot {sender} to {address}"
        self._opening = Exchange(sender=sender, edges=[*edges])
        self._schemas = list(edges.values())
        self._on_error = on_error
        self._clock = SystemClock()
        self._connection = Connection(address, credentials, timeout_s=0, retry_for_s=0)
        self._stream: Stream | None = None
        self._changed = threading.Condition(threading.Lock())
        self._channels = [
            OutgoingChannel(
                place,
                schema,
                capacity_bytes=capacity_bytes,
                timeout_s=buffer_timeout_s,
                changed=self._changed,
                bell=bell,
            )
            for place, schema in enumerate(self._schemas)
        ]
        self._turns = deque(self._channels)
        self._is_last = False
        self._is_cancelled = False
        self._is_acknowledged = False
        self._error: HoldfastError | None = None
        """Why the stream is over, as this side or the other says."""
        self._listener = threading.Thread(
            target=self._listen, name=f"holdfast-grants-{sender}", daemon=True
        )
        self._writer = threading.Thread(
            target=self._run, name=f"holdfast-exchange-{sender}", daemon=True
        )
        self._writer.start()

    def channel(self, edge: str) -> OutgoingChannel:
        """The channel of an edge."""
        return self._channels[self._opening.edges.index(edge)]

    def end(self, timeout_s: float) -> bool:
        """End the stream. True if it ended within the timeout, in success or by an error."""
        with self._changed:
            self._is_last = True
            self._changed.notify()
        self._writer.join(timeout_s)
        is_over = self._is_acknowledged or self._error is not None
        return is_over and not self._writer.is_alive()

    def finish(self, timeout_s: float) -> None:
        """Return when the receiver has all elements in its channels. Nothing may be sent after it.

        Raises:
            Unavailable: not all was received within that time.
            HoldfastError: why the stream failed.
        """
        if not self.end(timeout_s):
            waiting = sum(channel.size_bytes for channel in self._channels)
            raise Unavailable(
                "elements were sent and not received in time",
                where=self._where,
                found=f"{waiting} bytes on the way after {timeout_s} s",
            )
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop at once. Elements that were not received are lost; after `finish` there are none."""
        with self._changed:
            self._is_cancelled = True
            self._give_up()
            stream = self._stream
        if stream is not None:
            stream.cancel()
        self._writer.join(_CLOSE_TIMEOUT_S)  # gRPC cannot be told to stop connecting
        self._connection.close()

    def _give_up(self) -> None:
        for channel in self._channels:
            channel.give_up()
        self._changed.notify_all()

    def _run(self) -> None:
        try:
            stream = self._open()
            while (taken := self._next(stream)) is not None:
                channel, elements, size = taken
                with raising_house_errors(self._where):
                    frame = channel.frame(elements)
                stream.send_frame(*frame)
                with self._changed:
                    was_full = channel.sent(size) if channel.queue is not None else False
                if was_full:
                    channel.bell.ring()
            self._finish(stream)
        except Exception as error:  # noqa: BLE001 - else the stream ends in silence
            self._fail(self._told(error))

    def _told(self, error: Exception) -> HoldfastError:
        """The error of one of the threads: if that died of it, the stream would end in silence."""
        if isinstance(error, HoldfastError):
            return error
        found = "".join(traceback.format_exception(error))
        return Invalid("elements could not be sent", where=self._where, found=found)

    def _open(self) -> Stream:
        stream = self._connection.open(self._opening, FRAMES, where=self._where)
        with self._changed:
            self._stream = stream
        self._listener.start()
        for frame in starmap(schema_frame, enumerate(self._schemas)):
            stream.send_frame(*frame)
        return stream

    def _next(self, stream: Stream) -> tuple[OutgoingChannel, list[Element], int] | None:
        """What is to be sent next, as soon as there is something; None after the last."""
        while True:
            with self._changed:
                now_s = self._clock.monotonic_s()
                channel, ready_s = self._first_ready(now_s)
                if channel is None and not self._is_over and ready_s > now_s:
                    self._changed.wait(min(ready_s - now_s, PULSE_S))
                    now_s = self._clock.monotonic_s()
                    channel, ready_s = self._first_ready(now_s)
                if self._is_cancelled:
                    raise Closed("the sender was closed", where=self._where)
                if self._error is not None:
                    raise self._error
                if channel is not None:
                    return channel, *channel.begin(now_s)
                if self._is_over:
                    return None
            if ready_s == math.inf:
                stream.pulse()

    @property
    def _is_over(self) -> bool:
        has_failed = self._is_cancelled or self._error is not None
        return has_failed or (self._is_last and not any(each.queue for each in self._channels))

    def _first_ready(self, now_s: float) -> tuple[OutgoingChannel | None, float]:
        """The next channel in turns that may send; if there is none, when one may."""
        first_s = math.inf
        for _ in self._channels:
            channel = self._turns[0]
            self._turns.rotate(-1)
            ready_s = channel.ready_s()
            if ready_s <= now_s:
                return channel, ready_s
            first_s = min(first_s, ready_s)
        return None, first_s

    def _finish(self, stream: Stream) -> None:
        stream.end()
        self._listener.join()
        if self._error is not None:
            raise self._error
        stream.close()
        if not self._is_acknowledged:
            raise Unavailable("rows were sent and not acknowledged", where=self._where)

    def _listen(self) -> None:
        """Receive what the other side grants, until it ends its part of the stream."""
        assert self._stream is not None
        try:
            while (answer := self._stream.receive()) is not None:
                self._is_acknowledged = answer == ACKNOWLEDGED
                grants = decode_grants(answer, len(self._channels))
                with self._changed:
                    for edge, limit_bytes, capacity_bytes in grants:
                        self._channels[edge].granted(limit_bytes, capacity_bytes)
                    self._changed.notify()
        except Exception as error:  # noqa: BLE001 - else the stream ends in silence
            with self._changed:
                self._error = self._error or self._told(error)
                self._changed.notify()

    def _fail(self, error: HoldfastError) -> None:
        # Which of the two threads meets a broken stream first is chance. Only what the receiving
        # one gets says why the other side has broken it.
        if isinstance(error, Unavailable) and self._listener.is_alive():
            self._listener.join(_REASON_TIMEOUT_S)
        with self._changed:
            self._error = error = self._error or error
            is_cancelled = self._is_cancelled
            self._give_up()
        try:
            if self._stream is not None:
                self._stream.cancel()
        finally:
            for channel in self._channels:
                channel.bell.ring()
            if not is_cancelled:
                self._on_error(error)
