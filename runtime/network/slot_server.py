"""The Flight server of one slot: pushed rows, rows of other slots, commands of the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeAlias

import msgspec
import pyarrow as pa
from pyarrow import flight

from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.network.authentication import Authentication
from holdfast.runtime.network.credentials import Credentials
from holdfast.runtime.network.element_stream import (
    ACKNOWLEDGED,
    END,
    PULSE,
    check_schema,
    read_element,
)
from holdfast.runtime.network.server import Opening, Server
from holdfast.runtime.protocol.messages import (
    Admit,
    BeginSavepoint,
    CancelAttempt,
    CheckpointAborted,
    CheckpointCompleted,
    Exchange,
    Finish,
    MarkSource,
    Push,
    PushKey,
    RoomFor,
    Start,
    ToSlot,
    Watch,
)
from holdfast.runtime.task.channel import Channel, Closed
from holdfast.runtime.task.staging import Staging
from holdfast.storage import HoldfastError, Invalid, Taken, Unavailable

__all__ = ["SlotCommand", "SlotServer", "SourceCommand", "obey_source"]

SlotCommand: TypeAlias = (
    Start | BeginSavepoint | CheckpointCompleted | CheckpointAborted | Finish | CancelAttempt
)
"""Commands for the slot itself; those of sources go to its staging."""

SourceCommand: TypeAlias = Admit | MarkSource | RoomFor


def obey_source(staging: Staging, command: SourceCommand) -> bool:
    """Apply a command of a source to the slot's staging, and return its answer."""
    match command:
        case Admit() as admit:
            return staging.admit(
                admit.source,
                admit.sequence,
                batch=admit.batch,
                winners=admit.winners,
                watermark=admit.watermark,
            )
        case MarkSource(source=source, sequence=sequence, mark=mark):
            return staging.mark(source, sequence, mark)
        case RoomFor(source=source, limit_bytes=limit_bytes, timeout_s=timeout_s):
            return staging.await_room(source, limit_bytes, timeout_s)


_STREAM_ERRORS = (flight.FlightError, pa.ArrowException, OSError)
_messages: msgspec.msgpack.Decoder[ToSlot] = msgspec.msgpack.Decoder(ToSlot)


class SlotServer:
    """Receives everything that is sent to one slot, from construction to `close`.

    Pushed rows go to `staging`, rows of other slots to `channels`, by edge and upstream slot: each
    has one stream for the whole attempt, whose sender waits while the channel is full. `handle` is
    called for commands of the slot itself, `on_lost` once for a stream between slots that broke or
    was refused. The server's threads call both, also several at once.
    """

    def __init__(
        self,
        listening: Listening,
        credentials: Credentials,
        *,
        staging: Staging,
        channels: Mapping[tuple[str, int], Channel],
        handle: Callable[[SlotCommand], bool],
        on_lost: Callable[[str, int, HoldfastError], None],
    ) -> None:
        self._staging = staging
        self._channels = dict(channels)
        self._handle = handle
        self._on_lost = on_lost
        self._ended = threading.Condition(threading.Lock())
        self._claimed: set[tuple[str, int]] = set()
        self._open: set[tuple[str, int]] = set()
        self._is_closing = False
        self._has_closed = threading.Event()
        authentication = Authentication(credentials.token, lambda: credentials.attempt)
        self._server = Server(
            listening,
            credentials.protection,
            authentication=authentication,
            answer=self._answer,
            receive=self._receive,
        )

    @property
    def address(self) -> str:
        """Where clients find this slot."""
        return self._server.address

    def await_ends(self, timeout_s: float) -> bool:
        """Wait until no stream between slots is open any more; False if some still are.

        A finished slot waits for this before it closes: other slots may send until they have
        finished, too, and would take a closed channel for a failure.
        """
        with self._ended:
            return self._ended.wait_for(lambda: not self._open, timeout_s)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Close staging and channels, and with them all streams; then stop listening.

        False if calls still run after the timeout. Lost streams are not reported any more.
        """
        self._is_closing = True
        self._has_closed.set()
        self._staging.close()
        for channel in self._channels.values():
            channel.close()
        return self._server.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _answer(self, attempt: int, data: bytes) -> bool:
        message = _messages.decode(data)
        if isinstance(message, SourceCommand):
            return obey_source(self._staging, message)
        return self._handle(message)

    def _receive(self, opening: Opening, reader: Any, writer: Any) -> None:
        match opening:
            case Push(key):
                self._receive_push(key, reader)
            case Exchange(edge=edge, sender=sender):
                self._receive_exchange(edge, sender, reader)
            case Watch():
                writer.write_metadata(PULSE)  # it is here
                self._has_closed.wait()
        writer.write_metadata(ACKNOWLEDGED)

    def _receive_push(self, key: PushKey, reader: Any) -> None:
        channel = self._staging.channel(key.source, key.edge)
        push = self._staging.open(key)
        try:
            self._check_schema(channel, reader, str(key))
            for chunk in self._chunks(reader, str(key)):
                if chunk.data is not None:
                    self._staging.add(push, chunk.data)
            self._staging.complete(push)
        finally:
            self._staging.abandon(push)

    def _receive_exchange(self, edge: str, sender: int, reader: Any) -> None:
        where = f"edge {edge!r} from slot {sender}"
        channel = self._claim(edge, sender, where)
        try:
            self._check_schema(channel, reader, where)
            for chunk in self._chunks(reader, where):
                element = read_element(chunk)
                if element is not None:
                    channel.put(element)
        except HoldfastError as error:
            if not self._is_closing and not isinstance(error, Closed):
                self._on_lost(edge, sender, error)
            raise
        finally:
            with self._ended:
                self._open.discard((edge, sender))
                self._ended.notify_all()

    def _check_schema(self, channel: Channel, reader: Any, where: str) -> None:
        try:
            schema = reader.schema
        except _STREAM_ERRORS as error:
            raise _broken(where, str(error)) from error
        check_schema(channel.schema, schema, where=where)

    def _claim(self, edge: str, sender: int, where: str) -> Channel:
        with self._ended:
            channel = self._channels.get((edge, sender))
            if channel is None:
                raise Invalid("this slot has no such channel", where=where)
            if (edge, sender) in self._claimed:
                raise Taken("the channel has had its stream", where=where)
            self._claimed.add((edge, sender))
            self._open.add((edge, sender))
        return channel

    def _chunks(self, reader: Any, where: str) -> Iterator[Any]:
        """The chunks of a stream, up to its end frame.

        Raises:
            Closed: the server closes.
            Unavailable: the stream broke off.
        """
        has_ended = False
        while not self._is_closing:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                break
            except _STREAM_ERRORS as error:
                raise _broken(where, str(error)) from error
            has_ended = chunk.app_metadata is not None and bytes(chunk.app_metadata) == END
            yield chunk
        if self._is_closing:
            raise Closed("the slot is done with this attempt", where=where, fix="Stop")
        if not has_ended:
            raise _broken(where, "no end of the stream")


def _broken(where: str, found: str) -> Unavailable:
    return Unavailable(
        "a stream of rows broke off",
        where=where,
        found=found,
        fix="Its sender was stopped or killed, or the network is down",
    )
