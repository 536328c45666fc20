"""Clients: of the driver, for slots; of a slot, for the driver and for tasks that push rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Self

import pyarrow as pa

from holdfast.runtime.network.connection import Connection, Stream
from holdfast.runtime.network.credentials import Credentials
from holdfast.runtime.network.element_stream import PULSE_S
from holdfast.runtime.protocol.messages import Push, PushKey, Watch
from holdfast.storage import Clock, HoldfastError, Unavailable

__all__ = ["DriverClient", "Pulses", "PushStream", "SlotClient"]

# After a break, and once more: gRPC refuses by itself for a tenth of a second after a failure.
_REOPENED_AFTER_S = (0.02, 0.15)
_WATCH_END_S = 5.0
_NO_COLUMNS = pa.schema([])


class PushStream:
    """The rows of one push on their way. Used by one thread."""

    def __init__(self, stream: Stream, pulses: Pulses) -> None:
        self._stream = stream
        self._pulses = pulses
        pulses.add(stream)

    def add(self, batch: pa.RecordBatch) -> None:
        """Send rows; waits while the slot is slower than the sender.

        Raises:
            Superseded: another attempt of the split was admitted. Stop; the job is in order.
            Fenced: the attempt of the job is over.
            Unavailable: the slot cannot be reached.
            Invalid: the rows do not have the schema of the push, or the push not that of its edge.
        """
        self._stream.send(batch)

    def finish(self) -> None:
        """Return when the slot has staged all rows.

        Raises:
            HoldfastError: as `add` does; the rows are not staged.
        """
        try:
            self._stream.finish()
        finally:
            self._pulses.remove(self._stream)

    def abandon(self) -> None:
        """Abort the push: the slot forgets it. Does nothing after `finish`."""
        self._pulses.remove(self._stream)
        self._stream.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """`abandon`, so that only a call of `finish` makes a push count."""
        self.abandon()


class DriverClient(Connection):
    """The slot's client of the driver."""

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        *,
        timeout_s: float = 30.0,
        retry_for_s: float = 15.0,
        clock: Clock | None = None,
    ) -> None:
        # The driver may be busy; but one that stays away is gone, and the slot has to stop.
        super().__init__(
            address, credentials, timeout_s=timeout_s, retry_for_s=retry_for_s, clock=clock
        )


class SlotClient(Connection):
    """The client of one slot. Each push belongs to one thread.

    Pushes are not retried: the task fails, and Spark runs it again.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        *,
        timeout_s: float = 30.0,
        retry_for_s: float = 3.0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            address, credentials, timeout_s=timeout_s, retry_for_s=retry_for_s, clock=clock
        )
        self._pulses = Pulses()
        self._watching: threading.Thread | None = None
        self._watched: Stream | None = None
        self._is_closing = threading.Event()

    def watch(self, on_lost: Callable[[HoldfastError], None]) -> None:
        """Have a thread call `on_lost` as soon as the slot's process is gone. To be called once.

        That is so when the connection breaks and cannot be opened again. A slot that is slow or
        stands still keeps its connection. Calls that are under way then fail without more tries.
        """
        self._watching = threading.Thread(
            target=self._watch, args=(on_lost,), name="holdfast-watch", daemon=True
        )
        self._watching.start()

    def push(self, key: PushKey, schema: pa.Schema) -> PushStream:
        """Begin a push; a refusal may be raised only when rows are added, or at the end.

        Raises:
            HoldfastError: as `PushStream.add` does.
        """
        where = f"{key} to {self._address}"
        return PushStream(self.open(Push(key), schema, where=where), self._pulses)

    def push_all(self, key: PushKey, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Push these rows; returns when the slot has staged all.

        Raises:
            HoldfastError: as `PushStream.add` does.
        """
        with self.push(key, schema) as push:
            for batch in batches:
                push.add(batch)
            push.finish()

    def close(self) -> None:
        """Close the connection. Unfinished pushes are forgotten by the slot."""
        self._pulses.close()
        self._is_closing.set()
        if self._watched is not None:
            self._watched.cancel()
        if self._watching is not None:
            self._watching.join(_WATCH_END_S)
        super().close()

    def _watch(self, on_lost: Callable[[HoldfastError], None]) -> None:
        pauses_s = iter(_REOPENED_AFTER_S)

        def lives() -> None:
            nonlocal pauses_s
            pauses_s = iter(_REOPENED_AFTER_S)

        while not self._is_closing.is_set():
            try:
                self._watched = self.open(Watch(), _NO_COLUMNS, where=self._address)
                if self._is_closing.is_set():  # `close` has not seen it
                    self._watched.cancel()
                self._watched.await_end(lives)
                return
            except HoldfastError as error:
                if self._watched is not None:
                    self._watched.cancel()  # else Arrow complains on the terminal
                pause_s = next(pauses_s, None)
                if pause_s is None or not _may_be_back(error):
                    if not self._is_closing.is_set():
                        self._is_gone.set()
                        on_lost(error)
                    return
            self._is_closing.wait(pause_s)


def _may_be_back(error: HoldfastError) -> bool:
    """Whether a slot may still be there: its server listens until its process ends."""
    return isinstance(error, Unavailable) and "Connection refused" not in error.found


class Pulses:
    """A thread that keeps idle streams alive by pulses. Safe to use from any thread."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, stream: Stream) -> None:
        """Begin to send pulses on the stream."""
        with self._lock:
            self._streams.add(stream)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-pulses", daemon=True
                )
                self._thread.start()

    def remove(self, stream: Stream) -> None:
        """Send no more pulses on the stream."""
        with self._lock:
            self._streams.discard(stream)

    def close(self) -> None:
        """Stop, and abort the streams that were not removed."""
        self._closing.set()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(PULSE_S):
            with self._lock:
                streams = list(self._streams)
            for stream in streams:
                try:
                    stream.pulse()
                except HoldfastError:
                    self.remove(stream)  # the thread that writes to it gets the error, too
