"""Rows as JSON and CSV, compared with what Python's own readers make of them."""

import csv
import io
import json
import math
from base64 import b64decode
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.sinks.files.csv_lines import csv_header, csv_lines, misfit_of_csv
from holdfast.runtime.sinks.files.json_lines import json_lines, misfit_of_json

TEXTS = ["", "plain", 'a "quote"', "back\\slash", "line\nbreak\r\ttab", "\x00\x1f", "é€😀", None]


def column_of(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, kind)], names=["c"])


def objects(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    lines = bytes(json_lines(batch)).decode().split("\n")
    assert lines.pop() == ""
    return [json.loads(line, parse_float=Decimal) for line in lines]


def values(kind: pa.DataType, items: list[Any]) -> list[Any]:
    """The column as JSON; also when the batch is a part of a longer one."""
    assert misfit_of_json(kind) is None
    whole = column_of([None, *items, *items], kind)
    found = [row["c"] for row in objects(whole.slice(1, len(items)))]
    assert found == [row["c"] for row in objects(column_of(items, kind))]
    return found


def fields(kind: pa.DataType, items: list[Any], *, beside: bool = True) -> list[str]:
    """The column as CSV, read by Python; beside another one, as a null of one column is text."""
    assert misfit_of_csv(kind) is None
    batch = column_of(items, kind)
    if beside:
        batch = batch.append_column("d", pa.array(["x"] * len(items)))
    text = bytes(csv_lines(batch)).decode()
    return [row[0] for row in csv.reader(io.StringIO(text, newline=""))]


def test_text_is_escaped() -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert values(kind, TEXTS) == TEXTS
        assert fields(kind, TEXTS) == [text or "" for text in TEXTS]


@given(st.lists(st.none() | st.text()))
def test_any_text_comes_back(texts: list[str | None]) -> None:
    assert values(pa.string(), texts) == texts
    assert fields(pa.string(), texts) == [text or "" for text in texts]


def test_whole_numbers_and_truth_values() -> None:
    assert values(pa.int64(), [-(2**63), 0, 2**63 - 1, None]) == [-(2**63), 0, 2**63 - 1, None]
    assert values(pa.uint64(), [2**64 - 1]) == [2**64 - 1]
    assert values(pa.bool_(), [True, False, None]) == [True, False, None]
    assert fields(pa.bool_(), [True, False, None]) == ["true", "false", ""]
    assert values(pa.null(), [None, None]) == [None, None]


def test_floats_are_seen_to_be_floats() -> None:
    items = [1.0, -0.0, 0.1, 1e300, 5e-324, 123456789.0, None]
    found = values(pa.float64(), items)
    assert all(isinstance(each, Decimal) for each in found[:-1])
    assert [each if each is None else float(each) for each in found] == items
    assert math.copysign(1, float(found[1])) == -1
    assert fields(pa.float64(), [1.0, None, 0.1]) == ["1.0", "", "0.1"]
    assert values(pa.float32(), [0.1, 16777216.0]) == [Decimal("0.1"), Decimal("16777216.0")]
    assert values(pa.float16(), [0.5, 2.0]) == [Decimal("0.5"), Decimal("2.0")]


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_any_float_comes_back(floats: list[float | None]) -> None:
    found = values(pa.float64(), floats)
    assert [each if each is None else float(each) for each in found] == floats


def test_floats_that_are_no_numbers() -> None:
    items = [math.nan, math.inf, -math.inf, 1.5, None]
    assert values(pa.float64(), items) == ["NaN", "Infinity", "-Infinity", Decimal("1.5"), None]
    assert fields(pa.float64(), items) == ["NaN", "Inf", "-Inf", "1.5", ""]


def test_decimals_keep_their_digits() -> None:
    digits = Decimal("-12345678901234567890123456.789012345678")
    kind = pa.decimal128(38, 12)
    assert values(kind, [digits, Decimal("1E-12"), None]) == [digits, Decimal("1E-12"), None]
    assert Decimal(fields(kind, [digits])[0]) == digits


def test_dates_and_times_are_iso() -> None:
    assert values(pa.date32(), [date(2024, 2, 29), None]) == ["2024-02-29", None]
    assert values(pa.date64(), [date(2024, 2, 29)]) == ["2024-02-29"]
    assert values(pa.time64("us"), [time(1, 2, 3, 4)]) == ["01:02:03.000004"]
    moment = datetime(2024, 2, 29, 13, 4, 5, 678, tzinfo=timezone(timedelta(hours=2)))
    for zone in ("UTC", "Europe/Berlin", "+05:00"):
        (text,) = values(pa.timestamp("us", zone), [moment])
        assert text == "2024-02-29T11:04:05.000678Z"
        assert datetime.fromisoformat(text) == moment.astimezone(UTC)
    # Without a zone: whole numbers of seconds or microseconds from 1970.
    assert values(pa.timestamp("us"), [-1, None]) == ["1969-12-31T23:59:59.999999", None]
    assert values(pa.timestamp("s"), [-62_135_596_800]) == ["0001-01-01T00:00:00"]
    assert fields(pa.timestamp("ms", "UTC"), [moment]) == ["2024-02-29T11:04:05.000Z"]


def test_binary_is_base64() -> None:
    items = [b"", bytes(range(256)), None]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        found = values(kind, items)
        assert [each if each is None else b64decode(each) for each in found] == items


def test_dictionaries_are_their_values() -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    assert values(kind, ["a", None, "b", "a"]) == ["a", None, "b", "a"]
    assert fields(kind, ["a", None, "b", "a"]) == ["a", "", "b", "a"]


NESTED = st.none() | st.fixed_dictionaries(
    {
        "list": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
        "map": st.none()
        | st.dictionaries(
            st.text(max_size=3), st.none() | st.lists(st.integers(0, 9), max_size=2), max_size=3
        ),
        "inner": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(-9, 9)}),
        "pair": st.none() | st.lists(st.booleans(), min_size=2, max_size=2),
    }
)
NESTED_TYPE = pa.struct(
    {
        "list": pa.list_(pa.string()),
        "map": pa.map_(pa.string(), pa.list_(pa.int64())),
        "inner": pa.struct({"x": pa.int8()}),
        "pair": pa.list_(pa.bool_(), 2),
    }
)


@given(st.lists(NESTED))
def test_any_nested_value_comes_back(items: list[Any]) -> None:
    def arrow(item: Any) -> Any:
        if item is None or item["map"] is None:
            return item
        return {**item, "map": list(item["map"].items())}

    assert values(NESTED_TYPE, [arrow(item) for item in items]) == items
    lists = [None if item is None else [arrow(item), None] for item in items]
    expected = [None if item is None else [item, None] for item in items]
    assert values(pa.large_list(NESTED_TYPE), lists) == expected


def test_names_of_columns_are_escaped() -> None:
    batch = pa.record_batch([[1], [2]], names=['a "b"', "c,d"])
    assert objects(batch) == [{'a "b"': 1, "c,d": 2}]
    header = bytes(csv_header(batch.schema)).decode()
    assert header == '"a ""b""","c,d"\n'


def test_a_null_alone_in_its_line_does_not_make_it_empty() -> None:
    assert bytes(csv_lines(column_of([1, None, 3], pa.int64()))) == b'1\n""\n3\n'
    assert bytes(csv_header(column_of([], pa.null()).schema)) == b"c\n"


def test_null_and_empty_text_differ() -> None:
    batch = pa.record_batch([["", None], ["x", "y"]], names=["a", "b"])
    assert bytes(csv_lines(batch)) == b'"",x\n,y\n'


@pytest.mark.parametrize(
    ("kind", "misfit"),
    [
        (pa.duration("us"), "duration[us]"),
        (pa.month_day_nano_interval(), "month_day_nano_interval"),
        (pa.list_(pa.duration("us")), "duration[us]"),
        (pa.map_(pa.int64(), pa.string()), "map<int64, string>"),
        (pa.map_(pa.string(), pa.duration("s")), "duration[s]"),
        (pa.struct({"a": pa.int8(), "b": pa.struct({"c": pa.duration("s")})}), "duration[s]"),
        (pa.struct([]), "struct<>"),
        (pa.dense_union([pa.field("a", pa.int8())]), "dense_union<a: int8=0>"),
    ],
)
def test_types_that_json_lacks_are_named(kind: pa.DataType, misfit: str) -> None:
    assert misfit_of_json(kind) == misfit


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.struct({"a": pa.int8()}), pa.binary(), pa.duration("s")]
)
def test_types_that_csv_lacks_are_named(kind: pa.DataType) -> None:
    assert misfit_of_csv(kind) == str(kind)
