"""Who may call: nothing that a caller sends is looked at before its credentials were.

They travel in the headers of each call, so a server of gRPC has them before any message, and a
stranger cannot make it read a stream.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyarrow import flight

from holdfast.runtime.network.messages import Credentials
from holdfast.runtime.network.wire_errors import to_wire
from holdfast.storage import Fenced, Invalid

__all__ = ["Admission", "Guest", "headers_of"]

_TOKEN = "holdfast-token"
_ATTEMPT = "holdfast-attempt"


def headers_of(credentials: Credentials) -> list[tuple[bytes, bytes]]:
    """The headers that carry the credentials."""
    return [
        (_TOKEN.encode(), credentials.token.encode()),
        (_ATTEMPT.encode(), str(credentials.attempt).encode()),
    ]


class Guest(flight.ServerMiddleware):  # type: ignore[misc]
    """A call that was let in: by `context.get_middleware(Guest.KEY)`."""

    KEY = "holdfast"

    def __init__(self, attempt: int) -> None:
        super().__init__()
        self.attempt = attempt


class Admission(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who knows the token and is of the attempt that is served now.

    `serves` answers that attempt; None when there is none.
    """

    def __init__(self, token: str, serves: Callable[[], int | None]) -> None:
        super().__init__()
        self._token = token.encode()
        self._serves = serves

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> Guest:
        """Let the call in, or refuse it.

        Raises:
            FlightUnauthenticatedError: with `Invalid`, the token is missing or wrong.
            FlightServerError: with `Fenced`, the call is of another attempt.
        """
        if not hmac.compare_digest(_header(headers, _TOKEN), self._token):
            stranger = Invalid(
                "the token is not that of this job",
                fix="Only the job's own driver, slots and tasks may call",
            )
            raise to_wire(stranger, is_stranger=True)
        attempt, serves = _header(headers, _ATTEMPT).decode(errors="replace"), self._serves()
        if serves is None or attempt != str(serves):
            raise to_wire(
                Fenced(
                    "the call is of another attempt of the job",
                    expected=f"attempt {serves}" if serves is not None else "none, at the moment",
                    found=f"attempt {attempt}",
                    fix="Stop; what the other attempt does is void",
                )
            )
        return Guest(serves)


def _header(headers: Mapping[str, Sequence[str | bytes]], name: str) -> bytes:
    values = headers.get(name) or [b""]
    return values[0].encode() if isinstance(values[0], str) else values[0]
