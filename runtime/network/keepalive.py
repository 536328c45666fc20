"""Keeps streams of which nothing may come for long alive, and noticed."""

from __future__ import annotations

import threading

from holdfast.runtime.network.connection import Stream
from holdfast.runtime.network.element_stream import PULSE_S
from holdfast.storage import HoldfastError

__all__ = ["Pulses"]


class Pulses:
    """A thread that sends a pulse by each of its streams, now and then. Safe from any thread."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, stream: Stream) -> None:
        """Begin to send pulses by the stream."""
        with self._lock:
            self._streams.add(stream)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-pulses", daemon=True
                )
                self._thread.start()

    def remove(self, stream: Stream) -> None:
        """Send no more by the stream."""
        with self._lock:
            self._streams.discard(stream)

    def close(self) -> None:
        """Send no more at all; streams that were not removed are broken off."""
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
                    self.remove(stream)  # its own thread will find out what has become of it
