"""Doing pieces of work: in this process, or in several processes of this machine."""

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
    """Does pieces of work, and answers what came of each, in any order."""

    @property
    def workers(self) -> int:
        """How many pieces it does at a time, as far as it is known."""
        ...

    def run(
        self, work: PieceWorker, tasks: Sequence[PieceTask]
    ) -> Iterator[tuple[PieceTask, PieceResult]]:
        """Do all of them. At the first that fails no others are begun.

        Raises:
            HoldfastError: that of a piece that failed.
        """
        ...


class InProcess:
    """In this process, one after the other."""

    @property
    def workers(self) -> int:
        """One piece at a time."""
        return 1

    def run(
        self, work: PieceWorker, tasks: Sequence[PieceTask]
    ) -> Iterator[tuple[PieceTask, PieceResult]]:
        """Do all of them."""
        for task in tasks:
            yield task, work.do(task)


@dataclass(frozen=True, slots=True)
class WorkerProcesses:
    """In so many processes of this machine."""

    workers: int

    def run(
        self, work: PieceWorker, tasks: Sequence[PieceTask]
    ) -> Iterator[tuple[PieceTask, PieceResult]]:
        """Do all of them, so many at a time."""
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
            with _begun_deaf():
                futures = {pool.submit(_do, task): task for task in tasks}
            for future in as_completed(futures):
                yield futures[future], future.result()
            is_done = True
        except BrokenProcessPool as error:
            raise Unavailable(
                "a process that converted has died",
                expected=f"{workers} processes that live",
                found=str(error),
                fix="Look whether memory ran out, and run this again with fewer --workers; what is "
                "done stays done",
            ) from error
        finally:
            if not is_done:
                for process in list((pool._processes or {}).values()):
                    # There is no other way to end what is begun: in 3.14 it is terminate_workers.
                    process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


def usual_workers() -> int:
    """As many as there are cores for this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _begun_deaf() -> Iterator[None]:
    """Processes that are begun meanwhile do not hear Ctrl-C; this one hears it afterwards.

    A terminal sends it to all of them, and until `_begin` they would die of it with a traceback.
    They inherit what is blocked here. Other threads of this process may still be given the signal,
    so the main one also puts off what it does about it.
    """
    resource_tracker.ensure_running()  # it unblocks the signal when it starts
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
    """In a new process: it ends when the one that began it ends, and not by Ctrl-C before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _work[:] = [work]


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _do(task: PieceTask) -> PieceResult:
    return _work[0].do(task)
