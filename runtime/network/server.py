"""A server of Flight that is closed in bounded time: what the slot's and the driver's share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyarrow import flight

from holdfast.runtime.network.admission import Admission, Guest
from holdfast.runtime.network.messages import Exchange, Push
from holdfast.runtime.network.wire_errors import raising_wire_errors
from holdfast.storage import Unavailable

__all__ = ["ACTION", "Opening", "Server", "Streams"]

ACTION = "tell"
"""The one action of Flight that is used: its body is a message."""

Opening = Push | Exchange
_openings: msgspec.msgpack.Decoder[Opening] = msgspec.msgpack.Decoder(Opening)


class Streams(Protocol):
    """Who takes in streams, each in a thread of its own."""

    def receive(self, opening: Opening, reader: Any, writer: Any) -> None:
        """Take in a stream to its end."""
        ...


class _Flight(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(
        self, location: str, admission: Admission, answer: _Answer, streams: Streams | None
    ) -> None:
        self._answer = answer
        self._streams = streams
        super().__init__(location, middleware={Guest.KEY: admission})

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        guest: Guest = context.get_middleware(Guest.KEY)
        with raising_wire_errors("a message"):
            answer = self._answer(guest.attempt, action.body.to_pybytes())
        return iter([msgspec.msgpack.encode(answer)])

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with raising_wire_errors("a stream"):
            if self._streams is None:
                raise Unavailable("streams of rows are for slots, this is the driver")
            self._streams.receive(_openings.decode(descriptor.command), reader, writer)


_Answer = Callable[[int, bytes], bool]
"""From the attempt that a message is of, and its bytes, to the answer."""


class Server:
    """Listens from construction on, at a free port of one interface of this host.

    `host` is the name or number of the interface; peers call it by the same. Each call is handled
    in a thread of its own.
    """

    def __init__(
        self,
        host: str,
        *,
        admission: Admission,
        answer: _Answer,
        streams: Streams | None = None,
    ) -> None:
        self._host = f"[{host}]" if ":" in host else host
        try:
            self._flight = _Flight(f"grpc://{self._host}:0", admission, answer, streams)
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise Unavailable(
                "no port can be opened",
                where=f"interface {host!r}",
                found=str(error),
                fix="Name an interface of this host",
            ) from error

    @property
    def address(self) -> str:
        """Where clients find this server."""
        return f"grpc://{self._host}:{self._flight.port}"

    def close(self, timeout_s: float) -> bool:
        """Refuse new calls, and wait for those that run; False if some still run after that time.

        Flight cannot end a call from here. Streams end since their receivers refuse to go on,
        which they can at each pulse of the sender.
        """
        closing = threading.Thread(
            target=self._flight.shutdown, name="holdfast-server-close", daemon=True
        )
        closing.start()
        closing.join(timeout_s)
        return not closing.is_alive()
