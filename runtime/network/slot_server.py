"""The Flight server of one slot: pushed rows, rows of other slots, commands of the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

import msgspec

from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.network.authentication import Authentication
from holdfast.runtime.network.credentials import Credentials
from holdfast.runtime.network.element_stream import (
    ACKNOWLEDGED,
    PULSE,
    PULSE_S,
    check_schema,
    piece_bytes,
    pieces,
)
from holdfast.runtime.network.exchange_receiver import (
    STREAM_ERRORS,
    ExchangeReceiver,
    broken,
    chunks,
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
from holdfast.runtime.task.channel import Channel
from holdfast.runtime.task.staging import Staging
from holdfast.storage import HoldfastError

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


_messages: msgspec.msgpack.Decoder[ToSlot] = msgspec.msgpack.Decoder(ToSlot)


class SlotServer:
    """Receives everything that is sent to one slot, from construction to `close`.

    Pushed rows go to `staging`, rows of other slots to `channels`, by edge and upstream slot: each
    slot has one stream for the whole attempt, and sends what the channels have room for. `handle`
    is called for commands of the slot itself, `on_lost` once for a stream between slots that broke
    or was refused. The server's threads call both, also several at once.
    """

    def __init__(
        self,
        listening: Listening,
        credentials: Credentials,
        *,
        staging: Staging,
        channels: Mapping[tuple[str, int], Channel],
        handle: Callable[[SlotCommand], bool],
        on_lost: Callable[[int, HoldfastError], None],
    ) -> None:
        self._staging = staging
        self._exchange = ExchangeReceiver(channels, on_lost)
        self._handle = handle
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
        """As `ExchangeReceiver.await_ends`."""
        return self._exchange.await_ends(timeout_s)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Close staging and channels, and with them all streams; then stop listening.

        False if calls still run after the timeout. Lost streams are not reported any more.
        """
        self._is_closing = True
        self._has_closed.set()
        self._staging.close()
        self._exchange.close()
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
                writer.write_metadata(ACKNOWLEDGED)
            case Exchange():
                self._exchange.receive(opening, reader, writer)
            case Watch():
                writer.write_metadata(PULSE)  # it is here
                while not self._has_closed.wait(PULSE_S):
                    writer.write_metadata(PULSE)  # fails, and so ends this, without a listener
                writer.write_metadata(ACKNOWLEDGED)

    def _receive_push(self, key: PushKey, reader: Any) -> None:
        channel = self._staging.channel(key.source, key.edge)
        most_bytes = piece_bytes(channel.capacity_bytes)
        push = self._staging.open(key)
        try:
            self._check_schema(channel, reader, str(key))
            for chunk in chunks(reader, str(key), lambda: self._is_closing):
                if chunk.data is not None:
                    for piece in pieces(chunk.data, most_bytes):
                        self._staging.add(push, piece)
            self._staging.complete(push)
        finally:
            self._staging.abandon(push)

    def _check_schema(self, channel: Channel, reader: Any, where: str) -> None:
        try:
            schema = reader.schema
        except STREAM_ERRORS as error:
            raise broken(where, str(error)) from error
        check_schema(channel.schema, schema, where=where)
