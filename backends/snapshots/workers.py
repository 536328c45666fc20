"""The background work of a backend: snapshots of checkpoints, which are written one by one.

Beside them savepoints are written one by one. They have a thread of their own at each step, from
here to the driver, so a savepoint's storage that is slow or down delays no barrier and no
checkpoint. Two threads may then read frozen tables of one store; work that excludes readers, such
as folding layers, runs while none of them reads.

All backends of a process share the threads, of which there are as many as work at the same time:
a slot may have hundreds of operators, most of which have written their snapshot in a moment.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from functools import cache, partial

from holdfast.backends.snapshots.neutral import SnapshotFuture
from holdfast.storage import StateSnapshot

__all__ = ["SnapshotWorker", "shared_threads"]

_logger = logging.getLogger(__name__)


@cache
def shared_threads() -> Executor:
    """The threads of this process."""
    # No bound: a log's snapshot waits here for that of its inner backend, and would for ever if
    # such waits filled the pool. A thread is started only if all others are at work.
    return ThreadPoolExecutor(1 << 16, "holdfast-snapshots")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=shared_threads.cache_clear)  # threads are not forked


class SnapshotWorker:
    """Runs the background part of snapshots. Only the owner's thread calls `submit` and `close`."""

    def __init__(self, uid: str) -> None:
        self._checkpoints = _InOrder(f"snapshots of {uid}")
        self._savepoints = _InOrder(f"savepoints of {uid}")
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
        self._waiting.append(future)
        in_order = self._savepoints if is_savepoint else self._checkpoints
        in_order.submit(partial(self._run, future, write, ended))
        return future

    def close(self) -> None:
        """Cancel all snapshots, and wait until none is being written."""
        for future in list(self._waiting):
            future.cancel()
        self._checkpoints.wait()
        self._savepoints.wait()

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


class _InOrder:
    """Runs what it is given one after the other, in one of the shared threads at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._threads: Executor | None = None
        self._running: Future[None] | None = None
        """The one that runs now, or is to run next."""

    def submit(self, run: Callable[[], None]) -> None:
        """Run this after all before it."""
        with self._lock:
            self._waiting.append(run)
            if self._running is None:
                self._begin()

    def wait(self) -> None:
        """Return when all has run."""
        running = self._running
        while running is not None:
            done, _ = wait([running])
            running = self._running if done else None

    def _begin(self) -> None:
        self._threads = self._threads or shared_threads()
        self._running = self._threads.submit(self._run_first)

    def _run_first(self) -> None:
        thread = threading.current_thread()
        # So that the threads of a slot can be told apart.
        name, thread.name = thread.name, self._name
        try:
            self._waiting.popleft()()
        except Exception:  # what follows must run
            _logger.exception("%s: the work after one of them has failed", self._name)
        finally:
            thread.name = name
            with self._lock:
                self._running = None
                if self._waiting:
                    self._begin()
