"""Runners of pieces: in this process, or in several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Protocol

from holdfast.savepoints.conversion.journal import PieceResult
from holdfast.savepoints.conversion.pieces import PieceTask, PieceWorker
from holdfast.storage import Unavailable

__all__ = ["InProcess", "Runner", "WorkerProcesses", "usual_workers"]


class Runner(Protocol):
    """Executes pieces, and yields their results in any order."""

    @property
    def workers(self) -> int:
        """The number of pieces that it executes at a time, as far as it is known."""
        ...

    def run(
        self, work: PieceWorker, tasks: Sequence[PieceTask]
    ) -> Iterator[tuple[PieceTask, PieceResult]]:
        """Execute all tasks. After the first failure no other is begun.

        Raises:
            HoldfastError: the error of the piece that failed.
        """
        ...


class InProcess:
    """Executes pieces in this process, one after the other."""

    @property
    def workers(self) -> int:
        return 1

    def run(
        self, work: PieceWorker, tasks: Sequence[PieceTask]
    ) -> Iterator[tuple[PieceTask, PieceResult]]:
        for task in tasks:
            yield task, work.do(task)


@dataclass(frozen=True, slots=True)
class WorkerProcesses:
    """Executes pieces in a number of processes of this machine."""

    workers: int

    def run(
        self, work: PieceWorker, tasks: Sequence[PieceTask]
    ) -> Iterator[tuple[PieceTask, PieceResult]]:
        workers = min(self.workers, len(tasks))
        if workers <= 1:
            yield from InProcess().run(work, tasks)
            return
        pool = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(work,),
        )
        is_done = False
        try:
            with _sigint_blocked():
                futures = {pool.submit(_do, task): task for task in tasks}
            for future in as_completed(futures):
                yield futures[future], future.result()
            is_done = True
        except BrokenProcessPool as error:
            raise Unavailable(
                "a worker process of the conversion has died",
                expected=f"{workers} processes that live",
                found=str(error),
                fix="Check whether memory ran out, and run this again with fewer --workers; "
                "finished pieces are kept",
            ) from error
        finally:
            if not is_done:
                for process in list((pool._processes or {}).values()):
                    # Running tasks cannot be cancelled; Python 3.14 has terminate_workers for this.
                    process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


def usual_workers() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Start processes with SIGINT blocked; this process handles a SIGINT afterwards.

    A terminal sends Ctrl-C to the whole process group, and until `_begin` a new process would die
    of it with a traceback. It inherits the signal mask of this thread. The kernel may deliver the
    signal to another thread of this process, so the main thread also defers its handler.
    """
    resource_tracker.ensure_running()  # when it starts, it unblocks the signal in this thread
    heard: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    usual = (
        signal.signal(signal.SIGINT, lambda number, _: heard.append(number)) if is_main else None
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if is_main:
            signal.signal(signal.SIGINT, usual)
        if heard:
            signal.raise_signal(signal.SIGINT)


_work: list[PieceWorker] = []


def _begin(work: PieceWorker) -> None:
    """Initialize a worker process: it ignores Ctrl-C, and exits when its parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()
    _work[:] = [work]


def _exit_with_parent(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _do(task: PieceTask) -> PieceResult:
    return _work[0].do(task)
