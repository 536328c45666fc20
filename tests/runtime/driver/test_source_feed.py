"""The driver's side of a source: batches and barriers take turns, and nothing is half done."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.driver.daemon_threads import DaemonThreads
from holdfast.runtime.driver.events import (
    CutFailed,
    EventQueue,
    SavepointRefused,
    SourceBacklog,
    SourceCut,
    SourceFailed,
)
from holdfast.runtime.driver.source_feed import Feed
from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.runtime.protocol.elements import Barrier, EndOfInput, Idle
from holdfast.runtime.protocol.messages import (
    Admit,
    MarkSource,
    RoomFor,
    ToSlot,
    Winner,
)
from holdfast.storage import (
    Fenced,
    SavepointFolder,
    StateSnapshot,
    Unavailable,
    load_storage,
)
from support.jobs.attempt_with_played_slots import PlayedSlot, PlayedSource, marks_of
from support.waiting import wait_until


class Stage:
    def __init__(self) -> None:
        self.slots = [PlayedSlot(), PlayedSlot()]
        self.source = PlayedSource("a", [])
        self.events = EventQueue()
        self.feed = Feed(self.source, self.slots, {0: "0", 1: "1"}, self.events)

    def admit(self, batch: int = 0) -> None:
        self.feed.admit(batch, [Winner(0, 1)], rows=5, watermark=9, admitted=self._move)

    def _move(self) -> None:
        self.source.at += 1


def test_a_barrier_does_not_wait_for_the_position_of_an_earlier_one() -> None:
    """Slots would wait for it, and with it for the barriers of all other sources."""
    stage, may_store = Stage(), threading.Event()
    stage.source.hold = may_store
    stage.feed.cut(7, None)
    stage.feed.cut(8, None)
    stage.feed.cut(9, None)
    wait_until(lambda: len(stage.slots[1].told) == 3)
    barriers = marks_of(stage.slots[1].told, Barrier)
    assert [each.checkpoint_id for each in barriers] == [7, 8, 9]
    stage.feed.give_up(8)
    assert stage.events.next(0) is None
    may_store.set()
    told = [stage.events.next(10) for _ in range(2)]
    assert [each.checkpoint_id for each in told if isinstance(each, SourceCut)] == [7, 9]


def test_ended_checkpoints_are_forgotten() -> None:
    """In whichever order they are stored and given up; one may run for months."""
    stage = Stage()
    for number in range(1, 20):
        stage.feed.cut(number, None)
        assert isinstance(stage.events.next(10), SourceCut)
        stage.feed.give_up(number)
    left = [each for each in vars(stage.feed).values() if isinstance(each, set)]
    assert left == [set()]


def test_a_backlog_is_reported_when_that_changes_and_ends_with_the_source() -> None:
    stage = Stage()
    for is_read in (False, True, True, False, True):
        stage.feed.reads_backlog(is_read=is_read)
    stage.feed.end()
    stage.feed.close()
    stage.feed.reads_backlog(is_read=True)
    told = [stage.events.next(0) for _ in range(5)]
    expected = [SourceBacklog("a", is_read) for is_read in (True, False, True, False)]
    assert told == [*expected, None]


def test_commands_are_numbered_and_go_to_all_slots() -> None:
    stage = Stage()
    stage.admit(3)
    stage.feed.idle()
    stage.feed.cut(7, 5)
    assert stage.events.next(10) == SourceCut(
        7, "a", StateSnapshot(kind="test/1", attributes={"at": 1})
    )
    stage.feed.end()
    expected = [
        Admit(source="a", sequence=1, batch=3, winners=[Winner(0, 1)], watermark=9),
        MarkSource(source="a", sequence=2, mark=Idle()),
        MarkSource(source="a", sequence=3, mark=Barrier(7, 5)),
        MarkSource(source="a", sequence=4, mark=EndOfInput()),
    ]
    assert [slot.told for slot in stage.slots] == [expected, expected]
    assert (stage.feed.rows, stage.feed.batches, stage.feed.has_ended) == (5, 1, True)


@pytest.mark.parametrize("slot", [0, 1])
def test_after_half_a_batch_there_is_no_barrier(slot: int) -> None:
    """The batch is in some slots, and the position before it: no checkpoint may hold that."""
    stage = Stage()
    stage.slots[slot].error = Unavailable("no answer")
    with pytest.raises(Unavailable, match="no answer"):
        stage.admit()
    stage.slots[slot].error = None
    stage.feed.cut(7, 5)
    failed = stage.events.next(10)
    assert isinstance(failed, SourceFailed)
    assert "a command of a source did not get to all slots" in failed.summary
    assert not marks_of(stage.slots[0].told, Barrier)
    assert stage.source.at == 0
    with pytest.raises(Unavailable, match="did not get to all slots"):
        stage.admit()


def test_a_barrier_that_some_slots_miss_fails_the_source() -> None:
    stage = Stage()
    stage.slots[1].error = Unavailable("no answer")
    stage.feed.cut(7, 5)
    failed = stage.events.next(10)
    assert failed == SourceFailed("a", "a barrier could not be sent: no answer", "")


def test_a_position_that_cannot_be_had_fails_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()

    def position() -> int:
        raise KeyError("a bug")

    monkeypatch.setattr(stage.source, "position", position)
    stage.feed.cut(7, 5)
    assert isinstance(stage.events.next(10), SourceFailed)


@pytest.mark.parametrize("error", [Unavailable("disk full"), OSError("disk full"), KeyError("x")])
def test_a_position_that_cannot_be_stored_fails_the_checkpoint_only(error: Exception) -> None:
    stage = Stage()
    stage.source.store_error = error
    stage.feed.cut(7, 5)
    assert stage.events.next(10) == CutFailed(7, "a", str(error))
    stage.admit()


def test_sources_are_stopped_once_the_attempt_is_over() -> None:
    stage = Stage()
    stage.feed.close()
    for call in (stage.admit, stage.feed.idle, stage.feed.end):
        with pytest.raises(Fenced):
            call()
    with pytest.raises(Fenced):
        stage.feed.await_room(0)
    stage.feed.fail("it broke", "")
    assert stage.events.next(0) is None, "the attempt is over"
    assert stage.feed.is_over
    assert all(isinstance(each, RoomFor) for slot in stage.slots for each in slot.told)


def test_a_failure_is_told() -> None:
    stage = Stage()
    stage.feed.fail("it broke", "here", is_fatal=True)
    assert stage.events.next(0) == SourceFailed("a", "it broke", "here", is_fatal=True)


@pytest.mark.parametrize("is_released", [False, True])
def test_a_source_that_fails_while_it_is_held_tells_if_it_is_to_go_on(
    tmp_path: Path, *, is_released: bool
) -> None:
    """If the savepoint that it is held for ends the job, it has met slots that had ended."""
    stage = Stage()
    order = SavepointOrder(
        SavepointFolder.begin(load_storage(str(tmp_path)), "job"),
        SavepointFormat.NATIVE,
        SavepointPurpose.STOP,
    )
    stage.feed.cut(7, 5, order)
    wait_until(lambda: stage.feed.is_held)
    stage.feed.fail("Connection refused", "here")
    if is_released:
        stage.feed.release()
    stage.feed.close()
    told = [event for _ in range(3) if (event := stage.events.next(0.2)) is not None]
    assert (SourceFailed("a", "Connection refused", "here") in told) is is_released


def test_room_is_awaited_in_all_slots_and_not_after_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    answers = iter([False, False, True])
    asked: list[ToSlot] = []

    def call(message: ToSlot) -> bool:
        asked.append(message)
        return next(answers)

    monkeypatch.setattr(stage.slots[0], "call", call)
    stage.feed.await_room(100)
    assert asked == [RoomFor(source="a", limit_bytes=100, timeout_s=1.0)] * 3
    assert len(stage.slots[1].told) == 1

    def full(_: ToSlot) -> bool:
        stage.feed.close()
        return False

    monkeypatch.setattr(stage.slots[0], "call", full)
    with pytest.raises(Fenced):
        stage.feed.await_room(100)


def test_batches_and_barriers_take_turns() -> None:
    """A position tells how many batches came before the barrier, however threads interleave."""
    stage = Stage()
    batches, cuts = 300, 60
    begin = threading.Barrier(2)

    def feed_all() -> None:
        begin.wait(10)
        for batch in range(batches):
            stage.admit(batch)

    with ThreadPoolExecutor(1) as feeding:
        done = feeding.submit(feed_all)
        begin.wait(10)
        for number in range(cuts):
            stage.feed.cut(number, None)
        found = [stage.events.next(10) for _ in range(cuts)]
        done.result(10)
    for slot in stage.slots:
        sequences = [each.sequence for each in slot.told]  # type: ignore[union-attr]
        assert sequences == [*range(1, batches + cuts + 1)]
        before = {
            each.mark.checkpoint_id: place - each.mark.checkpoint_id
            for place, each in enumerate(slot.told)
            if isinstance(each, MarkSource) and isinstance(each.mark, Barrier)
        }
        for cut in found:
            assert isinstance(cut, SourceCut)
            assert cut.position.attributes == {"at": before[cut.checkpoint_id]}


def test_a_slow_savepoint_place_delays_no_barrier(tmp_path: Path) -> None:
    stage, is_quick = Stage(), threading.Event()
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "job")
    stores = stage.source.store

    def store(position: int, number: int, **given: Any) -> StateSnapshot:
        if given["savepoint"] is not None:
            assert is_quick.wait(30)
        return stores(position, number, **given)

    stage.source.store = store  # type: ignore[method-assign, assignment]
    stage.feed.cut(7, None, SavepointOrder(folder, SavepointFormat.NATIVE))
    stage.feed.cut(8, 6)
    cut = stage.events.next(10)
    assert isinstance(cut, SourceCut)
    assert cut.checkpoint_id == 8
    is_quick.set()
    cut = stage.events.next(10)
    assert isinstance(cut, SourceCut)
    assert cut.checkpoint_id == 7
    barriers = marks_of(stage.slots[0].told, Barrier)
    assert [each.checkpoint_id for each in barriers] == [7, 8]


class Meeting:
    """Has all slots answer together, so that each must have been asked."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self._barrier = threading.Barrier(len(stage.slots))
        for slot in stage.slots:
            monkeypatch.setattr(slot, "call", self._answer)

    def _answer(self, _message: ToSlot) -> bool:
        self._barrier.wait(20)
        return True


def test_slots_are_told_and_asked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    Meeting(stage, monkeypatch)
    stage.feed.await_room(100)
    stage.admit()
    stage.feed.idle()
    stage.feed.cut(7, None)
    assert isinstance(stage.events.next(20), SourceCut)
    stage.feed.end()


def test_a_command_that_failed_is_not_under_way_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes next from the source, or from another attempt of it, must not meet it."""
    stage, may_answer, has_failed = Stage(), threading.Event(), threading.Event()

    def fail(_message: ToSlot) -> bool:
        has_failed.set()
        raise Unavailable("no answer")

    def answer_late(_message: ToSlot) -> bool:
        return may_answer.wait(30)

    monkeypatch.setattr(stage.slots[0], "call", fail)
    monkeypatch.setattr(stage.slots[1], "call", answer_late)
    with ThreadPoolExecutor(1) as feeding:
        admitting = feeding.submit(stage.admit)
        assert has_failed.wait(10)
        with pytest.raises(TimeoutError):
            admitting.result(0.3)
        may_answer.set()
        assert isinstance(admitting.exception(10), Unavailable)


def test_a_call_for_which_there_is_no_thread_leaves_no_other_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was taken for the end of the attempt, and the batch went on to the other slots."""
    stage, may_answer = Stage(), threading.Event()
    submit = DaemonThreads.submit

    def runs_out(threads: DaemonThreads, call: Any, *arguments: Any) -> Future[Any]:
        if call == stage.slots[1].call:
            threading.Timer(0.2, may_answer.set).start()
            raise Unavailable("a thread cannot be started")
        return submit(threads, lambda: may_answer.wait(30) and call(*arguments))

    monkeypatch.setattr(DaemonThreads, "submit", runs_out)
    with pytest.raises(Unavailable, match="a thread cannot be started"):
        stage.admit()
    assert len(stage.slots[0].told) == 1


@pytest.mark.parametrize("command", ["admit", "await_room"])
def test_a_slot_that_stands_still_does_not_hold_up_the_end(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, is_asked, may_answer = Stage(), threading.Event(), threading.Event()

    def stand_still(_message: ToSlot) -> bool:
        is_asked.set()
        return may_answer.wait(30)

    monkeypatch.setattr(stage.slots[1], "call", stand_still)
    calls = {"admit": stage.admit, "await_room": lambda: stage.feed.await_room(1)}
    with ThreadPoolExecutor(1) as feeding:
        calling = feeding.submit(calls[command])
        assert is_asked.wait(10)
        stage.feed.close()
        assert isinstance(calling.exception(10), Fenced)
        may_answer.set()


@pytest.mark.parametrize("error", [ValueError("too large"), TimeoutError("of the network")])
def test_a_command_fails_whatever_a_call_raises(error: Any) -> None:
    stage = Stage()
    stage.slots[1].error = error
    with pytest.raises(type(error)):
        stage.admit()
    with pytest.raises(Unavailable, match="did not get to all slots"):
        stage.admit()


@pytest.mark.parametrize("answer", [True, False, ValueError("too large"), Unavailable("gone")])
def test_a_barrier_of_a_savepoint_waits_until_all_slots_will_take_part(
    answer: Any,
) -> None:
    stage = Stage()
    willing, asked = Future[bool](), Future[bool]()
    willing.set_result(True)
    stage.feed.cut(7, None, None, (willing, asked))
    stage.feed.cut(8, None)
    assert stage.events.next(0.2) is None
    assert not stage.slots[0].told
    if isinstance(answer, Exception):
        asked.set_exception(answer)
    else:
        asked.set_result(answer)
    told = [stage.events.next(10), stage.events.next(10)]
    barriers = [each.checkpoint_id for each in marks_of(stage.slots[0].told, Barrier)]
    assert isinstance(told[1], SourceCut)
    if answer is True:
        assert barriers == [7, 8]
    else:
        assert told[0] == SavepointRefused(7)
        assert barriers == [8]
