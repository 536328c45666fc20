"""Threads for calls that may hang."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from holdfast.runtime.driver import daemon_threads
from holdfast.runtime.driver.daemon_threads import DaemonThreads
from holdfast.storage import Unavailable

HANGING = """
import threading
from holdfast.runtime.driver.events import EventQueue
from holdfast.runtime.driver.source_thread import SourceThread
from holdfast.storage import SystemClock, bounded_calls

class Source:
    uid = "a"
    def stop(self):
        is_stopping.set()
        threading.Event().wait()

is_stopping = threading.Event()
bounded_calls._AT_EXIT_S = 0.1
SourceThread(Source(), EventQueue(), SystemClock()).stop()
is_stopping.wait()
"""


def test_a_program_ends_though_a_source_does_not_stop() -> None:
    assert subprocess.run([sys.executable, "-c", HANGING], timeout=60, check=False).returncode == 0


def test_calls_are_made_in_order_and_so_many_at_once() -> None:
    threads = DaemonThreads(1, "test")
    made: list[int] = []
    may_go_on = threading.Event()
    first = threads.submit(may_go_on.wait, 30)
    rest = [threads.submit(made.append, number) for number in range(50)]
    assert not any(each.done() for each in rest)
    may_go_on.set()
    assert first.result(30)
    assert rest[-1].result(30) is None
    assert made == [*range(50)]
    both = threading.Barrier(2)
    wide = DaemonThreads(2, "test")
    assert sorted(each.result(30) for each in [wide.submit(both.wait, 30) for _ in "ab"]) == [0, 1]


def test_an_error_is_raised_where_the_answer_is_awaited() -> None:
    threads = DaemonThreads(1, "test")
    with pytest.raises(ValueError, match="invalid literal"):
        threads.submit(int, "x").result(30)
    assert threads.submit(int, "1").result(30) == 1


@pytest.mark.parametrize("are_cancelled", [False, True])
def test_after_the_end_nothing_is_taken_and_what_waits_may_be_cancelled(
    *, are_cancelled: bool
) -> None:
    threads, may_go_on, has_begun = DaemonThreads(1, "test"), threading.Event(), threading.Event()

    def wait() -> bool:
        has_begun.set()
        return may_go_on.wait(30)

    first, second = threads.submit(wait), threads.submit(int, "1")
    assert has_begun.wait(30)
    threads.shutdown(cancel_futures=are_cancelled)
    with pytest.raises(RuntimeError, match="shut down"):
        threads.submit(int, "1")
    may_go_on.set()
    assert first.result(30)
    if are_cancelled:
        with pytest.raises(CancelledError):
            second.result(30)
    else:
        assert second.result(30) == 1


def test_where_no_thread_can_be_started_one_that_is_there_makes_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_call: object) -> None:
        raise RuntimeError("can't start new thread")

    threads, may_go_on = DaemonThreads(2, "calls"), threading.Event()
    threads.submit(may_go_on.wait, 30)
    monkeypatch.setattr(daemon_threads, "begun", full)
    late = threads.submit(int, "1")
    may_go_on.set()
    assert late.result(30) == 1
    with pytest.raises(Unavailable, match="a thread cannot be started"):
        DaemonThreads(2, "calls").submit(int, "1")
