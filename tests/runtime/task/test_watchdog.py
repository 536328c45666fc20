"""A function that does not return is named, with its operator and how long it has been at it."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast.runtime.driver.failure.long_calls import LongCalls
from holdfast.runtime.protocol.metrics import LongCall
from holdfast.runtime.task.watchdog import Watchdog
from holdfast.storage import ManualClock, Unavailable
from support.jobs.lone_slot import ORDERS, Stage
from support.simulations.jobs import Spend
from support.waiting import wait_until


class Held:
    """A call of user code, which returns when the test lets it."""

    def __init__(self) -> None:
        self.is_in = threading.Event()
        self.may_return = threading.Event()

    def method(self) -> None:
        self.is_in.set()
        assert self.may_return.wait(30)


class Watched:
    """A thread that is watched, and the clock by which it is."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.dog = Watchdog(self.clock, [Watched.step], lambda: "spend")
        self.calls = [Held(), Held()]
        self.between = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        self.dog.begin()
        for call in self.calls:
            self.step(call)
        self.dog.end()

    def step(self, call: Held) -> None:
        call.method()

    def end(self) -> None:
        for call in self.calls:
            call.may_return.set()
        self.thread.join(30)


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    found.end()


def test_a_call_that_lasts_is_told_with_its_time(watched: Watched) -> None:
    first, second = watched.calls
    assert first.is_in.wait(30)
    assert watched.dog.look() is None
    watched.clock.advance(1_000)
    assert watched.dog.look() is None, "it may be about to return"
    watched.clock.advance(40_000)
    call = watched.dog.look()
    assert call is not None
    assert (call.uid, call.method, call.for_s) == ("spend", "Held.method", 41)
    assert call.at.startswith("test_watchdog.py, line ")
    assert str(call).startswith("operator 'spend' has been in Held.method (test_watchdog.py, line ")
    assert str(call).endswith(") for 41 s")
    first.may_return.set()
    assert second.is_in.wait(30)
    assert watched.dog.look() is None, "another call of the same method"
    watched.clock.advance(5_000)
    later = watched.dog.look()
    assert later is not None
    assert later.for_s == 5


def test_a_thread_that_is_in_nothing_is_in_nothing() -> None:
    dog = Watchdog(ManualClock(), [Watched.step], str)
    assert dog.look() is None
    dog.begin()
    assert dog.look() is None
    dog.end()


def test_a_slot_names_operator_and_method_of_a_function_that_hangs(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()

    def hang(*_: object) -> None:
        held.method()

    monkeypatch.setattr(Spend, "process_element", hang)
    stage = Stage(f"file://{tmp_path}")

    def run() -> None:
        with suppress(Unavailable):
            stage.slot.run()

    running = threading.Thread(target=run, daemon=True)
    stage.orders(*ORDERS)
    running.start()
    assert held.is_in.wait(30)
    assert stage.slot.long_call() is None
    stage.clock.advance(60_000)
    call = stage.slot.long_call()
    assert call is not None
    assert (call.uid, call.for_s) == ("spend", 60)
    assert call.method.endswith("hang")
    stage.slot.fail(Unavailable("enough"))
    held.may_return.set()
    running.join(30)
    assert stage.slot.long_call() is None


@pytest.mark.parametrize("then", ["it goes on", "it ends"])
def test_a_finished_call_is_forgotten(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """It may have had a whole batch."""
    held, batches = Held(), list[weakref.ref[Any]]()

    def hang(*_: object) -> None:
        batch = Held()
        batches.append(weakref.ref(batch))
        held.method()

    monkeypatch.setattr(Spend, "process_element", hang)
    stage = Stage(f"file://{tmp_path}")

    def run() -> None:
        with suppress(Unavailable):
            stage.slot.run()

    running = threading.Thread(target=run, daemon=True)
    stage.orders(ORDERS[0])
    running.start()
    assert held.is_in.wait(30)
    assert stage.slot.long_call() is None
    if then == "it ends":
        stage.slot.fail(Unavailable("enough"))
    held.may_return.set()
    wait_until(lambda: batches[0]() is None)
    stage.slot.fail(Unavailable("enough"))
    running.join(30)


def test_the_driver_tells_long_calls_and_warns_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = LongCalls()
    with caplog.at_level(logging.WARNING):
        for for_s in range(2, 100):
            calls.heard(1, LongCall(uid="spend", method="F.go", at="f.py, line 3", for_s=for_s))
            if for_s == 10:
                assert (calls.trouble, bool(calls.told())) == ("", True)
    assert len(caplog.records) == 3
    told = "slot 1: operator 'spend' has been in F.go (f.py, line 3) for 99 s"
    assert (calls.told(), calls.trouble) == (told, told)
    calls.heard(1, None)
    assert (calls.told(), calls.trouble) == ("", "")
