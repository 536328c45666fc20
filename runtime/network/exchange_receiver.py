"""Receives the streams of other slots, and grants room in its channels to their senders.

A sender sends within what was granted, so elements go into their channels without a wait, and a
channel that is full holds up no other one of its stream. What the slot's thread takes from a
channel is granted anew, by a thread of its own: the slot's must not wait for the network.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import flight

from holdfast.runtime.network.element_stream import ACKNOWLEDGED, END
from holdfast.runtime.network.exchange_frames import FrameReader, Grant, encode_grants
from holdfast.runtime.protocol.messages import Exchange
from holdfast.runtime.task.channel import Channel, Closed
from holdfast.storage import HoldfastError, Invalid, Taken, Unavailable

__all__ = ["STREAM_ERRORS", "ExchangeReceiver", "broken", "chunks"]

STREAM_ERRORS = (flight.FlightError, pa.ArrowException, OSError)

# Room is granted when so great a part of the channel is free that was not before: each grant is a
# message. Senders know it, too.
_PART = 4


class _Incoming:
    """A channel as its sender sees it: bytes since the stream began."""

    def __init__(self, place: int, channel: Channel) -> None:
        self.channel = channel
        self._place = place
        self._received_bytes = 0
        self._granted_bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether there is enough room to be granted."""
        return (self._limit() - self._granted_bytes) * _PART >= self.channel.capacity_bytes

    def received(self, size_bytes: int) -> None:
        """An element is in the channel. Afterwards, so that no room is counted twice."""
        self._received_bytes += size_bytes

    def grant(self) -> Grant:
        """All room that there is. By one thread at a time."""
        self._granted_bytes = self._limit()
        return Grant(self._place, self._granted_bytes, self.channel.capacity_bytes)

    def _limit(self) -> int:
        free = self.channel.capacity_bytes - self.channel.size_bytes
        return max(self._granted_bytes, self._received_bytes + free)


class _Peer:
    """The stream of one sender."""

    def __init__(self, sender: int, incoming: list[_Incoming], writer: Any) -> None:
        self.sender = sender
        self.incoming = incoming
        self._writer = writer
        self._lock = threading.Lock()
        self._is_over = False

    def grant(self, *, is_first: bool = False) -> None:
        """Grant what is due; nothing when the stream is over."""
        with self._lock:
            grants = [each.grant() for each in self.incoming if is_first or each.is_due]
            if grants and not self._is_over:
                with suppress(*STREAM_ERRORS):  # the thread that reads gets the error, too
                    self._writer.write_metadata(encode_grants(grants))

    def end(self) -> None:
        """Grant no more: the writer may not be used after the stream."""
        with self._lock:
            self._is_over = True


class ExchangeReceiver:
    """All streams that come from other slots, one from each.

    `channels` are by edge and upstream slot. `on_lost` is called once for a stream that broke or
    was refused, by the thread that received it.
    """

    def __init__(
        self,
        channels: Mapping[tuple[str, int], Channel],
        on_lost: Callable[[int, HoldfastError], None],
    ) -> None:
        self._channels = dict(channels)
        self._on_lost = on_lost
        self._changed = threading.Condition(threading.Lock())
        self._claimed: set[int] = set()
        self._open: dict[int, _Peer] = {}
        self._due: set[int] = set()
        self._granting: threading.Thread | None = None
        self._is_closing = False

    def await_ends(self, timeout_s: float) -> bool:
        """Wait until no stream is open any more; False if some still are.

        A finished slot waits for this before it closes: other slots may send until they have
        finished, too, and would take a closed channel for a failure.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout_s)

    def close(self) -> None:
        """Close the channels, and with them all streams. Lost ones are not reported any more."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for channel in self._channels.values():
            channel.close()

    def receive(self, opening: Exchange, reader: Any, writer: Any) -> None:
        """Receive a stream to its end, and acknowledge it.

        Raises:
            Closed: the slot is done with this attempt.
            HoldfastError: the stream was refused, or broke off.
        """
        where = f"the stream from slot {opening.sender}"
        peer = self._claim(opening, writer, where)
        try:
            peer.grant(is_first=True)
            schemas = [each.channel.schema for each in peer.incoming]
            frames = FrameReader(opening.edges, schemas)
            for chunk in chunks(reader, where, lambda: self._is_closing):
                received = frames.read(chunk)
                if received is not None:
                    edge, element, size_bytes = received
                    incoming = peer.incoming[edge]
                    incoming.channel.offer(element)
                    incoming.received(size_bytes)
                    self._consider(peer, incoming)  # it may be taken by now
        except Exception as error:
            if not self._is_closing and not isinstance(error, Closed):
                self._on_lost(opening.sender, _told(error, where))
            raise
        finally:
            peer.end()
            with self._changed:
                del self._open[opening.sender]
                self._changed.notify_all()
        writer.write_metadata(ACKNOWLEDGED)

    def _claim(self, opening: Exchange, writer: Any, where: str) -> _Peer:
        sender = opening.sender
        with self._changed:
            unknown = [edge for edge in opening.edges if (edge, sender) not in self._channels]
            if unknown:
                error = Invalid(
                    "this slot has no such channel",
                    where=where,
                    expected=_listed(edge for edge, slot in self._channels if slot == sender),
                    found=_listed(unknown),
                )
                raise error
            if sender in self._claimed:
                raise Taken("the slot has had its stream", where=where)
            self._claimed.add(sender)
            incoming = [
                _Incoming(place, self._channels[edge, sender])
                for place, edge in enumerate(opening.edges)
            ]
            peer = self._open[sender] = _Peer(sender, incoming, writer)
            if self._granting is None:
                self._granting = threading.Thread(
                    target=self._grant, name="holdfast-granting", daemon=True
                )
                self._granting.start()
        for each in incoming:
            each.channel.watch(partial(self._consider, peer, each))
        return peer

    def _consider(self, peer: _Peer, incoming: _Incoming) -> None:
        """The channel may have room to grant. Also called by the slot's thread, for each take."""
        if incoming.is_due and peer.sender not in self._due:
            with self._changed:
                self._due.add(peer.sender)
                self._changed.notify_all()

    def _grant(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._is_closing)
                if self._is_closing:
                    return
                peers = [self._open[sender] for sender in self._due if sender in self._open]
                self._due.clear()
            for peer in peers:
                try:
                    peer.grant()
                except Exception as error:  # noqa: BLE001 - else its sender waits for ever
                    self._on_lost(peer.sender, _told(error, "grants of room"))


def chunks(reader: Any, where: str, is_closing: Callable[[], bool]) -> Iterator[Any]:
    """The chunks of a stream, up to its end frame.

    Raises:
        Closed: the server closes.
        Unavailable: the stream broke off.
    """
    has_ended = False
    while not is_closing():
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            break
        except STREAM_ERRORS as error:
            raise broken(where, str(error)) from error
        has_ended = chunk.app_metadata is not None and bytes(chunk.app_metadata) == END
        yield chunk
    if is_closing():
        raise Closed("the slot is done with this attempt", where=where, fix="Stop")
    if not has_ended:
        raise broken(where, "no end of the stream")


def broken(where: str, found: str) -> Unavailable:
    """The error for a stream that ended without saying so."""
    return Unavailable(
        "a stream of rows broke off",
        where=where,
        found=found,
        fix="Its sender was stopped or killed, or the network is down",
    )


def _told(error: Exception, where: str) -> HoldfastError:
    if isinstance(error, HoldfastError):
        return error
    found = "".join(traceback.format_exception(error))
    return Invalid("elements could not be received", where=where, found=found)


def _listed(edges: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(edges))) or "none"
