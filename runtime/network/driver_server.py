"""The Flight server of the driver: receives what slots register, report and collect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import msgspec

from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.network.authentication import Authentication
from holdfast.runtime.network.credentials import LOOPBACK_ONLY, Protection
from holdfast.runtime.network.server import Server
from holdfast.runtime.protocol.messages import ToDriver
from holdfast.storage import Fenced

__all__ = ["DriverServer"]

_messages: msgspec.msgpack.Decoder[ToDriver] = msgspec.msgpack.Decoder(ToDriver)


class DriverServer:
    """Receives messages of slots, over all attempts of a job.

    It listens from construction on. Until `serve` names an attempt, all calls are refused as
    `Fenced`, as are calls of other attempts at any time. The server's threads call `handle`, also
    several at once.
    """

    def __init__(
        self, listening: Listening, token: str, protection: Protection = LOOPBACK_ONLY
    ) -> None:
        self._serving: tuple[int, Callable[[ToDriver], bool]] | None = None
        authentication = Authentication(token, self._attempt)
        self._server = Server(
            listening, protection, authentication=authentication, answer=self._answer
        )

    @property
    def address(self) -> str:
        """Where clients find the driver."""
        return self._server.address

    def serve(self, attempt: int, handle: Callable[[ToDriver], bool]) -> None:
        """Answer calls of this attempt, and of no other, by `handle`."""
        self._serving = (attempt, handle)

    def pause(self) -> None:
        """Answer no attempt any more. Calls that were accepted go on."""
        self._serving = None

    def close(self, timeout_s: float = 5.0) -> bool:
        """Stop listening; False if calls still run after the timeout."""
        self.pause()
        return self._server.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _attempt(self) -> int | None:
        serving = self._serving
        return None if serving is None else serving[0]

    def _answer(self, attempt: int, data: bytes) -> bool:
        message = _messages.decode(data)
        serving = self._serving
        if serving is None or serving[0] != attempt:
            raise Fenced("the attempt of the job is over", found=f"attempt {attempt}", fix="Stop")
        return serving[1](message)
