"""The background threads of a backend: one writes snapshots of checkpoints, one after the other.

Another one writes savepoints. They have a thread of their own at each step, from here to the
driver, so a savepoint's storage that is slow or down delays no barrier and no checkpoint. Two
threads may then read frozen tables of one store; work that excludes readers, such as folding
layers, runs while none of them reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor

from holdfast.backends.snapshots.neutral import SnapshotFuture
from holdfast.storage import StateSnapshot

__all__ = ["SnapshotWorker"]


class SnapshotWorker:
    """Runs the background part of snapshots. Only the owner's thread calls `submit` and `close`."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._threads: dict[bool, ThreadPoolExecutor] = {}
        self._waiting: list[SnapshotFuture] = []
        self._ending = threading.Lock()
        """Held while an `ended` runs; meanwhile no snapshot is written."""

    def submit(
        self,
        write: Callable[[SnapshotFuture], StateSnapshot],
        ended: Callable[[Callable[[], bool]], None] | None = None,
        *,
        is_savepoint: bool = False,
    ) -> SnapshotFuture:
        """Run `write` in the background; it asks its future whether the snapshot was cancelled.

        Savepoints run one after the other, and so do other snapshots. `ended` is called in the
        background once the future is done in any way; its argument answers whether another snapshot
        waits or is being written. No snapshot is written while `ended` runs.
        """
        future = SnapshotFuture()
        if is_savepoint not in self._threads:
            what = "savepoints" if is_savepoint else "snapshots"
            self._threads[is_savepoint] = ThreadPoolExecutor(1, f"{what} of {self._uid}")
        self._waiting.append(future)
        self._threads[is_savepoint].submit(self._run, future, write, ended)
        return future

    def close(self) -> None:
        """Cancel all snapshots, and wait until the threads have ended."""
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
            pass  # a running `ended` sees that this snapshot waits, and returns soon
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(write(future))
        except CancelledError as error:
            future.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - the future hands it to its caller
            future.set_exception(error)
        finally:
            self._waiting.remove(future)
        if ended is not None:
            with self._ending:
                ended(lambda: bool(self._waiting))
