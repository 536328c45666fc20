"""Ports for servers that are started again on the same ones.

A port that the system chooses is reserved only while it is held: while a killed server is down,
any process may be given it. So these lie below where the system chooses, in blocks of which this
process holds the one that it uses.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from tempfile import gettempdir

LOOPBACK = "127.0.0.1"
_FIRST = 20_000
_SIZE = 16
_BLOCKS = 700


class Ports:
    """Sixteen ports that no other test run on this machine takes while this object is open."""

    def __init__(self) -> None:
        folder = Path(gettempdir()) / f"holdfast-test-ports-{os.getuid()}"
        folder.mkdir(exist_ok=True)
        start = os.getpid()  # neighbours begin at different places
        for turn in range(_BLOCKS):
            block = (start + turn * 7) % _BLOCKS
            self._file = (folder / str(block)).open("w")
            self._left = list(range(_FIRST + block * _SIZE, _FIRST + (block + 1) * _SIZE))
            if self._is_ours() and all(map(is_free, self._left)):
                return
            self._file.close()
        raise OSError(f"no {_SIZE} ports in a row are free from {_FIRST} on")

    def _is_ours(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take(self) -> int:
        """The next port; there are sixteen."""
        return self._left.pop(0)

    def close(self) -> None:
        self._file.close()


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def is_answering(port: int) -> bool:
    """Whether a server accepts a connection there."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
