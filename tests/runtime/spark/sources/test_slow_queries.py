"""A query that Spark has not started yet, without Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
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

    def query_id(self) -> str:
        """The id in the log of the latest query that was to start."""
        name, location = self.writeStream.option.call_args.args
        assert name == "checkpointLocation"
        metadata = Path(location.removeprefix("file://")) / "metadata"
        return str(json.loads(metadata.read_text())["id"])

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


def test_the_queries_of_a_run_have_one_id_as_long_as_each_is_seen_to_stop(
    frame: SlowFrame, events: EventQueue
) -> None:
    """Spark waited for one that hung, without a limit, and no job could start a query."""
    frame.may_start.set()
    ids = []

    def attempt() -> Source:
        source = frame.open()
        feed = Feed(source, [], {}, events)
        source.start(feed)
        ids.append(frame.query_id())
        feed.close()
        return source

    attempt().stop()
    hanging = attempt()
    last = attempt()
    hanging.stop()
    attempt().stop()
    last.stop()
    assert ids[0] == ids[1]
    assert len({*ids[1:]}) == 3


def test_a_query_is_not_started_for_an_attempt_that_is_over(
    frame: SlowFrame, events: EventQueue
) -> None:
    source = frame.open()
    feed = Feed(source, [], {}, events)
    feed.close()
    source.start(feed)
    source.stop()
    assert not frame.is_starting.is_set()


def test_a_start_that_hangs_does_not_hold_up_others_for_long(
    frame: SlowFrame, events: EventQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = "holdfast.runtime.spark.sources.query_progress"
    monkeypatch.setattr(f"{progress}._LONGEST_START_S", 0.1)
    other_frame = SlowFrame()
    other_frame.may_start.set()
    hanging, other = frame.open(), other_frame.open()
    starting = threading.Thread(target=hanging.start, args=(Feed(hanging, [], {}, events),))
    starting.start()
    assert frame.is_starting.wait(60)
    feed = Feed(other, [], {}, events)
    other.start(feed)
    assert other_frame.is_starting.is_set()
    feed.close()
    other.stop()
    frame.may_start.set()
    starting.join()
    hanging.stop()
