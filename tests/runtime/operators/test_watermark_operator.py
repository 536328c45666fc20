"""Event time out of a column, watermarks behind it, and idleness by the clock."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from holdfast.runtime.operators import WatermarkSpec
from holdfast.runtime.protocol.elements import EVENT_TIME, MAX_WATERMARK
from holdfast.storage import Invalid
from support.jobs.operator_runs import Collected, Slot, running


def spec_of(kind: pa.DataType = pa.int64(), **options: Any) -> WatermarkSpec:  # noqa: B008
    schema = pa.schema([("user", pa.string()), ("at", kind)])
    settings = {"uid": "op", "name": "w", "input_schema": schema, "output_schema": schema}
    return WatermarkSpec(**{**settings, "column": "at", **options})


def marks(slot: Slot) -> list[int | str]:
    found, slot.output.marks = slot.output.marks, []
    return found


def test_watermarks_follow_the_latest_time_and_never_go_back() -> None:
    with running(spec_of(max_delay_ms=10)) as slot:
        assert slot.feed([("a", 100), ("b", 50)]) == [("a", 100, 100), ("b", 50, 50)]
        assert marks(slot) == [89]
        assert slot.feed([]) == []
        slot.feed([("a", 70)])
        slot.feed([("a", 100)])
        assert marks(slot) == []
        slot.feed([("a", 101)])
        assert marks(slot) == [90]
        assert slot.operator.next_tick_ms() is None


def test_watermarks_from_before_end_here_but_for_the_last() -> None:
    with running(spec_of(has_event_time=True)) as slot:
        assert slot.operator.makes_event_time
        assert slot.feed([("a", 5)], [99_999]) == [("a", 5, 5)]
        slot.operator.advance(7)
        assert marks(slot) == [4]
        slot.operator.advance(MAX_WATERMARK)
        assert marks(slot) == [MAX_WATERMARK]


class Ordered(Collected):
    """Marks where rows came, too."""

    def emit(self, batch: pa.RecordBatch) -> None:
        self.marks.append("rows")


def test_rows_come_before_their_watermark() -> None:
    with running(spec_of(), output=Ordered()) as slot:
        slot.feed([("a", 5)])
        assert marks(slot) == ["rows", 4]


def test_time_waits_for_rows_after_a_silence_before_they_come() -> None:
    with running(spec_of(idle_after_ms=100), output=Ordered()) as slot:
        slot.tick(1_100)
        slot.feed([("a", 5)])
        assert marks(slot) == ["idle", "active", "rows", 4]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.timestamp("s"), [-1, 2], [-1000, 2000]),
        (pa.timestamp("ms", "UTC"), [-1, 2], [-1, 2]),
        (pa.timestamp("us", "Europe/Berlin"), [-1, 1_999], [-1, 1]),
        (pa.timestamp("ns"), [-1_000_001, 1_999_999], [-2, 1]),
    ],
)
def test_timestamps_become_milliseconds(
    kind: pa.DataType, values: list[int], expected: list[int]
) -> None:
    with running(spec_of(kind)) as slot:
        column = pa.array(values).cast(kind)
        schema = slot.spec.input_schema
        slot.operator.process(
            pa.RecordBatch.from_arrays([pa.array(["a", "b"]), column], schema=schema), 0
        )
        (batch,) = slot.output.batches
        assert batch.schema == schema.append(pa.field(EVENT_TIME, pa.int64()))
        assert batch.column(2).to_pylist() == expected
        assert marks(slot) == [max(expected) - 1]


def test_datetimes() -> None:
    moment = dt.datetime(2024, 7, 1, 12, 30, tzinfo=dt.UTC)
    with running(spec_of(pa.timestamp("us", "UTC"))) as slot:
        ((_, _, found),) = slot.feed([("a", moment)])
        assert found == round(moment.timestamp() * 1000)


def test_idleness_by_the_clock() -> None:
    with running(spec_of(idle_after_ms=100)) as slot:
        assert slot.operator.next_tick_ms() == 1_100
        slot.tick(1_099)
        assert marks(slot) == []
        slot.tick(1_100)
        assert marks(slot) == ["idle"]
        assert slot.operator.next_tick_ms() is None
        slot.tick(5_000)
        assert marks(slot) == []
        slot.feed([("a", 50)])
        assert marks(slot) == ["active", 49]
        assert slot.operator.next_tick_ms() == 5_100
        slot.tick(5_050)
        slot.feed([("a", 60)])
        slot.feed([])
        assert slot.operator.next_tick_ms() == 5_150
        slot.tick(5_150)
        assert marks(slot) == [59, "idle"]
        slot.feed([("a", 10)])
        assert marks(slot) == ["active"], "also where no watermark follows the rows"
        slot.operator.advance(MAX_WATERMARK)
        slot.tick(99_999)
        assert marks(slot) == [MAX_WATERMARK]
        assert slot.operator.next_tick_ms() is None


def test_times_at_the_ends_of_64_bits() -> None:
    with running(spec_of(max_delay_ms=5)) as slot:
        slot.feed([("a", -(2**63))])
        assert marks(slot) == []
        slot.feed([("a", 2**63 - 1)])
        assert marks(slot) == [2**63 - 7]


def test_nulls_in_the_time() -> None:
    with running(spec_of()) as slot, pytest.raises(Invalid) as caught:
        slot.feed([("a", 1), ("b", None), ("c", None)])
    error = caught.value
    assert error.what == "column 'at', the event time, has a null"
    assert error.where == "operator 'op', row 1 of a batch of 3"
    assert error.found == "2 nulls"
    assert error.fix == "Drop such rows first, or fill in a value"


@pytest.mark.parametrize(
    ("options", "what", "found"),
    [
        ({"column": "when"}, "there is no column 'when' for event time", "no column of that name"),
        ({"column": "user"}, "column 'user' cannot be event time", "string"),
        ({"kind": pa.int32()}, "column 'at' cannot be event time", "int32"),
        ({"kind": pa.date32()}, "column 'at' cannot be event time", "date32[day]"),
        (
            {"max_delay_ms": -1},
            "a time of a watermark is not legal",
            "max_delay_ms=-1, idle_after_ms=None",
        ),
        (
            {"idle_after_ms": 0},
            "a time of a watermark is not legal",
            "max_delay_ms=0, idle_after_ms=0",
        ),
        (
            {"output_schema": pa.schema([("at", pa.int64())])},
            "an operator for watermarks keeps the schema",
            "at",
        ),
    ],
)
def test_specs_that_are_refused(options: dict[str, Any], what: str, found: str) -> None:
    with pytest.raises(Invalid) as caught:
        spec_of(**options)
    assert (caught.value.what, caught.value.where) == (what, "operator 'op'")
    assert caught.value.found == found
