"""The wait for a job's end: Ctrl-C and SIGTERM stop it, and one line says how to go on.

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
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from pyspark import InheritableThread, SparkContext
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from holdfast.runtime.api.errors import NotEnded
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.run import JobStatus
from holdfast.storage import SystemClock

__all__ = [
    "TERMINATED",
    "ThreadedCall",
    "begun",
    "follow",
    "preparing",
    "seen_through",
    "stoppable",
]

TERMINATED = 143
"""The exit code of a process that SIGTERM has stopped, as shells have it."""
_logger = logging.getLogger(__name__)
_Made = TypeVar("_Made")
_WAIT_S = 0.5  # a wait without an end would hold signals back on some systems
_REFRESH_S = 0.5
_STOPPED_WITHIN_S = 30.0
_SHUTDOWN_LOOKS, _SHUTDOWN_LOOK_S = 50, 0.01
_watched: dict[str, tuple[JobHandle, str]] = {}
"""Jobs that the main thread has started and may wait for, or not; by name, with their places."""
_being_stopped: set[str] = set()
_before: dict[int, Any] = {}
"""What signals did before they stopped those jobs."""


class ThreadedCall(Generic[_Made]):
    """A call in a thread of its own, which has what Spark keeps by thread."""

    def __init__(self, call: Callable[[], _Made]) -> None:
        self._call = call
        self._made: Future[_Made] = Future()

    def begin(self) -> ThreadedCall[_Made]:
        """Have it run. A caller that is interrupted here holds it already, and can give it up."""
        InheritableThread(target=self._run, name="holdfast-start", daemon=True).start()
        return self

    def _run(self) -> None:
        try:
            made = self._call()
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._made.set_exception(error)
        else:
            self._made.set_result(made)

    def result(self) -> _Made:
        """Wait for it; what it raised is raised here."""
        while not wait([self._made], _WAIT_S).done:
            pass
        return self._made.result()

    def give_up(self, stop: Callable[[_Made], Any]) -> None:
        """Stop what comes of it: now, or when it comes."""

        def stop_made(made: Future[_Made]) -> None:
            if made.exception() is None:
                stop(made.result())

        self._made.add_done_callback(stop_made)


def seen_through(start: Callable[[], JobHandle], name: str, url: str) -> JobStatus:
    """Start a job and wait for its end, or for a signal, which stops it.

    Raises:
        JobFailed: it has failed; and whatever `start` raises.
        KeyboardInterrupt, SystemExit: it was stopped.
    """
    call = ThreadedCall(start)
    with stoppable(), _stopped_by_signals(call, name, url):
        job = call.begin().result()
        follow(job)
    return job.result()


def follow(job: JobHandle) -> None:
    """Wait for the end of a job. On a terminal, show how far it is; the log says the rest.

    Raises:
        JobFailed: the job has failed.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        job.result()
        return
    with Status("", console=console) as status:
        while True:
            status.update(_line(job))
            try:
                job.result(_REFRESH_S)
            except NotEnded:
                continue
            return


def _line(job: JobHandle) -> str:
    metrics: Any = job.metrics()
    rows = sum(source["rows"] for source in metrics["sources"].values())
    read = sum(int(slot.get("rows", 0)) for slot in metrics["slots"].values())
    completed = job.checkpoints().counts.completed
    line = f"{job.job_id} is {job.status.value}: {rows:,} rows in, {read:,} processed"
    line += f", {completed} checkpoints"
    if metrics["attempts"] > 1:
        line += f", attempt {metrics['attempts']}"
    return escape(f"{line}; {job.trouble}" if job.trouble else line)


def begun(start: Callable[[], JobHandle], name: str, url: str) -> JobHandle:
    """Start a job. From then on signals stop it as they stop `execute`, whatever waits for it."""
    if threading.current_thread() is not threading.main_thread():
        return start()  # no signal comes here; the main thread sees to them
    call = ThreadedCall(start)
    with stoppable():
        with _stopped_by_signals(call, name, url):
            job = call.begin().result()
        _watch(job, name, url)
    _take_signals()
    return job


@contextmanager
def _stopped_by_signals(call: ThreadedCall[JobHandle], name: str, url: str) -> Iterator[None]:
    """Give a job up that is being started, or waited for, when a signal comes."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        _told(stop, name, url)
        call.give_up(lambda job: job.interrupt())
        raise


@contextmanager
def preparing() -> Iterator[None]:
    """While there is no job yet, a signal ends it by one line too."""
    with stoppable():
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as stop:
            _logger.warning("%s before a job was started", _word(stop))
            _be_quiet_of(stop)
            raise


@contextmanager
def stoppable() -> Iterator[None]:
    """In the main thread signals raise here what Python does, whatever Spark has put there.

    SIGTERM only if the program does nothing of its own with it; and Ctrl-C not if it is ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    there = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    if there[signal.SIGINT] not in (signal.SIG_IGN, _stop_watched):
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


def _watch(job: JobHandle, name: str, url: str) -> None:
    for ended in [each for each, (known, _) in _watched.items() if known.status.is_final]:
        del _watched[ended]
    _being_stopped.discard(name)
    _watched[name] = (job, url)


def _take_signals() -> None:
    """Put Spark's handler, which kills slots by calls to the JVM, behind ours; not a program's."""
    for kind in (signal.SIGINT, signal.SIGTERM):
        there = signal.getsignal(kind)
        is_sparks = str(getattr(there, "__module__", "")).startswith("pyspark.")
        if is_sparks or there in (signal.default_int_handler, signal.SIG_DFL):
            _before[kind] = there
            signal.signal(kind, _stop_watched)


def _stop_watched(number: int, frame: FrameType | None) -> None:
    live = {name: each for name, each in _watched.items() if not each[0].status.is_final}
    if number == signal.SIGINT and (not live or hasattr(sys, "ps1")):
        # At a prompt it ends what is waited for: the jobs go on, and their handles are there.
        before = signal.default_int_handler if live else _before[number]
        before(number, frame)
        return
    stop = SystemExit(TERMINATED) if number == signal.SIGTERM else KeyboardInterrupt()
    threads = []
    for name, (job, url) in live.items():
        if name not in _being_stopped:  # a second signal does not wait for it
            _being_stopped.add(name)
            _told(stop, name, url)
            # Not one of Spark's threads: what is interrupted here may be a call to the JVM.
            threads.append(threading.Thread(target=job.interrupt, name="holdfast-stop"))
            threads[-1].daemon = True
            threads[-1].start()
    _be_quiet_of(stop)
    for thread in threads:
        thread.join(_STOPPED_WITHIN_S)
    raise stop


def _word(stop: BaseException) -> str:
    return "terminated" if isinstance(stop, SystemExit) else "interrupted"


def _told(stop: BaseException, name: str, url: str) -> None:
    """Say it in one line, and let it be the last: a traceback would be about the waiting."""
    told: set[str] = stop.__dict__.setdefault("told", set())
    if name in told:
        return
    told.add(name)
    if url.startswith("memory:"):
        rest = "its checkpoints were in memory, so it cannot go on"
    else:
        rest = f'its checkpoints stay at {url}: go on with execute({name!r}, restore="latest")'
    _logger.warning("job %r is %s; %s", name, _word(stop), rest)
    _be_quiet_of(stop)


def _be_quiet_of(stop: BaseException) -> None:
    """Have neither a traceback of it printed, nor what Spark says if its JVM ends by it too."""
    stop.__dict__["is_told"] = True  # the command `holdfast` prints no line of its own then
    context: Any = SparkContext._active_spark_context
    server = getattr(context, "_accumulatorServer", None)  # a context that is being made has none
    if server is not None:
        server.handle_error = lambda *_: None
    if context is not None:
        # Not in this thread: what was interrupted may be a call to the JVM.
        threading.Thread(target=_mute_ending_jvm, name="holdfast-mute", daemon=True).start()
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is not stop:
            before(kind, error, trace)

    sys.excepthook = hook


def _mute_ending_jvm() -> None:
    """Let a JVM that is shutting down say nothing more: it stops Spark under its running queries.

    That is so under spark-submit, whose JVM is in the process group that a terminal or a supervisor
    signals. One that goes on running is left as it is.
    """
    jvm: Any = SparkContext._jvm
    clock = SystemClock()
    with suppress(Exception):  # it may be gone at any moment
        for _ in range(_SHUTDOWN_LOOKS):
            if jvm.org.apache.spark.util.ShutdownHookManager.inShutdown():
                log4j = jvm.org.apache.logging.log4j
                log4j.core.config.Configurator.setAllLevels("", log4j.Level.OFF)
                nowhere = jvm.java.io.OutputStream.nullOutputStream()
                jvm.System.setErr(jvm.java.io.PrintStream(nowhere))
                return
            clock.sleep_s(_SHUTDOWN_LOOK_S)
