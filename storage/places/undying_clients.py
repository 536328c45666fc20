"""Clients of native libraries that are never freed, because their end would wait for threads.

A forked child has its parent's objects and none of its threads. In the child, fsspec drops the
clients that it keeps, and garbage collection frees others; a library that then waits for the end of
its own threads waits for ever.
"""

from __future__ import annotations

import ctypes

__all__ = ["never_freed"]


def never_freed(made: object) -> None:
    """Keep an object as long as this process lives, and each child that it forks."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
