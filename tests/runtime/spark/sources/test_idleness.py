"""When a source counts as idle, told without Spark."""

from __future__ import annotations

from holdfast.runtime.spark.sources.query_progress import Idleness
from holdfast.runtime.spark.sources.source_parts import SourceTime
from holdfast.runtime.stream import SourceWatermark


def test_silence_makes_it_idle_once() -> None:
    idleness = Idleness(1000, now_s=10)
    assert not idleness.is_due(10.9)
    assert idleness.is_due(11)
    idleness.was_reported()
    assert not idleness.is_due(99)
    assert not idleness.may_be


def test_a_source_without_an_idle_timeout_is_never_idle() -> None:
    idleness = Idleness(None, now_s=0)
    assert not idleness.is_due(1e9)
    assert not idleness.may_be


def test_rows_end_it_and_it_comes_again() -> None:
    idleness = Idleness(1000, now_s=0)
    idleness.was_reported()
    idleness.was_read(5, 6, rows=1)
    assert idleness.may_be
    assert not idleness.is_due(6.9)
    assert idleness.is_due(7)


def test_reading_is_no_silence() -> None:
    idleness = Idleness(1000, now_s=0)
    idleness.was_read(0.5, 60.5, rows=3)
    assert not idleness.is_due(61.4)
    idleness.was_read(61, 91, rows=0)
    assert not idleness.is_due(91.4), "half a second before the batch, and 0.4 after it"
    assert idleness.is_due(91.5)


def test_a_batch_without_rows_does_not_wake_it() -> None:
    idleness = Idleness(1000, now_s=0)
    idleness.was_reported()
    idleness.was_read(5, 6, rows=0)
    assert not idleness.may_be


def test_a_batch_without_rows_has_no_watermark() -> None:
    """The last one, said again, would have slots wait for a source that is idle."""
    time = SourceTime(SourceWatermark("ts", max_delay_ms=10, idle_after_ms=None))
    assert time.after([None, None]) is None
    assert time.after([100, None, 90]) == 89
    assert time.after([None]) is None
    assert time.after([50]) == 89
    assert SourceTime(None).after([50]) is None
