"""The background threads of a backend: one writes what checkpoints need, one after the other.

Another one writes savepoints: their place may be slow, and no checkpoint waits for it.

Savepoints have a thread of their own at each step, from here to the driver: a storage that is slow
or down delays no barrier and no checkpoint that has begun. Two threads then read frozen tables of
one store; what must not happen beside a reader, such as folding layers, happens while nobody reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor

from holdfast.backends.snapshots.neutral import SnapshotFuture
from holdfast.storage import StateSnapshot

__all__ = ["SnapshotWorker"]


class SnapshotWorker:
    """Runs what is left of snapshots. `submit` and `close` belong to the owner's thread."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._threads: dict[bool, ThreadPoolExecutor] = {}
        self._waiting: list[SnapshotFuture] = []
        self._ending = threading.Lock()
        """Held while anything follows a snapshot; meanwhile none is written."""

    def submit(
        self,
        write: Callable[[SnapshotFuture], StateSnapshot],
        ended: Callable[[Callable[[], bool]], None] | None = None,
        *,
        is_savepoint: bool = False,
    ) -> SnapshotFuture:
        """Leave `write` to the background; it asks its future whether it was given up.

        It comes after what was submitted before and is as much aside as this. `ended` is called
        there once the future is done, however it ended; it is given a function that says whether
        another snapshot is waiting, or being written. None is written while `ended` runs.
        """
        future = SnapshotFuture()
        if is_savepoint not in self._threads:
            what = "savepoints" if is_savepoint else "snapshots"
            self._threads[is_savepoint] = ThreadPoolExecutor(1, f"{what} of {self._uid}")
        self._waiting.append(future)
        self._threads[is_savepoint].submit(self._run, future, write, ended)
        return future

    def close(self) -> None:
        """Give up what is on its way, and wait until nothing is touched any more."""
        for future in list(self._waiting):
            future.cancel()
        for thread in self._threads.values():
            thread.shutdown(wait=True)

    def _run(
        self,
        future: SnapshotFuture,
        write: Callable[[SnapshotFuture], StateSnapshot],
        ended: Callable[[Callable[[], bool]], None] | None,
    ) -> None:
        with self._ending:
            pass  # who ends sees that this one waits, and is quick
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(write(future))
        except CancelledError as error:
            future.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
            future.set_exception(error)
        finally:
            self._waiting.remove(future)
        if ended is not None:
            with self._ending:
                ended(lambda: bool(self._waiting))
