"""Rows: there and back through Arrow, of every type; and what does not fit, with exact parts."""

from __future__ import annotations

import datetime as dt
from collections import namedtuple
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from holdfast.runtime.columns.rows import RowReader, RowWriter
from holdfast.storage import Invalid

BERLIN = ZoneInfo("Europe/Berlin")
MOMENT = dt.datetime(2024, 7, 1, 12, 30, 15, 123456, tzinfo=dt.UTC)
NAIVE = MOMENT.replace(tzinfo=None)
POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), ("y", pa.float64())])
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 127]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.uint64(), [0, 2**64 - 1]),
    (pa.float64(), [1.5, float("inf"), -0.0]),
    (pa.float32(), [1.5, float("inf")]),
    (pa.bool_(), [True, False]),
    (pa.string(), ["", "kéy"]),
    (pa.large_string(), ["a"]),
    (pa.binary(), [b"", b"\0\xff"]),
    (pa.binary(2), [b"ab"]),
    (pa.decimal128(12, 2), [Decimal("1.50"), Decimal("-9999999999.99")]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (pa.timestamp("us"), [NAIVE, dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)]),  # noqa: DTZ001
    (pa.timestamp("s"), [NAIVE.replace(microsecond=0)]),
    (pa.timestamp("ns"), [NAIVE]),
    (pa.timestamp("us", "UTC"), [MOMENT]),
    (pa.timestamp("us", "Europe/Berlin"), [MOMENT.astimezone(BERLIN)]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4)]),
    (pa.duration("us"), [dt.timedelta(1, 2, 3)]),
    (pa.duration("ns"), [dt.timedelta(1, 2, 3)]),
    (pa.list_(pa.int64()), [[], [1, None, 3]]),
    (pa.large_list(pa.string()), [["a"], []]),
    (pa.list_(pa.list_(pa.int64())), [[[1], [], None, [2, 3]]]),
    (POINT, [(1, 2.0), (2, None)]),
    (pa.struct([]), [()]),
    (pa.list_(POINT), [[(1, 2.0), None], []]),
    (pa.map_(pa.string(), pa.list_(pa.int64())), [{}, {"a": [1], "b": None}]),
    (pa.null(), []),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=[str(kind) for kind, _ in KINDS])
def test_values_come_back_as_they_were(kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("n", pa.int64()), ("value", kind)])
    rows = [(number, value) for number, value in enumerate([None, *values, None])]
    batch = RowWriter(schema, where="here").write(rows)
    batch.validate(full=True)
    assert batch.schema == schema
    for part, expected in ((batch, rows), (batch.slice(1), rows[1:]), (batch.slice(2, 0), [])):
        found = list(RowReader(schema, uid="op").read(part))
        assert found == expected
        for row, (_, value) in zip(found, expected, strict=True):
            assert repr(row.value) == repr(value) or "Row(" in repr(row.value)


def test_rows_are_named_tuples_whose_odd_names_are_numbered() -> None:
    schema = pa.schema(
        [(name, pa.int64()) for name in ("user", "my column", "class", "_x", "count")]
    )
    (row,) = RowReader(schema, uid="op").read(RowWriter(schema, where="").write([(1, 2, 3, 4, 5)]))
    assert row._fields == ("user", "_1", "_2", "_3", "count")
    assert (row.user, row._1, row.count, row[3]) == (1, 2, 5, 4)


def test_nested_structs_are_named_tuples() -> None:
    schema = pa.schema([("at", pa.list_(POINT)), ("by", pa.map_(pa.string(), POINT))])
    batch = RowWriter(schema, where="").write([([{"x": 1}], {"k": {"x": 2, "y": 3}})])
    (row,) = RowReader(schema, uid="op").read(batch)
    assert (row.at[0].x, row.at[0].y, row.by["k"].y) == (1, None, 3.0)


def test_other_layouts_of_arrow_are_read() -> None:
    columns = {
        "d": pa.array(["a", None, "a"]).dictionary_encode(),
        "f": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        "v": pa.array(["x", "y", None], pa.string_view()),
        "t": pa.array([MOMENT] * 3, pa.timestamp("ms", "UTC"), safe=False),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    found = list(RowReader(batch.schema, uid="op").read(batch))
    assert [row[:3] for row in found] == [
        ("a", [1, 2], "x"),
        (None, None, "y"),
        ("a", [3, 4], None),
    ]
    assert found[0].t == MOMENT.replace(microsecond=123000)


def test_rows_of_no_columns_and_no_rows() -> None:
    assert list(RowReader(pa.schema([]), uid="op").read(pa.RecordBatch.from_pylist([]))) == []
    assert RowWriter(pa.schema([("a", pa.int64())]), where="").write([]).num_rows == 0
    empty = pa.schema([("a", pa.struct([]))])
    assert RowWriter(empty, where="").write([((),), ({"a": {}})]).num_rows == 2


def test_values_that_python_cannot_represent_are_refused() -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.timestamp("ns"))])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1]), pa.array([1]).cast(pa.timestamp("ns"))], schema=schema
    )
    with pytest.raises(Invalid) as caught:
        RowReader(schema, uid="op").read(batch)
    assert caught.value.what == "a time is finer than a microsecond"
    assert caught.value.where == "operator 'op', input column 't'"
    far = pa.RecordBatch.from_arrays([pa.array([2**60]).cast(pa.timestamp("us"))], names=["t"])
    with pytest.raises(Invalid, match="out of range"):
        RowReader(far.schema, uid="op").read(far)


PAIR = pa.schema([("user", pa.string()), ("total", pa.int64())])
Pair = namedtuple("Pair", "user total")  # noqa: PYI024


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 1), ("b", None)],
        [["a", 1], ["b", None]],
        [Pair("a", 1), Pair("b", None)],
        [{"total": 1, "user": "a"}, {"user": "b"}],
        [("a", 1), {"user": "b"}],
        [["a", np.int64(1)], Pair(np.str_("b"), None)],
        [("a", pa.scalar(1)), ("b", pa.scalar(None, pa.int64()))],
    ],
)
def test_rows_may_be_written_in_many_ways(rows: list[Any]) -> None:
    batch = RowWriter(PAIR, where="").write(rows)
    assert batch.to_pylist() == [{"user": "a", "total": 1}, {"user": "b", "total": None}]


def test_a_single_column_accepts_bare_values() -> None:
    text = RowWriter(pa.schema([("a", pa.string())]), where="")
    rows = ["a", ("b",), ["c"], {"a": "d"}, None, {}]
    assert text.write(rows).column(0).to_pylist() == ["a", "b", "c", "d", None, None]
    lists = RowWriter(pa.schema([("a", pa.list_(pa.int64()))]), where="")
    assert lists.write([([1, 2],), (None,)]).column(0).to_pylist() == [[1, 2], None]
    assert lists.write([np.array([1, 2])]).column(0).to_pylist() == [[1, 2]]


def test_lossless_conversions_are_made() -> None:
    schema = pa.schema([("f", pa.float64()), ("d", pa.decimal128(5, 1)), ("b", pa.binary())])
    rows = [(1, 2, bytearray(b"x")), (np.float32(0.5), Decimal("2.5"), memoryview(b"y"))]
    assert list(
        map(tuple, RowReader(schema, uid="").read(RowWriter(schema, where="").write(rows)))
    ) == [
        (1.0, Decimal("2.0"), b"x"),
        (0.5, Decimal("2.5"), b"y"),
    ]
    zoned = pa.schema([("t", pa.timestamp("us", "UTC"))])
    batch = RowWriter(zoned, where="").write([(MOMENT.astimezone(BERLIN),)])
    assert next(RowReader(zoned, uid="").read(batch)).t == MOMENT


MISFITS: list[tuple[pa.DataType, Any, str]] = [
    (pa.int64(), 1.0, "float 1.0"),
    (pa.int64(), True, "bool True"),
    (pa.int64(), "1", "str '1'"),
    (pa.int64(), 2**63, "int 9223372036854775808"),
    (pa.int32(), 2**31, "int 2147483648"),
    (pa.uint8(), -1, "int -1"),
    (pa.int64(), Decimal(1), "decimal.Decimal Decimal('1')"),
    (pa.float64(), "1.5", "str '1.5'"),
    (pa.float64(), True, "bool True"),
    (pa.float64(), 2**53 + 1, "int 9007199254740993"),
    (pa.float32(), 1e300, "float 1e+300"),
    (pa.bool_(), 1, "int 1"),
    (pa.string(), b"x", "bytes b'x'"),
    (pa.string(), 1, "int 1"),
    (pa.string(), "\ud800", r"str '\ud800'"),
    (pa.binary(), "x", "str 'x'"),
    (pa.binary(2), b"abc", "bytes b'abc'"),
    (pa.decimal128(5, 2), 1.5, "float 1.5"),
    (pa.decimal128(5, 2), Decimal("1.234"), "decimal.Decimal Decimal('1.234')"),
    (pa.decimal128(5, 2), 10**6, "int 1000000"),
    (pa.date32(), NAIVE, f"datetime.datetime {NAIVE!r}"),
    (pa.date32(), 1, "int 1"),
    (pa.timestamp("us"), 1, "int 1"),
    (pa.timestamp("us"), dt.date(2024, 1, 1), "datetime.date datetime.date(2024, 1, 1)"),
    (pa.timestamp("us", "UTC"), NAIVE, f"datetime.datetime {NAIVE!r}"),
    (pa.timestamp("s"), NAIVE, f"datetime.datetime {NAIVE!r}"),
    (pa.time64("us"), "1:00", "str '1:00'"),
    (
        pa.duration("s"),
        dt.timedelta(microseconds=1),
        "datetime.timedelta datetime.timedelta(microseconds=1)",
    ),
    (pa.list_(pa.int64()), "ab", "str 'ab'"),
    (pa.list_(pa.int64()), {1}, "set {1}"),
    (POINT, 5, "int 5"),
    (pa.map_(pa.string(), pa.int64()), [1], "list [1]"),
]


@pytest.mark.parametrize(("kind", "value", "found"), MISFITS)
def test_a_value_that_does_not_fit_is_refused(kind: pa.DataType, value: Any, found: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("value", kind)])
    expected = "a tuple of 2 values, or a dict, for x, y" if kind == POINT else str(kind)
    for before in ([], [(0, None)] * 3):
        with pytest.raises(Invalid) as caught:
            RowWriter(schema, where="operator 'op'").write([*before, (7, value), (8, value)])
        error = caught.value
        assert error.what == "a row does not fit the schema of its output"
        assert error.where.startswith(f"operator 'op', row {len(before)} tuple (7, ")
        assert error.where.endswith(", column 'value'")
        assert (error.expected, error.found) == (expected, found)
        assert error.fix == "Yield rows that fit, or change schema="


DEEP = pa.schema(
    [("id", pa.int64()), ("items", pa.list_(POINT)), ("by", pa.map_(pa.string(), POINT))]
)


@pytest.mark.parametrize(
    ("row", "column", "expected", "found"),
    [
        ((1, [(1, 2)], {"a": (1, "x")}), "by[value].y", "double", "str 'x'"),
        ((1, [(1, 2), (None, 2)], {}), "items[].x", "int32, not null", "null"),
        (
            (1, [(1, 2, 3)], {}),
            "items[]",
            "a tuple of 2 values, or a dict, for x, y",
            "tuple (1, 2, 3)",
        ),
        (
            (1, [{"x": 1, "z": 2}], {}),
            "items[]",
            "a tuple of 2 values, or a dict, for x, y",
            "dict {'x': 1, 'z': 2}",
        ),
        ((1, [], {None: (1, 2)}), "by[key]", "string, not null", "null"),
        ((1, [], [("a", (1, 2)), (2, (1, 2))]), "by[key]", "string, not null", "int 2"),
    ],
)
def test_a_nested_value_is_refused_by_its_path(
    row: Any, column: str, expected: str, found: str
) -> None:
    good = (0, [(1, 2), None, (3, None)], None)
    with pytest.raises(Invalid) as caught:
        RowWriter(DEEP, where="op").write([good, (5, None, {"b": None}), row])
    error = caught.value
    assert error.where.startswith("op, row 2 tuple (1, [")
    assert error.where.endswith(f", column {column!r}")
    assert (error.expected, error.found) == (expected, found)


def test_nulls_in_columns_without_nulls_are_refused() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False),
            pa.field("l", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
        ]
    )
    writer = RowWriter(schema, where="op")
    assert writer.write([(1, [1])]).num_rows == 1
    for row, column, expected in (
        ((None, [1]), "a", "int64, not null"),
        ({"l": [1]}, "a", "int64, not null"),
        ((1, None), "l", "list<item: int64 not null>, not null"),
        ((1, [None]), "l[]", "int64, not null"),
    ):
        with pytest.raises(Invalid) as caught:
            writer.write([(1, []), row])
        assert caught.value.where.endswith(f", column {column!r}")
        assert (caught.value.expected, caught.value.found) == (expected, "null")


@pytest.mark.parametrize("row", [("a",), ("a", 1, 2), {"user": "a", "sum": 1}, "ab", 5, None])
def test_a_row_of_other_fields_is_refused(row: Any) -> None:
    with pytest.raises(Invalid) as caught:
        RowWriter(PAIR, where="op").write([("a", 1), row])
    assert caught.value.where.startswith("op, row 1 ")
    assert "column" not in caught.value.where
    assert caught.value.expected == "a tuple of 2 values, or a dict, for user, total"


def test_types_that_rows_cannot_have() -> None:
    for kind in (pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.month_day_nano_interval())):
        with pytest.raises(Invalid) as caught:
            RowWriter(pa.schema([("a", kind)]), where="operator 'op'")
        assert caught.value.where == "operator 'op'"
