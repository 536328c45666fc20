"""The driver's deciding thread waits for no slot, and no slot for another one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.runtime.driver.events import EventQueue, SlotLost
from holdfast.runtime.driver.slot_lines import SlotLines
from holdfast.runtime.protocol.messages import (
    CancelAttempt,
    CheckpointAborted,
    CheckpointCompleted,
    Finish,
    ToSlot,
)
from holdfast.storage import SystemClock, Unavailable
from support.jobs.attempt_with_played_slots import PlayedSlot
from support.waiting import wait_until


class HangingSlot(PlayedSlot):
    """Answers nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()

    def call(self, message: ToSlot) -> bool:
        assert self.may_answer.wait(30)
        return super().call(message)


class Stage:
    def __init__(self) -> None:
        self.events = EventQueue()
        self.hanging, self.slot = HangingSlot(), PlayedSlot()
        self.lines = SlotLines(self.events, SystemClock())
        self.lines.add(0, self.hanging)
        self.lines.add(1, self.slot)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.hanging.may_answer.set()
    stage.lines.close()
    assert stage.hanging.is_closed
    assert stage.slot.is_closed


def test_a_slot_that_hangs_holds_up_neither_caller_nor_others_and_hears_all_in_order(
    stage: Stage,
) -> None:
    told: list[ToSlot] = [CheckpointCompleted(1), CheckpointAborted(2), Finish()]
    answers = [stage.lines.tell(message) for message in told]
    assert [each[1].result(10) for each in answers] == [True] * 3
    assert stage.slot.told == told
    assert not any(each[0].done() for each in answers)
    stage.hanging.may_answer.set()
    assert answers[-1][0].result(10)
    assert stage.hanging.told == told
    assert stage.events.next(0) is None


def test_a_slot_that_cannot_be_reached_is_lost_unless_it_may_be_gone(stage: Stage) -> None:
    stage.slot.error = Unavailable("no route")
    stage.lines.tell(CheckpointAborted(1), may_be_gone=True)
    told = stage.lines.tell(CheckpointCompleted(2))
    assert stage.events.next(10) == SlotLost(1, "no route")
    assert isinstance(told[1].exception(10), Unavailable)
    assert stage.events.next(0) is None


def test_a_slot_is_lost_whatever_a_call_raises(stage: Stage) -> None:
    """No answer is read: the attempt waited for ever for a slot that was not told."""
    error: Any = ValueError("too large")
    stage.slot.error = error
    stage.lines.tell(Finish(), may_be_gone=True)
    assert stage.events.next(10) == SlotLost(1, "ValueError('too large')")
    stage.hanging.may_answer.set()
    assert stage.lines.tell_last(CancelAttempt("over"), in_order=False) == {1}


def test_a_process_that_is_gone_is_reported_though_nothing_is_said(stage: Stage) -> None:
    assert stage.slot.on_lost is not None
    stage.slot.on_lost(Unavailable("refused"))
    assert stage.events.next(0) == SlotLost(1, "refused")


def test_the_last_command_overtakes_others_and_waits_for_no_slot_for_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.runtime.driver.slot_lines._ANSWERED_WITHIN_S", 0.2)
    last = CancelAttempt("over")
    stage.lines.tell(Finish())
    assert stage.lines.tell_last(last, in_order=False) == {0}
    assert last in stage.slot.told
    stage.hanging.may_answer.set()
    wait_until(lambda: last in stage.hanging.told)
    stage.slot.error = Unavailable("gone")
    assert stage.lines.tell_last(last, in_order=False) == {1}


def test_the_last_command_of_a_job_comes_behind_a_checkpoint_that_is_complete(
    stage: Stage,
) -> None:
    """A slot that had not yet heard of it did not commit its output, and no other did."""
    told: list[ToSlot] = [CheckpointCompleted(1), CancelAttempt("over")]
    stage.lines.tell(told[0])
    threading.Timer(0.2, stage.hanging.may_answer.set).start()
    assert stage.lines.tell_last(told[1], in_order=True) == set()
    assert stage.hanging.told == stage.slot.told == told


def test_connections_are_closed_side_by_side_and_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("holdfast.runtime.driver.slot_lines._CLOSED_WITHIN_S", 0.2)
    both, may_close = threading.Barrier(2), threading.Event()

    class Together(PlayedSlot):
        def close(self) -> None:
            both.wait(30)
            super().close()

    class Hanging(PlayedSlot):
        def close(self) -> None:
            assert may_close.wait(30)

    lines, slots = SlotLines(EventQueue(), SystemClock()), [Together(), Together(), Hanging()]
    for number, slot in enumerate(slots):
        lines.add(number, slot)
    lines.close()
    wait_until(lambda: slots[0].is_closed and slots[1].is_closed)
    assert "the connection to slot 2 is not closed yet" in caplog.messages
    may_close.set()
