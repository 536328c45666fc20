"""The driver's ear: what slots register, acknowledge, report and collect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import msgspec

from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.network.admission import Admission
from holdfast.runtime.network.protection import LOOPBACK_ONLY, Protection
from holdfast.runtime.network.server import Server
from holdfast.runtime.protocol.messages import ToDriver
from holdfast.storage import Fenced

__all__ = ["DriverServer"]

_messages: msgspec.msgpack.Decoder[ToDriver] = msgspec.msgpack.Decoder(ToDriver)


class DriverServer:
    """Takes in what slots say to the driver of a job, over all of its attempts.

    It listens from construction on; until `serve` names an attempt, all are refused as `Fenced`,
    and so are always those of other attempts. `handle` is called in threads of the server, also
    several at once.
    """

    def __init__(
        self, listening: Listening, token: str, protection: Protection = LOOPBACK_ONLY
    ) -> None:
        self._serving: tuple[int, Callable[[ToDriver], bool]] | None = None
        admission = Admission(token, self._attempt)
        self._server = Server(listening, protection, admission=admission, answer=self._answer)

    @property
    def address(self) -> str:
        """Where clients find the driver."""
        return self._server.address

    def serve(self, attempt: int, handle: Callable[[ToDriver], bool]) -> None:
        """From now on answer this attempt, by `handle`, and no other."""
        self._serving = (attempt, handle)

    def pause(self) -> None:
        """From now on answer no attempt. Calls that have been let in go on."""
        self._serving = None

    def close(self, timeout_s: float = 5.0) -> bool:
        """Stop listening; False if calls still run after that time."""
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
