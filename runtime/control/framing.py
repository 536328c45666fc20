"""One message on a socket: four bytes that say how long it is, and the message."""

from __future__ import annotations

import socket
import struct

from holdfast.storage import Clock, Invalid, TooLarge

__all__ = ["read_frame", "write_frame"]

_LENGTH = struct.Struct(">I")


def write_frame(connection: socket.socket, data: bytes, *, limit_bytes: int) -> None:
    """Send a message, within the time that the socket has for a call.

    Raises:
        TooLarge: it is longer than the other side takes.
        OSError: the other side is gone, or takes too long.
    """
    if len(data) > limit_bytes:
        raise _too_large(len(data), limit_bytes)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def read_frame(
    connection: socket.socket, *, limit_bytes: int, within_s: float, clock: Clock
) -> bytes | None:
    """The next message; None if the other side has nothing more to say.

    All of it must come `within_s`, however it is dealt out.

    Raises:
        TooLarge: it is longer than `limit_bytes`; none of it was read.
        Invalid: it breaks off.
        TimeoutError: it did not come in time.
        OSError: the connection broke.
    """
    deadline_s = clock.monotonic_s() + within_s
    head = _read(connection, _LENGTH.size, deadline_s, clock)
    if not head:
        return None
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
    if length > limit_bytes:
        raise _too_large(length, limit_bytes)
    data = _read(connection, length, deadline_s, clock)
    if len(head) < _LENGTH.size or len(data) < length:
        raise Invalid(
            "a message breaks off",
            expected=f"{_LENGTH.size} bytes of length, and as many as they say",
            found=f"{len(head) + len(data)} bytes",
        )
    return data


def _read(connection: socket.socket, count: int, deadline_s: float, clock: Clock) -> bytes:
    """So many bytes, or fewer if there are no more."""
    data = bytearray()
    while len(data) < count:
        remaining_s = deadline_s - clock.monotonic_s()
        if remaining_s <= 0:
            raise TimeoutError(f"a message did not come in time, {len(data)} bytes of it are there")
        connection.settimeout(remaining_s)
        try:
            piece = connection.recv(min(count - len(data), 1 << 16))
        except TimeoutError:
            continue
        if not piece:
            break
        data += piece
    return bytes(data)


def _too_large(length: int, limit_bytes: int) -> TooLarge:
    return TooLarge(
        "a message between command line and job is too long",
        expected=f"at most {limit_bytes} bytes",
        found=f"{length} bytes",
    )
