"""A source that hangs when it is started or stopped holds up nothing for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from holdfast.runtime.driver.events import EventQueue, SourceFailed
from holdfast.runtime.driver.source_feed import Feed
from holdfast.runtime.driver.source_thread import SourceThread
from holdfast.storage import ManualClock, SystemClock, Unavailable
from support.jobs.attempt_with_played_slots import PlayedSource
from support.waiting import wait_until


class HangingSource(PlayedSource):
    """Waits where it is told to, until it may go on."""

    def __init__(self, hangs_in: str) -> None:
        super().__init__("a", [])
        self.may_go_on = threading.Event()
        self._hangs_in = hangs_in

    def start(self, feed: Feed) -> None:
        self._hang("start")
        super().start(feed)

    def stop(self) -> None:
        self._hang("stop")
        assert self.feed is not None, "a source is stopped behind its start"
        super().stop()

    def _hang(self, where: str) -> None:
        if where == self._hangs_in:
            assert self.may_go_on.wait(30)


@pytest.fixture
def events() -> EventQueue:
    return EventQueue()


@pytest.fixture
def feed(events: EventQueue) -> Iterator[Feed]:
    feed = Feed(PlayedSource("a", []), [], {}, events)
    yield feed
    feed.close()


@pytest.mark.parametrize("hangs_in", ["start", "stop"])
def test_one_that_hangs_is_left_to_itself_and_stopped_when_it_goes_on(
    hangs_in: str,
    feed: Feed,
    events: EventQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("holdfast.runtime.driver.source_thread._STOPPED_WITHIN_S", 0.1)
    source = HangingSource(hangs_in)
    thread = SourceThread(source, events, SystemClock())
    thread.start(feed)
    wait = thread.stop()
    wait()
    assert caplog.messages == ["source 'a' has not stopped for 0.1 s, and is left to itself"]
    assert source.stopped == 0
    source.may_go_on.set()
    wait_until(lambda: source.stopped == 1)


def test_sources_that_hang_are_waited_for_side_by_side(
    events: EventQueue, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    hanging = HangingSource("stop")
    wait = SourceThread(hanging, events, clock).stop()
    clock.advance(60_000)  # so long others were waited for
    wait()
    assert caplog.messages == ["source 'a' has not stopped for 60 s, and is left to itself"]
    hanging.may_go_on.set()


def test_one_that_cannot_start_has_failed(feed: Feed, events: EventQueue) -> None:
    source = PlayedSource("a", [])
    source.error = Unavailable("no broker")
    thread = SourceThread(source, events, SystemClock())
    thread.start(feed)
    thread.stop()()
    assert events.next(10) == SourceFailed("a", "no broker", "")
    assert source.stopped == 1


def test_one_that_cannot_be_stopped_says_so_to_whom_waits(events: EventQueue) -> None:
    source = PlayedSource("a", [])
    source.stop_error = RuntimeError("stuck")
    with pytest.raises(RuntimeError, match="stuck"):
        SourceThread(source, events, SystemClock()).stop()()
