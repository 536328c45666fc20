"""The deadline of the part of a checkpoint for which a slot's thread processes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.storage import HoldfastError, Unavailable

__all__ = ["SyncDeadline"]


class SyncDeadline:
    """Calls `on_late` from a thread of its own: the slot's may be stuck in a call. 0 is no limit.

    What takes too long is not interrupted. The slot fails when it comes back; if it never does, its
    driver hears of the failure all the same, and has the process ended.
    """

    def __init__(self, timeout_s: float, on_late: Callable[[HoldfastError], None]) -> None:
        self._timeout_s = timeout_s
        self._on_late = on_late

    @contextmanager
    def over(self, checkpoint_id: int, uids: Iterable[str]) -> Iterator[None]:
        """What runs in this context is the snapshot of these operators."""
        if not self._timeout_s:
            yield
            return
        error = Unavailable(
            f"the synchronous part of checkpoint {checkpoint_id} takes too long",
            where=f"operators {', '.join(map(repr, uids))}",
            expected=f"at most {self._timeout_s:g} s (sync_phase_timeout)",
            fix="The job starts again from its last checkpoint; if that repeats, look at what a "
            "snapshot waits for, such as a disk, or set a longer sync_phase_timeout",
        )
        timer = threading.Timer(self._timeout_s, self._on_late, [error])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
