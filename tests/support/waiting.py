"""Waiting for what another thread is about to do."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["wait_until"]


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return as soon as it is so; on the busiest machine that takes far less than this waits."""
    moment = threading.Event()
    for _ in range(3_000):
        if is_so():
            return
        moment.wait(0.01)
    raise AssertionError("it is not so after a long time")
