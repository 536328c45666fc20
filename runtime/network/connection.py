"""The client's side of Flight: credentials on every call, Holdfast's errors, timeouts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import msgspec
import pyarrow as pa
from pyarrow import flight

from holdfast.runtime.network.authentication import headers_of
from holdfast.runtime.network.credentials import Credentials
from holdfast.runtime.network.element_stream import ACKNOWLEDGED, END, PIECE_BYTES, PULSE, pieces
from holdfast.runtime.network.flight_errors import from_transport, from_wire, raising_house_errors
from holdfast.runtime.network.server import ACTION, Opening
from holdfast.runtime.protocol.messages import RoomFor, ToDriver, ToSlot
from holdfast.storage import Clock, SystemClock, Unavailable
from holdfast.storage.retries import Backoff

__all__ = ["Connection", "Stream"]

_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own: twice the throughput
    ("grpc.enable_http_proxy", 0),  # slots are spoken to directly, whatever the environment says
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_PAUSES = Backoff(first_s=0.05, longest_s=1.0)


class Stream:
    """A stream of rows to a slot. One thread writes; others may call `pulse` and `cancel`."""

    def __init__(self, writer: Any, reader: Any, *, where: str) -> None:
        self._writer = writer
        self._reader = reader
        self._where = where
        self._lock = threading.Lock()

    def pulse(self) -> None:
        """Send a sign of life, unless something is being sent.

        Raises:
            HoldfastError: the stream has failed.
        """
        if self._lock.acquire(blocking=False):
            try:
                with raising_house_errors(self._where):
                    self._writer.write_metadata(PULSE)
            finally:
                self._lock.release()

    def send(self, batch: pa.RecordBatch) -> None:
        """Send rows; returns when gRPC has accepted them, which a slow receiver delays.

        Raises:
            HoldfastError: what the other side raised, or why it cannot be reached.
        """
        with self._lock, raising_house_errors(self._where):
            for piece in pieces(batch, PIECE_BYTES):
                self._writer.write_batch(piece)

    def send_frame(self, head: bytes, data: pa.RecordBatch | None) -> None:
        """Send metadata, with data or alone. Returns and raises as `send`."""
        with self._lock, raising_house_errors(self._where):
            if data is None:
                self._writer.write_metadata(head)
            else:
                self._writer.write_with_metadata(data, head)

    def receive(self) -> bytes | None:
        """The next metadata of the other side; waits for it; None after the last.

        By one thread, which may be another than the one that sends.

        Raises:
            HoldfastError: as `send`.
        """
        with raising_house_errors(self._where):
            try:
                return bytes(self._reader.read_chunk().app_metadata or b"")
            except StopIteration:
                return None

    def end(self) -> None:
        """Say that all has been sent. The other side acknowledges that, and ends its part.

        Raises:
            HoldfastError: as `send`.
        """
        with self._lock, raising_house_errors(self._where):
            self._writer.write_metadata(END)
            self._writer.done_writing()

    def finish(self) -> None:
        """End the stream, and wait until the other side has received everything.

        Raises:
            HoldfastError: what the other side raised, or why it cannot be reached.
        """
        self.end()
        answer = self.receive()
        self.close()
        if answer != ACKNOWLEDGED:
            raise Unavailable("rows were sent and not acknowledged", where=self._where)

    def await_end(self, on_sign: Callable[[], object]) -> None:
        """Return when the other side ends the stream, which sends nothing but signs of life.

        Raises:
            HoldfastError: what the other side raised, or that the connection broke.
        """
        while self.receive() is not None:
            on_sign()

    def close(self) -> None:
        """Close the stream, whose other side has ended its part."""
        with self._lock, raising_house_errors(self._where):
            self._writer.close()

    def cancel(self) -> None:
        """Abort the stream, also while a thread waits in it. Harmless after `finish`."""
        self._reader.cancel()
        with self._lock, suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.close()  # otherwise Arrow does that later, and complains on the terminal


class Connection:
    """Calls to one server. Safe to use from any thread.

    A message is answered within `timeout_s`, and sent again for `retry_for_s` while the server
    cannot be reached.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        *,
        timeout_s: float,
        retry_for_s: float,
        clock: Clock | None = None,
    ) -> None:
        self._address = address
        self._headers = headers_of(credentials, address)
        self._timeout_s = timeout_s
        self._retry_for_s = retry_for_s
        self._clock = clock or SystemClock()
        self._is_gone = threading.Event()
        """Whether the other side has died: no call is tried again."""
        credentials.protection.check_address(address)
        with raising_house_errors(address):
            self._client = flight.FlightClient(
                address, generic_options=_OPTIONS, **credentials.protection.client_arguments()
            )

    def call(self, message: ToSlot | ToDriver) -> bool:
        """The answer to a message; the message's docstring says what it means.

        Raises:
            Unavailable: the server could not be reached, or did not answer in time. Whether the
                message took effect is not known; it may be sent again.
            Fenced: the attempt of the job is over.
            HoldfastError: what the server raised.
        """
        action = flight.Action(ACTION, msgspec.msgpack.encode(message))
        waits_s = message.timeout_s if isinstance(message, RoomFor) else 0.0
        deadline_s = self._clock.monotonic_s() + self._retry_for_s
        tries = 0
        while True:
            tries += 1
            pause_s = _PAUSES.pause_s(tries)
            try:
                return self._once(action, self._timeout_s + waits_s)
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                theirs = from_wire(error)
                raised = theirs or from_transport(error, where=self._address)
                may_retry = theirs is None and isinstance(raised, Unavailable)
                may_retry = may_retry and not self._is_gone.is_set()
                if not may_retry or self._clock.monotonic_s() + pause_s > deadline_s:
                    raise raised from error
            self._clock.wait_s(self._is_gone, pause_s)

    def open(self, opening: Opening, schema: pa.Schema, *, where: str) -> Stream:
        """Begin a stream of rows; a refusal may be raised only by later calls.

        Raises:
            HoldfastError: what the other side raised, or why it cannot be reached.
        """
        descriptor = flight.FlightDescriptor.for_command(msgspec.msgpack.encode(opening))
        with raising_house_errors(where):
            options = flight.FlightCallOptions(headers=self._headers)
            writer, reader = self._client.do_exchange(descriptor, options)
            writer.begin(schema)
        return Stream(writer, reader, where=where)

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _once(self, action: Any, timeout_s: float) -> bool:
        options = flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)
        (result,) = self._client.do_action(action, options)
        answer: bool = msgspec.msgpack.decode(result.body.to_pybytes(), type=bool)
        return answer
