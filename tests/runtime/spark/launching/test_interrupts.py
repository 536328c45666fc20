"""Ctrl-C and SIGTERM at any moment end a job by one line, and no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark import SparkContext

from holdfast.runtime.spark.launching.interrupts import (
    ThreadedCall,
    begun,
    preparing,
    seen_through,
    stoppable,
)

# A job as `execute` sees it; Spark's handler, which calls the JVM, is where Spark puts it.
STARTS = """
import signal, sys, threading, time
from types import SimpleNamespace
from holdfast.runtime import JobStatus, NotEnded
from holdfast.runtime.driver.job_log import speak
from holdfast.runtime.spark.launching import interrupts

moment, url = sys.argv[1:]
speak()
ended = threading.Event()

def result(timeout_s=None):
    if not ended.wait(timeout_s):
        raise NotEnded("not yet")
    return JobStatus.CANCELLED

def interrupt():
    print("stopped", flush=True)
    ended.set()

def follow(job):
    print("ready", flush=True)
    while True:
        try:
            return job.result(0.1)
        except NotEnded:
            pass

def start():
    if moment == "starting":
        print("ready", flush=True)
        time.sleep(60)
    return SimpleNamespace(result=result, interrupt=interrupt)

def sparks(*_):
    raise RuntimeError("a call to the JVM within a call to the JVM")

signal.signal(signal.SIGINT, sparks)
interrupts.follow = follow
interrupts.seen_through(start, "orders", url)
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


PYTHON = (sys.executable,)
HOLDFAST_RUN = (sys.executable, "-c", "from holdfast.runtime.cli import main; main()", "run")


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starting", "running"])
@pytest.mark.parametrize("kind", SIGNALS)
@pytest.mark.parametrize("command", [PYTHON, HOLDFAST_RUN], ids=["python", "holdfast-run"])
def test_a_signal_ends_a_job_by_one_line(
    command: tuple[str, ...], kind: signal.Signals, moment: str, tmp_path: Path
) -> None:
    app = tmp_path / "app.py"
    app.write_text(STARTS.replace("time.sleep(60)", "threading.Event().wait(60)"))
    program = subprocess.Popen(
        [*command, str(app), moment, "s3://bucket/checkpoints"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.send_signal(kind)
    out, told = program.communicate(timeout=30)
    ends_by_signal = command is PYTHON and kind is signal.SIGINT
    assert program.returncode == (-kind if ends_by_signal else 128 + kind)
    assert out == ("stopped\n" if moment == "running" else "")
    (line,) = told.splitlines()
    word = "terminated" if kind is signal.SIGTERM else "interrupted"
    assert line.endswith(
        f"WARNING holdfast: job 'orders' is {word}; its checkpoints stay at "
        "s3://bucket/checkpoints: go on with execute('orders', restore=\"latest\")"
    )


def test_an_abandoned_call_is_undone_when_it_returns() -> None:
    go, stopped = threading.Event(), threading.Event()
    call = ThreadedCall(go.wait).begin()
    call.give_up(lambda _: stopped.set())
    assert not stopped.is_set()
    go.set()
    assert stopped.wait(20)


def test_a_signal_while_the_work_begins_is_told_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Under load the thread runs before the main thread waits for it."""
    monkeypatch.setattr(ThreadedCall, "begin", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    for start in (begun, seen_through):
        with pytest.raises(KeyboardInterrupt):
            start(Mock(), "orders", "s3://bucket")
    assert len(caplog.messages) == 2


def test_an_error_is_raised_to_the_waiting_caller() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ThreadedCall(fails).begin().result()


def test_a_signal_while_the_context_is_made_is_told_as_any_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark names its context before it has all of its attributes."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(KeyboardInterrupt), preparing():
        raise KeyboardInterrupt
    assert caplog.messages == ["interrupted before a job was started"]


def test_handlers_of_the_program_are_as_before() -> None:
    before = [signal.getsignal(kind) for kind in SIGNALS]
    with stoppable():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [signal.getsignal(kind) for kind in SIGNALS] == before
