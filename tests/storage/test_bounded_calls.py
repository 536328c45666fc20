"""Calls that may never return are abandoned, and their threads do no harm."""

from __future__ import annotations

import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from holdfast.storage.bounded_calls import GivenUp, begun, within


class Panic(BaseException):
    """As a library written in Rust raises it."""


def test_a_call_s_result_or_error_is_passed_on() -> None:
    def fail() -> None:
        raise KeyError("x")

    def panic() -> None:
        raise Panic("explicit panic")

    def late() -> None:
        raise TimeoutError("of the call itself")

    assert within(60, lambda: threading.current_thread().name) == "holdfast-call"
    with pytest.raises(KeyError, match="x"):
        within(60, fail)
    with pytest.raises(RuntimeError, match="Panic: explicit panic"):
        within(60, panic)
    with pytest.raises(TimeoutError, match="of the call itself"):
        within(60, late)


def test_a_thread_is_used_again_and_keeps_nothing() -> None:
    before = threading.active_count()
    for _ in range(50):
        within(60, lambda: bytearray(1000))
    assert threading.active_count() <= before + 2


def test_a_call_that_hangs_is_given_up_and_others_are_made() -> None:
    hang, ended = threading.Event(), threading.Event()

    def wait() -> None:
        hang.wait(60)
        ended.set()

    for _ in range(3):
        with pytest.raises(GivenUp):
            within(0.01, wait)
    assert within(60, lambda: 7) == 7
    assert not ended.is_set()
    hang.set()
    assert ended.wait(60)


def test_many_calls_are_made_side_by_side() -> None:
    together = threading.Barrier(10)
    calls = [begun(lambda: together.wait(60)) for _ in range(10)]
    assert sorted(call.result(60) for call in calls) == list(range(10))


@pytest.mark.parametrize(
    ("call", "takes_s", "printed"),
    [
        ("begun(work)", 0.5, b"done\n"),
        ("within(0.01, work)", 5, b""),
        ("begun(work, is_awaited_at_exit=False)", 5, b""),
    ],
)
def test_the_end_of_the_process_waits_for_calls_that_are_still_of_use(
    call: str, takes_s: float, printed: bytes
) -> None:
    program = f"""
        from holdfast.storage import SystemClock
        from holdfast.storage.bounded_calls import GivenUp, begun, within

        def work():
            SystemClock().sleep_s({takes_s})
            print("done", flush=True)

        try:
            {call}
        except GivenUp:
            pass
    """
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program)], check=True, capture_output=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == (printed, b"")
