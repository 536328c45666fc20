"""Ctrl-C and SIGTERM while a job starts and runs: it stops, and one line says how to go on.

Spark has a handler of its own, which calls the JVM from within a call to the JVM. And a call that a
signal breaks off leaves a trace in the log. So what calls the JVM runs in a thread of its own, and
the main thread, which gets the signals, only waits.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from pyspark import InheritableThread

from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.run import JobStatus
from holdfast.runtime.spark.progress import follow

__all__ = ["TERMINATED", "Work", "seen_through", "stoppable"]

TERMINATED = 143
"""The exit code of who was stopped by SIGTERM, as shells have it."""
_logger = logging.getLogger(__name__)
_Made = TypeVar("_Made")
_WAIT_S = 0.5  # a wait without an end would hold signals back on some systems


class Work(Generic[_Made]):
    """A call in a thread of its own, which has what Spark keeps by thread."""

    def __init__(
        self, call: Callable[[], _Made], abandon: Callable[[_Made], Any] | None = None
    ) -> None:
        self._call = call
        self._abandon = abandon
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._made: list[_Made] = []
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = InheritableThread(target=self._run, name="holdfast-start", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            made = self._call()
            with self._lock:
                self._made.append(made)
                is_abandoned = self._is_abandoned
            if is_abandoned and self._abandon is not None:
                self._abandon(made)
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            self._error = error
        finally:
            self._ended.set()

    def result(self) -> _Made:
        """Wait for it; what it raised is raised here."""
        while not self._ended.wait(_WAIT_S):
            pass
        if self._error is not None:
            raise self._error
        return self._made[0]

    def give_up(self) -> None:
        """Abandon what comes of it: now, or when it comes."""
        with self._lock:
            self._is_abandoned = True
            made = list(self._made)
        for each in made:
            if self._abandon is not None:
                self._abandon(each)


def seen_through(start: Callable[[], JobHandle], name: str, url: str) -> JobStatus:
    """Start a job and wait for its end, or for a signal, which stops it.

    Raises:
        JobFailed: it has failed; and whatever `start` raises.
        KeyboardInterrupt, SystemExit: it was stopped.
    """
    with stoppable():
        work = Work(start, lambda job: job.interrupt())
        try:
            job = work.result()
            follow(job)
        except (KeyboardInterrupt, SystemExit) as stop:
            _told(stop, name, url)
            work.give_up()
            raise
    return job.result()


@contextmanager
def stoppable() -> Iterator[None]:
    """In the main thread signals raise here what Python does, whatever Spark has put there.

    SIGTERM only if the program does nothing of its own with it; and Ctrl-C not if it is ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    there = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    if there[signal.SIGINT] != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if there[signal.SIGTERM] == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        for kind, handler in there.items():
            if handler is not None:  # None was not put there by Python
                signal.signal(kind, handler)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)


def _told(stop: BaseException, name: str, url: str) -> None:
    """Say it in one line, and let it be the last: a traceback would be about the waiting."""
    if getattr(stop, "is_told", False):
        return
    stop.is_told = True  # type: ignore[attr-defined]
    word = "terminated" if isinstance(stop, SystemExit) else "interrupted"
    if url.startswith("memory:"):
        rest = "its checkpoints were in memory, so it cannot go on"
    else:
        rest = f'its checkpoints stay at {url}: go on with execute({name!r}, restore="latest")'
    _logger.warning("job %r is %s; %s", name, word, rest)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is not stop:
            before(kind, error, trace)

    sys.excepthook = hook
