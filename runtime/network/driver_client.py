"""The slot's client of the driver."""

from __future__ import annotations

from typing import Self

from holdfast.runtime.network.connection import Connection
from holdfast.runtime.network.credentials import Credentials
from holdfast.runtime.protocol.messages import Collect, ToDriver
from holdfast.storage import Clock

__all__ = ["DriverClient"]


class DriverClient:
    """Sends messages, and parts of collecting sinks, to the driver. Safe to use from any thread.

    A message is sent again for `retry_for_s` while the driver cannot be reached: it may be busy,
    but a driver that stays away is gone, and the slot has to stop.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        *,
        timeout_s: float = 30.0,
        retry_for_s: float = 15.0,
        clock: Clock | None = None,
    ) -> None:
        self._connection = Connection(
            address, credentials, timeout_s=timeout_s, retry_for_s=retry_for_s, clock=clock
        )

    def call(self, message: ToDriver) -> bool:
        """The driver's answer to a message; the message's docstring says what it means.

        Raises:
            Unavailable: the driver could not be reached, or did not answer in time. Whether the
                message took effect is not known; it may be sent again.
            Fenced: the attempt of the job is over.
            HoldfastError: what the driver raised.
        """
        return self._connection.call(message)

    def collect(self, uid: str, part: str, rows: bytes) -> None:
        """Send one part of a collecting sink; see `Collector`."""
        self.call(Collect(uid=uid, part=part, rows=rows))

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
