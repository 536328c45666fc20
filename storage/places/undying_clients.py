"""Objects that are never freed: clients of native libraries whose end would wait for threads.

A forked child has its parent's objects and none of its threads. There fsspec drops the clients
that it keeps, and whatever else is collected is freed too; a library that then waits until its own
threads have ended waits for ever.
"""

from __future__ import annotations

import ctypes

__all__ = ["never_freed"]


def never_freed(made: object) -> None:
    """Keep an object as long as this process lives, and each child that it forks."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
