"""Keys and values as typed columns of Arrow and Parquet: the same bytes come back."""

import datetime as dt
import io
import math
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NotRequired, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.arrow.keys import KeyForm
from holdfast.backends.arrow.values import ENCODING, Unfit, ValueForm
from holdfast.backends.blocks.block import Column
from holdfast.backends.blocks.columns import encode_keys, join_values, split_values
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.values.codec import value_codec_for
from holdfast.backends.values.type_descriptions import Schema
from state_values import VALUES, Circle, Color, Fixed, Item, Level, Node, Options
from support.states.key_types import KEY_TYPES

EVERY_TYPE = pytest.mark.parametrize(
    ("annotation", "values"),
    [each[:2] for each in VALUES],
    ids=[f"{number} {each[0]}" for number, each in enumerate(VALUES)],
)


def through_parquet(column: pa.Array) -> pa.Array:
    """The column, after it was in a file."""
    file = io.BytesIO()
    pq.write_table(pa.table({"c": column}), file)
    return pq.read_table(file).column("c").combine_chunks()


def encoded(annotation: Any, values: list[Any]) -> bytes:
    codec = value_codec_for(annotation)
    return join_values(codec, codec.encode_many(values))


@EVERY_TYPE
@given(data=st.data())
def test_values_come_back_as_they_were_written(
    annotation: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(values, max_size=6))
    codec = value_codec_for(annotation)
    column = encoded(annotation, drawn)
    items = split_values(codec, column, "here")
    for checked in (True, False):
        form = ValueForm(codec.describe(), checked=checked)
        shown = form.to_arrow(column)
        assert shown.type == form.field.type
        assert len(shown) == len(drawn)
        read = through_parquet(shown) if checked else shown
        back = split_values(codec, form.from_arrow(read), "here")
        if annotation is Options:  # a dict, whose fields are in the order of their insertion
            assert codec.decode_many(back) == codec.decode_many(items)
        else:
            assert back == items


def test_values_have_readable_column_types() -> None:
    noon = dt.datetime.fromisoformat("2024-02-29T12:00:00")
    sample = [
        (int, 5, pa.int64(), 5),
        (float, 0.5, pa.float64(), 0.5),
        (str, "ü", pa.string(), "ü"),
        (bytes, b"\0", pa.binary(), b"\0"),
        (bool, True, pa.bool_(), True),
        (None, None, pa.bool_(), None),
        (dt.date, noon.date(), pa.date32(), noon.date()),
        (dt.datetime, noon, pa.string(), "2024-02-29T12:00:00"),
        (dt.datetime, noon.replace(tzinfo=dt.UTC), pa.string(), "2024-02-29T12:00:00Z"),
        (dt.timedelta, dt.timedelta(hours=1), pa.string(), "PT3600S"),
        (Decimal, Decimal("1.50"), pa.string(), "1.50"),
        (uuid.UUID, uuid.UUID(int=1), pa.string(), "00000000-0000-0000-0000-000000000001"),
        (Color, Color.RED, pa.string(), "red"),
        (Level, Level.HIGH, pa.int64(), 2),
        (int | None, None, pa.int64(), None),
        (list[int], [1, 2], pa.list_(pa.int64()), [1, 2]),
        (tuple[int, str], (1, "a"), None, {"_1": 1, "_2": "a"}),
        (dict[str, int], {"a": 1}, pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        (Fixed, Fixed(1), None, {"a": 1, "b": None}),
        (Item, Item("pen", Decimal(2), ["x"]), None, {"name": "pen", "price": "2", "tags": ["x"]}),
        (Circle, Circle(1.0), None, {"radius": 1.0}),
        (Options, {"limit": 1}, None, {"limit": 1, "name": None}),
    ]
    for annotation, value, kind, expected in sample:
        form = ValueForm(value_codec_for(annotation).describe(), checked=True)
        column = form.to_arrow(encoded(annotation, [value]))
        assert kind in (None, column.type), annotation
        assert column.to_pylist() == [expected], annotation
        assert not form.field.metadata, annotation


def test_values_without_an_arrow_type_name_their_encoding() -> None:
    whole = ValueForm(value_codec_for(int | str).describe(), checked=True)
    assert whole.field.metadata == {ENCODING.encode(): b"msgpack"}
    assert whole.to_arrow(encoded(int | str, [1, "a"])).to_pylist() == [b"\x01", b"\xa1a"]
    pickled = value_codec_for(object, pickle=True, allow_pickle=True)
    form = ValueForm(pickled.describe(), checked=True)
    assert form.field.metadata == {ENCODING.encode(): b"pickle"}
    items = pickled.encode_many([{1, 2}, None])
    column = form.to_arrow(join_values(pickled, items))
    assert column.to_pylist() == items
    assert split_values(pickled, form.from_arrow(column), "here") == items


def test_only_parts_without_an_arrow_type_are_kept_as_bytes() -> None:
    form = ValueForm(value_codec_for(Node).describe(), checked=True)
    column = form.to_arrow(encoded(Node, [Node(1, [Node(2)])]))
    (found,) = column.to_pylist()
    assert found["value"] == 1
    assert [msgspec.msgpack.decode(each)["value"] for each in found["children"]] == [2]
    assert column.type.field("other").metadata == {ENCODING.encode(): b"msgpack"}


@dataclass
class Before:
    count: int


@dataclass
class After:
    count: int
    note: str | None = "none"
    tags: list[str] = field(default_factory=list)


@dataclass
class Later:
    count: int
    tags: list[str] = field(default_factory=list)


def from_before(annotation: Any) -> Schema:
    """Its description as it was before there was `whole` in descriptions."""
    described: Schema = value_codec_for(annotation).describe()
    return {word: part for word, part in described.items() if word != "whole"}


@dataclass
class Holder:
    inner: After
    each: dict[str, list[After]]


def test_a_value_is_written_with_all_that_is_in_it() -> None:
    """Msgspec reads a default from the class, and would leave it out again."""
    plain = {"inner": {"count": 1}, "each": {"a": [{"count": 2}]}}
    codec = value_codec_for(list[Holder])
    decoded = codec.decode(msgspec.msgpack.encode([plain]))
    assert "note" not in vars(decoded[0].inner)
    (found,) = msgspec.msgpack.decode(codec.encode(decoded))
    whole = {"note": "none", "tags": []}
    assert found == {"inner": {"count": 1, **whole}, "each": {"a": [{"count": 2, **whole}]}}


class Loose(TypedDict):
    limit: NotRequired[int | None]


def test_a_value_of_an_older_type_is_not_complete() -> None:
    older = encoded(Before, [Before(1)])
    with pytest.raises(Unfit, match="note"):
        ValueForm(value_codec_for(After).describe(), checked=True).to_arrow(older)


def test_an_unchecked_value_may_lack_a_field() -> None:
    older = encoded(Before, [Before(1)])
    form = ValueForm(from_before(Later), checked=False)
    column = form.to_arrow(older)
    assert column.to_pylist() == [{"count": 1, "tags": None}]
    codec = value_codec_for(Later)
    assert split_values(codec, form.from_arrow(column), "") == split_values(codec, older, "")


@pytest.mark.parametrize("annotation", [After, Loose])
def test_bytes_are_kept_where_null_would_be_ambiguous(annotation: Any) -> None:
    form = ValueForm(from_before(annotation), checked=False)
    assert form.field.metadata == {ENCODING.encode(): b"msgpack"}


@pytest.mark.parametrize("bad", [b"", b"\x91", msgspec.msgpack.encode(["a"])])
def test_bytes_that_are_no_values_are_refused(bad: bytes) -> None:
    with pytest.raises(Unfit):
        ValueForm({"type": "int"}, checked=True).to_arrow(bad)


@pytest.mark.parametrize("name", KEY_TYPES)
@given(data=st.data())
def test_keys_come_back_as_they_were_written(name: str, data: st.DataObject) -> None:
    key_type = KEY_TYPES[name]
    codec = key_codec_for(key_type.annotation)
    drawn = data.draw(st.lists(key_type.keys, max_size=6))
    keys = list(map(codec.canonical, drawn))
    column = Column.of(codec.encode_many(keys))
    form = KeyForm(codec.describe())
    shown = form.to_arrow(column, len(keys))
    assert shown.type == form.type
    back = form.from_arrow(through_parquet(shown))
    assert back.to_list(len(keys)) == column.to_list(len(keys))
    assert form.hashes(column, len(keys)).tolist() == [codec.hash(key) for key in keys]


def test_keys_have_readable_column_types() -> None:
    noon = dt.datetime.fromisoformat("2024-02-29T12:00:00+00:00")
    sample = [
        (int, -5, -5),
        (float, -0.5, -0.5),
        (float, math.inf, math.inf),
        (str, "a\0b", "a\0b"),
        (str, "ü", "ü"),
        (bytes, b"\xff", b"\xff"),
        (dt.datetime, noon, "2024-02-29T12:00:00Z"),
        (Decimal, Decimal("1.5"), "1.5"),
        (tuple[str, int | None], ("a", None), {"_1": "a", "_2": None}),
        (tuple[str, ...], ("a", "b"), ["a", "b"]),
        (Fixed, Fixed(1, None), {"a": 1, "b": None}),
        (int | None, None, None),
    ]
    for annotation, key, expected in sample:
        codec = key_codec_for(annotation)
        column = Column.of([codec.encode(key)])
        assert KeyForm(codec.describe()).to_arrow(column, 1).to_pylist() == [expected]


def test_no_keys_and_a_slice_of_keys_come_back() -> None:
    for annotation, keys in ((int, [1, 2, 3]), (str, ["a", "", "b"]), (float, [1.0, -2.0, 0.0])):
        codec = key_codec_for(annotation)
        form = KeyForm(codec.describe())
        column = encode_keys(codec, keys)
        assert form.to_arrow(Column(b""), 0).to_pylist() == []
        shown = form.to_arrow(column, 3)
        assert form.from_arrow(shown[1:]).to_list(2) == column.to_list(3)[1:]


def test_keys_with_an_arrow_type_are_decoded_by_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(*_: Any) -> Any:
        raise AssertionError("each key was decoded")

    monkeypatch.setattr("holdfast.backends.arrow.keys.decode_keys", decode)
    sample: list[tuple[Any, list[Any]]] = [
        (int, list(range(1000))),
        (float, [-1.5, 0.0, 2.0]),
        (str, ["a", "", "ü"]),
        (bytes, [b"a", b""]),
    ]
    for annotation, keys in sample:
        codec = key_codec_for(annotation)
        form, column = KeyForm(codec.describe()), encode_keys(codec, keys)
        assert form.to_arrow(column, len(keys)).to_pylist() == keys
        assert form.hashes(column, len(keys)).tolist() == codec.hash_many(keys).tolist()
    dates = key_codec_for(dt.date)
    with pytest.raises(AssertionError, match="each key was decoded"):
        KeyForm(dates.describe()).to_arrow(encode_keys(dates, [dt.date(2024, 1, 31)]), 1)
