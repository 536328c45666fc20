"""Columns of other tools become those of the canonical form, where nothing is lost by it."""

import datetime as dt
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.backends.arrow.keys import KeyForm
from holdfast.backends.arrow.values import ValueForm
from holdfast.backends.blocks.columns import join_values
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.values.codec import value_codec_for
from holdfast.savepoints.writing.column_casts import fitted
from holdfast.storage import Invalid
from state_values import VALUES

NOON = dt.datetime.fromisoformat("2024-02-29T12:00:00.5")
LATER = dt.timezone(dt.timedelta(hours=2))


class Point(NamedTuple):
    """Written as an array."""

    x: int
    y: float


@dataclass
class Order:
    """Written by name."""

    amount: float
    note: str | None


def fit(column: pa.Array, annotation: Any) -> list[Any]:
    schema = value_codec_for(annotation).describe()
    kind = ValueForm(schema, checked=True).field.type
    found = fitted(column, schema, kind, name="c", is_packed=False)
    assert found.type == kind
    found.validate(full=True)
    listed: list[Any] = found.to_pylist()
    return listed


@pytest.mark.parametrize(("annotation", "values"), [each[:2] for each in VALUES])
@settings(max_examples=20)
@given(data=st.data())
def test_a_canonical_column_is_unchanged(
    annotation: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    codec = value_codec_for(annotation)
    drawn = data.draw(st.lists(values, max_size=5))
    form = ValueForm(codec.describe(), checked=True)
    column = form.to_arrow(join_values(codec, codec.encode_many(drawn)))
    found = fitted(column, codec.describe(), form.field.type, name="c", is_packed=True)
    assert found.equals(column)


@pytest.mark.parametrize(
    ("column", "annotation", "expected"),
    [
        (pa.array([1, None], pa.int8()), int, [1, None]),
        (pa.array([1], pa.uint64()), int, [1]),
        (pa.array([1]), float, [1.0]),
        (pa.array([0.5], pa.float32()), float, [0.5]),
        (pa.array(["a"], pa.large_string()), str, ["a"]),
        (pa.array(["a"]).dictionary_encode(), str, ["a"]),
        (pa.array([b"a"], pa.large_binary()), bytes, [b"a"]),
        (pa.array([b"ab"], pa.binary(2)), bytearray, [b"ab"]),
        (pa.array([None]), int | None, [None]),
        (pa.array([NOON.date()]), dt.date, [NOON.date()]),
        (pa.array([NOON]), dt.datetime, ["2024-02-29T12:00:00.500000"]),
        (
            pa.array([NOON.replace(tzinfo=LATER)], pa.timestamp("us", "Europe/Berlin")),
            dt.datetime | None,
            ["2024-02-29T10:00:00.500000Z"],
        ),
        (pa.array([dt.timedelta(seconds=90)]), dt.timedelta, ["PT90S"]),
        (pa.array([NOON.time()]), dt.time, ["12:00:00.500000"]),
        (pa.array([Decimal("1.50")]), Decimal, ["1.50"]),
        (pa.array([2]), Decimal, ["2"]),
        (pa.array([str(uuid.UUID(int=1))]), uuid.UUID, [str(uuid.UUID(int=1))]),
        (pa.array([[1], None, []], pa.list_(pa.int32())), list[int], [[1], None, []]),
        (pa.array([[1, 2]], pa.large_list(pa.int8())), tuple[int, ...], [[1, 2]]),
        (
            pa.array([{"x": 1, "y": "a"}]),
            tuple[int, str],
            [{"_1": 1, "_2": "a"}],
        ),
        (pa.array([{"y": 1, "x": 2}]), Point, [{"x": 2, "y": 1.0}]),
        (
            pa.array([{"note": None, "amount": 1}, None]),
            Order | None,
            [{"amount": 1.0, "note": None}, None],
        ),
        (
            pa.array([{"a": 1}, None], pa.map_(pa.string(), pa.int32())),
            dict[str, int],
            [[("a", 1)], None],
        ),
        (pa.array([{"a": 1}]), Any, [b"\x81\xa1a\x01"]),
        (pa.array([b"a"]), Any, [b"\xc4\x01a"]),
        (pa.array([1, None]), int | str | None, [b"\x01", None]),
    ],
)
def test_a_lossless_cast_is_done(column: pa.Array, annotation: Any, expected: list[Any]) -> None:
    assert fit(column, annotation) == expected
    twice = pa.concat_arrays([column, column])
    assert fit(twice[len(column) :], annotation) == expected, "a slice, too"


@pytest.mark.parametrize(
    ("column", "annotation", "told"),
    [
        (pa.array([1.0]), int, r"column 'c' does not fit: expected values of type int.*double"),
        (pa.array([True]), int, "found bool"),
        (pa.array([1]), bool, "found int64"),
        (pa.array(["1"]), int, "found string"),
        (pa.array([1]), str, "found int64"),
        (pa.array([b"a"]), str, "found binary"),
        (pa.array(["a"]), bytes, "found string"),
        (pa.array([2**64 - 1], pa.uint64()), int, "not in range"),
        (pa.array([2**53 + 1]), float, "float"),
        (pa.array([0.5]), Decimal, "found double"),
        (pa.array(["a"]), list[str], "found string"),
        (pa.array([["a"]]), list[int], r"column 'c\[\]' does not fit"),
        (pa.array([{"x": 1}]), Point, "not have the fields of the class.*expected x, y, found x"),
        (pa.array([{"amount": 1, "note": None, "more": 1}]), Order, "found amount, note, more"),
        (pa.array([{"amount": "1", "note": None}]), Order, r"column 'c\.amount' does not fit"),
        (pa.array([1]), Order, "found int64"),
        (pa.array([1]), dict[str, int], "found int64"),
    ],
)
def test_a_lossy_cast_is_refused(column: pa.Array, annotation: Any, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        fit(column, annotation)


@pytest.mark.parametrize(
    ("column", "annotation", "name"),
    [
        (pa.array([b"a"]), Any, "c"),
        (pa.array([], pa.large_binary()), int | str, "c"),
        (pa.array([[b"a"]]), list[Any], r"c\[\]"),
        (pa.array([{"_1": 1, "_2": b"a"}]), tuple[int, Any], "c._2"),
    ],
)
def test_bytes_that_may_be_messagepack_are_refused(
    column: pa.Array, annotation: Any, name: str
) -> None:
    schema = value_codec_for(annotation).describe()
    kind = ValueForm(schema, checked=True).field.type
    with pytest.raises(Invalid, match=rf"not known whether the bytes of column '{name}'.*packed="):
        fitted(column, schema, kind, name="c")
    assert len(fitted(column, schema, kind, name="c", is_packed=False)) == len(column)
    assert fitted(column, schema, kind, name="c", is_packed=True).equals(column.cast(kind))


def test_packed_columns_must_be_bytes() -> None:
    with pytest.raises(Invalid, match="this is no MessagePack"):
        fitted(pa.array(["a"]), {"type": "any"}, pa.binary(), name="c", is_packed=True)
    assert fitted(pa.array(["a"]), {"type": "any"}, pa.binary(), name="c").to_pylist() == [b"\xa1a"]
    assert fitted(pa.array([b"a"]), {"type": "bytes"}, pa.binary(), name="c").to_pylist() == [b"a"]


@pytest.mark.parametrize(
    ("column", "annotation", "keys"),
    [
        (pa.array([1], pa.int16()), int, [1]),
        (pa.array([NOON], pa.timestamp("us", "UTC")), dt.datetime, [NOON.replace(tzinfo=dt.UTC)]),
        (pa.array([Decimal("1.50")]), Decimal, [Decimal("1.5")]),
        (pa.array([{"a": 1, "b": "x"}]), tuple[int, str], [(1, "x")]),
    ],
)
def test_keys_are_cast_too(column: pa.Array, annotation: Any, keys: list[Any]) -> None:
    codec = key_codec_for(annotation)
    form = KeyForm(codec.describe())
    found = form.from_arrow(fitted(column, codec.describe(), form.type, name="c"))
    assert found.to_list(len(keys)) == codec.encode_many(keys)
