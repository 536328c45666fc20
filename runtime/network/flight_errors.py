"""Holdfast's errors in Flight: an error that one side raises is raised on the other side, too.

Flight has its own kinds of errors, with room for extra bytes: these carry the error. An error
without such bytes was raised by the transport itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from pyarrow import flight

from holdfast.runtime.protocol.error_data import (
    ERROR_KINDS,
    ErrorData,
    data_of_error,
    error_of_data,
)
from holdfast.runtime.task.channel import Closed
from holdfast.runtime.task.staging import Superseded
from holdfast.storage import HoldfastError, Invalid, Unavailable
from holdfast.storage.errors import UNREADABLE

__all__ = ["from_transport", "from_wire", "raising_house_errors", "raising_wire_errors", "to_wire"]

_KINDS = {**ERROR_KINDS, "Closed": Closed, "Superseded": Superseded}

# gRPC carries an error in the trailers of a call, which hold 8 KB in all: a larger one may arrive
# as an error of the transport, of another kind. Its text is in there twice, and text that is not
# ASCII takes three times its size.
_TITLE_BYTES = 300
_MOST_BYTES = {"what": 600, "where": 600, "expected": 600, "found": 1800, "fix": 600}
_decoder = msgspec.msgpack.Decoder(ErrorData)


def to_wire(error: HoldfastError, *, is_stranger: bool = False) -> Exception:
    """The error as a Flight server raises it; for a stranger of kind `unauthenticated`."""
    told = data_of_error(error, _KINDS)
    parts = {name: _cut(getattr(told, name), most) for name, most in _MOST_BYTES.items()}
    data = msgspec.msgpack.encode(msgspec.structs.replace(told, **parts))
    kind = flight.FlightUnauthenticatedError if is_stranger else flight.FlightServerError
    title = str(error).encode("ascii", "replace")[:_TITLE_BYTES].decode()
    wired: Exception = kind(title, data)
    return wired


def from_wire(error: Exception) -> HoldfastError | None:
    """The error that the other side raised; None if the transport raised it."""
    data = getattr(error, "extra_info", None)
    if not data:
        return None
    try:
        sent = _decoder.decode(data)
    except UNREADABLE:
        return None
    return error_of_data(sent, _KINDS)


def from_transport(error: Exception, *, where: str) -> HoldfastError:
    """The Holdfast error for one that the transport, Flight or Arrow, raised."""
    if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
        return Invalid("the call was refused", where=where, found=_plainly(error))
    if isinstance(error, flight.FlightTimedOutError):
        return Unavailable("there was no answer in time", where=where, found=_plainly(error))
    if isinstance(error, flight.FlightServerError):
        return Invalid(
            "the other side could not do what it was asked", where=where, found=str(error)
        )
    if isinstance(error, flight.FlightError | OSError):
        return Unavailable("the other side cannot be reached", where=where, found=_plainly(error))
    return Invalid("the rows cannot be sent", where=where, found=_plainly(error))


@contextmanager
def raising_house_errors(where: str) -> Iterator[None]:
    """On the client's side: raise errors of Flight and Arrow as Holdfast's errors."""
    try:
        yield
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise (from_wire(error) or from_transport(error, where=where)) from error


@contextmanager
def raising_wire_errors(where: str) -> Iterator[None]:
    """On the server's side: send Holdfast's errors, and others with their traceback."""
    try:
        yield
    except HoldfastError as error:
        raise to_wire(error) from error
    except flight.FlightError:
        raise
    except Exception as error:
        unforeseen = Invalid(
            "a message could not be handled", where=where, found=traceback.format_exc()
        )
        raise to_wire(unforeseen) from error


def _plainly(error: Exception) -> str:
    """The error's text without gRPC's debugging context."""
    return str(error).partition(". gRPC client debug context")[0]


def _cut(text: str, most_bytes: int) -> str:
    """Cut the middle out of a long text: the last line of a traceback says why."""
    data = text.encode(errors="replace")
    if len(data) <= most_bytes:
        return text
    left = f" … {len(data) - most_bytes} bytes left out … "
    first = most_bytes * 2 // 3
    last = most_bytes - first - len(left.encode())
    return data[:first].decode(errors="ignore") + left + data[-last:].decode(errors="ignore")
