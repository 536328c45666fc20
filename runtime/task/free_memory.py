"""Gives memory that was freed back to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa

__all__ = ["give_back"]


def give_back() -> None:
    """Return freed memory of this process to the system. May take a tenth of a second.

    The network receives rows into memory of the C library, which keeps what was freed apart for
    each thread that has allocated it. Threads of another micro-batch do not find it: a process that
    has had a long one was measured to hold twice as much after the next, and none of it in use.
    """
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # other C libraries than glibc have no such call
        ctypes.CDLL(None).malloc_trim(0)
