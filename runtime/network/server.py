"""A server of Flight that is closed in bounded time: what the slot's and the driver's share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from holdfast.runtime.api.addresses import Listening, in_url
from holdfast.runtime.network.authentication import AuthenticatedCall, Authentication
from holdfast.runtime.network.credentials import Protection
from holdfast.runtime.network.flight_errors import raising_wire_errors
from holdfast.runtime.protocol.messages import Exchange, Push, Watch
from holdfast.storage import Unavailable

__all__ = ["ACTION", "Opening", "Server"]

ACTION = "tell"
"""The only Flight action: its body is a message."""

Opening = Push | Exchange | Watch
_openings: msgspec.msgpack.Decoder[Opening] = msgspec.msgpack.Decoder(Opening)


class _Flight(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(
        self,
        location: str,
        protection: Protection,
        authentication: Authentication,
        answer: _Answer,
        receive: _Receive | None,
    ) -> None:
        self._answer = answer
        self._receive = receive
        super().__init__(
            location,
            middleware={AuthenticatedCall.KEY: authentication},
            **protection.server_arguments(),
        )

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        call: AuthenticatedCall = context.get_middleware(AuthenticatedCall.KEY)
        with raising_wire_errors("a message"):
            answer = self._answer(call.attempt, action.body.to_pybytes())
        return iter([msgspec.msgpack.encode(answer)])

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with raising_wire_errors("a stream"):
            if self._receive is None:
                raise Unavailable("streams of rows are for slots, this is the driver")
            self._receive(_openings.decode(descriptor.command), reader, writer)


_Answer = Callable[[int, bytes], bool]
"""Answers a message: called with its attempt and its bytes."""

_Receive = Callable[[Opening, Any, Any], None]
"""Receives a stream to its end: called with its reader and its writer, in a thread of its own."""


class Server:
    """Listens from construction on, at one interface of this host. Each call has its own thread."""

    def __init__(
        self,
        listening: Listening,
        protection: Protection,
        *,
        authentication: Authentication,
        answer: _Answer,
        receive: _Receive | None = None,
    ) -> None:
        """Raises `Unavailable` if no port is free there, `Invalid` if it would not be protected."""
        for host in (listening.interface, listening.host):
            protection.check_host(host, where="a server of the job")
        self._flight = self._listen_at_free_port(
            listening,
            protection.scheme,
            lambda location: _Flight(location, protection, authentication, answer, receive),
        )
        self.address = f"{protection.scheme}://{in_url(listening.host)}:{self._flight.port}"
        """Where clients find this server."""
        authentication.serve(self.address)

    @staticmethod
    def _listen_at_free_port(
        listening: Listening, scheme: str, open_at: Callable[[str], _Flight]
    ) -> _Flight:
        """Open the first free port. Flight never shares one with another process."""
        refusal: Exception | None = None
        for port in listening.ports:
            try:
                return open_at(f"{scheme}://{in_url(listening.interface)}:{port}")
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                refusal = error
        raise Unavailable(
            "no port can be opened",
            where=f"interface {listening.interface!r}, port {listening.ports}",
            found=str(refusal),
            fix="Name an interface of this host (driver.bindAddress, slot.bindAddress), and ports "
            "that are free (driver.port, slot.port)",
        ) from refusal

    def close(self, timeout_s: float) -> bool:
        """Refuse new calls, and wait for running ones; False if some still run after the timeout.

        Flight cannot end a running call. Streams end because their receivers refuse to go on,
        which they do at the latest at the sender's next pulse.
        """
        closing = threading.Thread(
            target=self._flight.shutdown, name="holdfast-server-close", daemon=True
        )
        closing.start()
        closing.join(timeout_s)
        return not closing.is_alive()
