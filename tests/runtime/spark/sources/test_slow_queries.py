"""A query that Spark has not started yet, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from holdfast.runtime.driver.events import EventQueue, SourceCut
from holdfast.runtime.driver.run_parts import SourceOpening
from holdfast.runtime.driver.source_feed import Feed, Source
from holdfast.runtime.network import Credentials
from holdfast.runtime.spark.sources.query_source import QuerySourcePlan
from holdfast.runtime.stream import SourceFrame
from holdfast.storage import SystemClock, Unavailable, load_storage


class SlowFrame:
    """A DataFrame whose query Spark starts when it may."""

    def __init__(self) -> None:
        self.sparkSession = MagicMock()
        self.writeStream = MagicMock()
        for setting in ("foreachBatch", "queryName", "option"):
            getattr(self.writeStream, setting).return_value = self.writeStream
        self.writeStream.start.side_effect = self._start
        self.may_start = threading.Event()
        self.is_starting = threading.Event()
        self.error: Exception | None = None
        frame: Any = self
        self._plan = QuerySourcePlan(SourceFrame(frame, is_bounded=False))

    def open(self) -> Source:
        nothing: Any = MagicMock()
        return self._plan.open(
            SourceOpening(
                uid="in",
                edges=(),
                plan=nothing,
                credentials=Credentials(token="secret", attempt=1),
                job=load_storage("memory").job("job"),
                restored=None,
                restored_from=nothing,
                clock=SystemClock(),
            )
        )

    def _start(self) -> Any:
        self.is_starting.set()
        assert self.may_start.wait(60)
        if self.error is not None:
            raise self.error
        return MagicMock()


@pytest.fixture
def frame(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowFrame]:
    monkeypatch.setattr("holdfast.runtime.spark.sources.query_source._FIRST_LOOK_S", 0.0)
    frame = SlowFrame()
    yield frame
    frame.may_start.set()


@pytest.fixture
def events() -> EventQueue:
    return EventQueue()


def test_no_checkpoint_is_complete_before_its_query_has_started(
    frame: SlowFrame, events: EventQueue
) -> None:
    """A restore began at what was "latest" then, and rows were lost without a word."""
    source = frame.open()
    feed = Feed(source, [], {}, events)
    starting = threading.Thread(target=source.start, args=(feed,))
    starting.start()
    assert frame.is_starting.wait(60)
    feed.cut(1, None)
    assert events.next(0.5) is None
    frame.may_start.set()
    assert isinstance(events.next(60), SourceCut)
    starting.join()
    feed.close()
    source.stop()


def test_without_a_query_there_is_no_position(frame: SlowFrame, events: EventQueue) -> None:
    frame.error = RuntimeError("no")
    frame.may_start.set()
    source = frame.open()
    feed = Feed(source, [], {}, events)
    source.start(feed)
    with pytest.raises(Unavailable, match="has no beginning yet"):
        source.store(source.position(), 1, completed=None)
    feed.close()
    source.stop()
