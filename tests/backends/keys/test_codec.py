import datetime as dt
import enum
import json
import math
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NewType
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.keys.codec import key_codec_for
from holdfast.storage.errors import Corrupt, Invalid
from support.states.key_types import KEY_TYPES, UTC, KeyType, Order, Place, natural

EVERY_TYPE = pytest.mark.parametrize("kind", KEY_TYPES.values(), ids=KEY_TYPES.keys())
WITH_COLUMNS = pytest.mark.parametrize(
    "kind",
    [kind for kind in KEY_TYPES.values() if kind.column],
    ids=[name for name, kind in KEY_TYPES.items() if kind.column],
)


class Text(str):
    __slots__ = ()


class Level(enum.IntEnum):
    LOW = 1


@EVERY_TYPE
@given(data=st.data())
def test_bytes_are_ordered_as_the_keys(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    one, other = data.draw(kind.keys), data.draw(kind.keys)
    first, second = codec.encode(one), codec.encode(other)
    assert (first < second) == (natural(one) < natural(other))
    assert (first == second) == (natural(one) == natural(other))


@EVERY_TYPE
@given(data=st.data())
def test_a_key_survives_encoding(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    key = data.draw(kind.keys)
    back = codec.decode(codec.encode(key))
    assert natural(back) == natural(key)
    assert type(back) is type(key)
    assert repr(back) == repr(codec.canonical(key))


@EVERY_TYPE
@given(data=st.data())
def test_the_canonical_key_stands_for_its_equals(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    one, other = data.draw(kind.keys), data.draw(kind.keys)
    for key in (one, other):
        assert codec.encode(codec.canonical(key)) == codec.encode(key)
        assert codec.hash(codec.canonical(key)) == codec.hash(key)
        assert codec.hash_and_encode(key) == (codec.hash(key), codec.encode(key))
    in_dict = {codec.canonical(one): 1, codec.canonical(other): 2}
    assert (len(in_dict) == 1) == (codec.encode(one) == codec.encode(other))


@EVERY_TYPE
@given(data=st.data())
def test_keys_in_a_row_are_read_one_by_one(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    keys = data.draw(st.lists(kind.keys, max_size=4))
    joined, offset, back = b"start" + b"".join(codec.encode_many(keys)) + b"\xff", 5, []
    for _ in keys:
        key, offset = codec.read(joined, offset)
        back.append(natural(key))
    assert offset == len(joined) - 1
    assert back == [natural(key) for key in keys]


@EVERY_TYPE
@given(data=st.data())
def test_no_encoded_key_is_a_prefix_of_another(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    one, other = codec.encode(data.draw(kind.keys)), codec.encode(data.draw(kind.keys))
    assert one == other or not one.startswith(other)


@given(st.data())
def test_bytes_after_a_key_order_equal_keys_only(data: st.DataObject) -> None:
    """Key, namespace and map key in one string of bytes are in the order of the three."""
    names = st.sampled_from([name for name in KEY_TYPES if name != "none"])
    kinds = [KEY_TYPES[data.draw(names)] for _ in range(3)]
    codecs = [key_codec_for(kind.annotation) for kind in kinds]
    one, other = [[data.draw(kind.keys) for kind in kinds] for _ in range(2)]
    first, second = [
        b"".join(codec.encode(part) for codec, part in zip(codecs, parts, strict=True))
        for parts in (one, other)
    ]
    assert (first < second) == ([*map(natural, one)] < [*map(natural, other)])


@WITH_COLUMNS
@given(data=st.data())
def test_a_column_is_encoded_as_its_keys(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    keys = data.draw(st.lists(kind.keys, max_size=12))
    assert kind.column is not None
    column = kind.column(keys)
    expected = codec.encode_many(keys)
    assert codec.encode_column(column).type == pa.large_binary()
    assert codec.encode_column(column).to_pylist() == expected
    assert codec.encode_column(column.slice(1)).to_pylist() == expected[1:]
    cut = pa.chunked_array([column[:2], column[2:2], column[2:]])
    assert codec.encode_column(cut).to_pylist() == expected
    assert codec.encode_many(iter(column)) == expected


@WITH_COLUMNS
@given(data=st.data())
def test_a_column_is_turned_into_canonical_keys(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    keys = data.draw(st.lists(kind.keys, max_size=12))
    assert kind.column is not None
    column = kind.column(keys)
    expected = list(map(codec.canonical, keys))
    cut = pa.chunked_array([column[:2], column[2:2], column[2:]])
    for found in (codec.canonical_column(column), codec.canonical_column(cut)):
        assert list(map(repr, found)) == list(map(repr, expected))
        assert list(map(type, found)) == list(map(type, expected))
    assert list(map(repr, codec.canonical_column(column.slice(1)))) == list(map(repr, expected[1:]))


@given(st.lists(st.none() | st.text(max_size=3), max_size=20))
def test_a_dictionary_is_encoded_once(keys: list[str | None]) -> None:
    codec = key_codec_for(str | None)
    encoded = codec.encode_column(pa.array(keys, pa.string()).dictionary_encode())
    assert encoded.to_pylist() == codec.encode_many(keys)


CONVERTED: list[tuple[Any, Any, Any]] = [
    (int, np.int16(-3), -3),
    (int, np.uint64(3), 3),
    (int, pa.scalar(3, pa.int8()), 3),
    (int, Level.LOW, 1),
    (bool, np.True_, True),
    (bool, pa.scalar(False), False),
    (float, 3, 3.0),
    (float, np.float32(0.5), 0.5),
    (float, np.float64(0.5), 0.5),
    (float, -0.0, 0.0),
    (str, Text("a"), "a"),
    (str, np.str_("a"), "a"),
    (str, pa.scalar("a", pa.large_string()), "a"),
    (bytes, bytearray(b"a"), b"a"),
    (bytes, memoryview(b"a"), b"a"),
    (bytes, np.bytes_(b"a"), b"a"),
    (dt.date, np.datetime64("2024-02-29"), dt.date(2024, 2, 29)),
    (dt.date, pa.scalar(dt.date(2024, 2, 29)), dt.date(2024, 2, 29)),
    (
        dt.datetime,
        np.datetime64("2024-02-29T01:02:03.000004000"),
        dt.datetime.fromisoformat("2024-02-29T01:02:03.000004"),
    ),
    (
        dt.datetime,
        pa.scalar(1_000, pa.timestamp("ns")),
        dt.datetime.fromisoformat("1970-01-01T00:00:00.000001"),
    ),
    (Decimal, pa.scalar(Decimal("1.50")), Decimal("1.5")),
    (int | None, pa.scalar(None, pa.int64()), None),
    (tuple[str, int | None], Place("a", 1), ("a", 1)),
    (tuple[str, int], pa.scalar({"x": "a", "y": 1}), ("a", 1)),
    (Place, ("a", 1), Place("a", 1)),
    (Place, pa.scalar({"number": 1, "city": "a"}), Place("a", 1)),
    (tuple[int, ...], pa.scalar([1, 2]), (1, 2)),
    (NewType("UserId", int), 5, 5),
    (Annotated[int, "of a user"], 5, 5),
]


@pytest.mark.parametrize(("annotation", "given", "expected"), CONVERTED)
def test_scalars_and_subclasses_are_converted(annotation: Any, given: Any, expected: Any) -> None:
    codec = key_codec_for(annotation)
    canonical = codec.canonical(given)
    assert canonical == expected
    assert type(canonical) is type(expected)
    assert codec.encode(given) == codec.encode(expected)
    assert codec.hash(given) == codec.hash(expected)
    assert (
        math.copysign(1, canonical) == math.copysign(1, expected) if annotation is float else True
    )


REFUSED: list[tuple[Any, Any]] = [
    (None, 0),
    (bool, 1),
    (int, True),
    (int, 1.0),
    (int, "1"),
    (int, None),
    (int, 2**63),
    (int, -(2**63) - 1),
    (int, pa.scalar(None, pa.int64())),
    (float, True),
    (float, 2**53 + 1),
    (float, 10**400),
    (float, "1"),
    (float, Decimal(1)),
    (str, b"a"),
    (str, "\ud800"),
    (bytes, "a"),
    (dt.date, dt.datetime.fromisoformat("2024-01-01")),
    (dt.datetime, dt.date(2024, 1, 1)),
    (dt.datetime, np.datetime64("NaT")),
    (dt.datetime, np.datetime64(1, "ns")),
    (dt.datetime, pa.scalar(1, pa.timestamp("ns"))),
    (dt.datetime, dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
    (Decimal, 1),
    (Decimal, Decimal("NaN")),
    (Decimal, Decimal("-Infinity")),
    (int | None, "a"),
    (tuple[int, str], (1,)),
    (tuple[int, str], [1, "a"]),
    (tuple[int, str], (1, 2)),
    (tuple[int, ...], [1]),
    (tuple[int, ...], (1, "a")),
    (Place, ("a",)),
    (Place, ("a", "b")),
    (Order, ("a", dt.date(2024, 1, 1), None)),
    (Order, Order("a", None)),  # type: ignore[arg-type]
    (Place, pa.scalar({"number": 1, "town": "a"})),
]


@pytest.mark.parametrize(("annotation", "key"), REFUSED)
def test_a_key_of_another_type_is_refused(annotation: Any, key: Any) -> None:
    codec = key_codec_for(annotation)
    for use in (codec.canonical, codec.encode, codec.hash, codec.hash_and_encode):
        with pytest.raises(Invalid) as caught:
            use(key)
        assert caught.value.expected
        assert caught.value.found


def test_the_error_names_both_types() -> None:
    with pytest.raises(Invalid, match=r"expected int of 64 bits, found bool True"):
        key_codec_for(int).encode(True)


BAD_COLUMNS: list[tuple[Any, pa.Array]] = [
    (int, pa.array(["a"])),
    (int, pa.array([1.0])),
    (int, pa.array([1, None])),
    (int, pa.array([2**63], pa.uint64())),
    (int, pa.array([1, None]).dictionary_encode()),
    (float, pa.array([2**53 + 1])),
    (str, pa.array([b"a"])),
    (bytes, pa.array(["a"])),
    (dt.date, pa.array([1], pa.timestamp("us"))),
    (dt.datetime, pa.array([1], pa.date32())),
    (dt.datetime, pa.array([1], pa.timestamp("ns"))),
    (Decimal, pa.array([1])),
    (None, pa.array([1])),
    (bool, pa.array([1])),
    (tuple[int, int], pa.array([{"a": 1}])),
    (tuple[int], pa.array([1])),
    (tuple[int], pa.array([{"a": None}], pa.struct({"a": pa.int64()}))),
    (Place, pa.array([{"town": "a", "number": 1}])),
    (tuple[int, ...], pa.array([1])),
    (str | None, pa.array([1])),
]


@pytest.mark.parametrize(("annotation", "column"), BAD_COLUMNS)
def test_a_column_that_does_not_fit_is_refused(annotation: Any, column: pa.Array) -> None:
    codec = key_codec_for(annotation)
    for use in (codec.encode_column, codec.hash_column, codec.canonical_column):
        with pytest.raises(Invalid) as caught:
            use(column)
        assert caught.value.expected
        assert caught.value.found


def test_columns_of_related_types_are_converted() -> None:
    ints = key_codec_for(int)
    assert ints.encode_column(pa.array([1, 2], pa.uint8())).to_pylist() == ints.encode_many([1, 2])
    texts = key_codec_for(str)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        column = pa.array(["a", "\x00"], kind)
        assert texts.encode_column(column).to_pylist() == texts.encode_many(["a", "\x00"])
    data = key_codec_for(bytes)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)):
        column = pa.array([b"a", b"\x01"], kind)
        assert data.encode_column(column).to_pylist() == data.encode_many([b"a", b"\x01"])
    dates = key_codec_for(dt.date)
    day = dt.date(1969, 12, 31)
    assert dates.encode_column(pa.array([day], pa.date64())).to_pylist() == [dates.encode(day)]
    floats = key_codec_for(float)
    assert floats.encode_column(pa.array([1, 2])).to_pylist() == floats.encode_many([1.0, 2.0])
    times = key_codec_for(dt.datetime)
    moment = dt.datetime(2024, 5, 5, 5, 5, tzinfo=ZoneInfo("Asia/Tokyo"))
    for unit in ("s", "ms", "us", "ns"):
        column = pa.array([moment], pa.timestamp(unit, "Europe/Berlin"))
        assert times.encode_column(column).to_pylist() == [times.encode(moment)]


def test_an_empty_column_without_offsets_is_encoded() -> None:
    codec = key_codec_for(bytes)
    nothing = pa.py_buffer(b"")
    bare = pa.Array.from_buffers(pa.large_binary(), 0, [None, nothing, nothing])
    assert codec.encode_column(bare).to_pylist() == []
    assert codec.hash_column(bare).tolist() == []


@dataclass
class Changeable:
    a: int


@dataclass(frozen=True)
class Incomparable:
    a: int
    b: int = field(compare=False, default=0)


class Struct(msgspec.Struct, frozen=True):
    a: int


@dataclass(frozen=True)
class Endless:
    inner: "Endless | None"


class Listed(NamedTuple):
    items: list[int]


@pytest.mark.parametrize(
    "annotation",
    [
        list[int],
        dict[str, int],
        set[int],
        object,
        complex,
        int | str,
        int | str | None,
        Any,
        Level,
        Changeable,
        Incomparable,
        Struct,
        Endless,
        Listed,
        tuple[int, list[int]],
        Annotated[int, msgspec.Meta(gt=0)],
        "no such type",
        tuple,
    ],
)
def test_a_type_that_cannot_be_a_key_is_refused(annotation: Any) -> None:
    with pytest.raises(Invalid, match="int, str, bytes, bool, float, date, datetime, Decimal"):
        key_codec_for(annotation)


@EVERY_TYPE
def test_the_description_is_json_and_tells_types_apart(kind: KeyType) -> None:
    described = key_codec_for(kind.annotation).describe()
    assert json.loads(json.dumps(described)) == described
    alike = [
        other.annotation
        for other in KEY_TYPES.values()
        if key_codec_for(other.annotation).describe() == described
    ]
    assert set(alike) == {kind.annotation}


@EVERY_TYPE
@given(data=st.data())
def test_damaged_bytes_raise_corrupt_only(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    encoded = bytearray(codec.encode(data.draw(kind.keys)))
    if encoded:
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place] = data.draw(st.integers(0, 255))
    damaged = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    with suppress(Corrupt):
        codec.decode(damaged)


@EVERY_TYPE
def test_a_key_cut_short_is_refused(kind: KeyType) -> None:
    codec = key_codec_for(kind.annotation)
    encoded = codec.encode(SAMPLES[kind.annotation])
    for length in range(len(encoded)):
        with pytest.raises(Corrupt):
            codec.decode(encoded[:length])
    with pytest.raises(Corrupt, match="continue after"):
        codec.decode(encoded + b"\x00")


SAMPLES: dict[Any, Any] = {
    None: None,
    bool: True,
    int: 5,
    float: 1.5,
    str: "a\x00b",
    bytes: b"a\x01b",
    dt.date: dt.date(2024, 2, 29),
    dt.datetime: dt.datetime(2024, 2, 29, tzinfo=UTC),
    Decimal: Decimal("-12.345"),
    int | None: 5,
    str | None: "ann",
    tuple[()]: (),
    tuple[str, int | None, bytes, bool]: ("a", 5, b"b", True),
    tuple[str, ...]: ("a", "b"),
    Place: Place("Graz", 5),
    Place | None: Place("Graz", None),
    Order: Order("ann", dt.date(2024, 2, 29), Place("Graz", 5)),
}


def test_decimals_come_back_readable() -> None:
    codec = key_codec_for(Decimal)
    texts = {
        "100": "100",
        "1E+2": "100",
        "1.00": "1",
        "-0.0": "0",
        "1E+50": "1E+50",
        "-5E-7": "-5E-7",
    }
    assert {text: str(codec.canonical(Decimal(text))) for text in texts} == texts


def test_equal_instants_are_one_key_in_utc() -> None:
    codec = key_codec_for(dt.datetime)
    tokyo = dt.datetime(2024, 1, 1, 9, tzinfo=ZoneInfo("Asia/Tokyo"))
    utc = dt.datetime(2024, 1, 1, tzinfo=UTC)
    assert codec.encode(tokyo) == codec.encode(utc) != codec.encode(utc.replace(tzinfo=None))
    assert codec.canonical(tokyo).tzinfo is UTC
    folded = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert codec.encode(folded) != codec.encode(folded.replace(fold=1))
    naive = folded.replace(tzinfo=None)
    assert codec.encode(naive) == codec.encode(naive.replace(fold=1))
