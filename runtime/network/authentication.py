"""Authenticates calls: nothing that a caller sends is read before its credentials are checked.

Credentials are in the headers of each call, so a gRPC server has them before any message, and a
stranger cannot make it read a stream. The job's token itself is never sent: a caller proves that it
knows the token, to one server and for one attempt. So a process that listens at an address which a
server of the job had before learns nothing that another server would accept.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyarrow import flight

from holdfast.runtime.network.credentials import Credentials
from holdfast.runtime.network.flight_errors import to_wire
from holdfast.storage import Fenced, Invalid

__all__ = ["AuthenticatedCall", "Authentication", "headers_of"]

_PROOF = "holdfast-proof"
_ATTEMPT = "holdfast-attempt"


def headers_of(credentials: Credentials, address: str) -> list[tuple[bytes, bytes]]:
    """The headers of calls to the server that is found at this address."""
    attempt = str(credentials.attempt)
    return [
        (_PROOF.encode(), _proof(credentials.token, attempt, address)),
        (_ATTEMPT.encode(), attempt.encode()),
    ]


def _proof(token: str, attempt: str, address: str) -> bytes:
    said = f"holdfast 1\n{address}\n{attempt}"
    return hmac.digest(token.encode(), said.encode(), "sha256").hex().encode()


class AuthenticatedCall(flight.ServerMiddleware):  # type: ignore[misc]
    """An authenticated call, as `context.get_middleware(AuthenticatedCall.KEY)` returns it."""

    KEY = "holdfast"

    def __init__(self, attempt: int) -> None:
        super().__init__()
        self.attempt = attempt


class Authentication(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Accepts callers that know the token and belong to the attempt that is served.

    `serves` returns that attempt; None when there is none.
    """

    def __init__(self, token: str, serves: Callable[[], int | None]) -> None:
        super().__init__()
        self._token = token
        self._serves = serves
        self._address: str | None = None

    def serve(self, address: str) -> None:
        """Accept calls to this address from now on. Before that, all calls are refused."""
        self._address = address

    def start_call(
        self, info: Any, headers: Mapping[str, Sequence[str | bytes]]
    ) -> AuthenticatedCall:
        """Accept or refuse a call.

        Raises:
            FlightUnauthenticatedError: with `Invalid`, the caller does not know the token.
            FlightServerError: with `Fenced`, the call is of another attempt.
        """
        attempt, address = _header(headers, _ATTEMPT).decode(errors="replace"), self._address
        if address is None or not hmac.compare_digest(
            _header(headers, _PROOF), _proof(self._token, attempt, address)
        ):
            stranger = Invalid(
                "the token is not that of this job",
                fix="Only the job's own driver, slots and tasks may call",
            )
            raise to_wire(stranger, is_stranger=True)
        serves = self._serves()
        if serves is None or attempt != str(serves):
            raise to_wire(
                Fenced(
                    "the call is of another attempt of the job",
                    expected=f"attempt {serves}" if serves is not None else "none, at the moment",
                    found=f"attempt {attempt}",
                    fix="Stop; what the other attempt does is void",
                )
            )
        return AuthenticatedCall(serves)


def _header(headers: Mapping[str, Sequence[str | bytes]], name: str) -> bytes:
    values = headers.get(name) or [b""]
    return values[0].encode() if isinstance(values[0], str) else values[0]
