"""The background thread of a backend: writes its snapshots, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor

from holdfast.backends.snapshots import SnapshotFuture
from holdfast.storage import StateSnapshot

__all__ = ["SnapshotWorker"]


class SnapshotWorker:
    """Runs what is left of snapshots. `submit` and `close` belong to the owner's thread."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: list[SnapshotFuture] = []

    def submit(
        self,
        write: Callable[[SnapshotFuture], StateSnapshot],
        ended: Callable[[Callable[[], bool]], None] | None = None,
    ) -> SnapshotFuture:
        """Leave `write` to the background; it asks its future whether it was given up.

        `ended` is called there once the future is done, however it ended; it is given a function
        that says whether another snapshot is waiting.
        """
        future = SnapshotFuture()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, f"snapshots of {self._uid}")
        self._waiting.append(future)
        self._thread.submit(self._run, future, write, ended)
        return future

    def close(self) -> None:
        """Give up what is on its way, and wait until nothing is touched any more."""
        for future in list(self._waiting):
            future.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _run(
        self,
        future: SnapshotFuture,
        write: Callable[[SnapshotFuture], StateSnapshot],
        ended: Callable[[Callable[[], bool]], None] | None,
    ) -> None:
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
            ended(lambda: bool(self._waiting))
