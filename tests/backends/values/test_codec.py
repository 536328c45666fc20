import datetime as dt
import json
import pickle
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import MISSING, dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_entries import as_first_described
from holdfast.backends.values.codec import value_codec_for
from holdfast.storage.errors import Corrupt, Invalid
from state_values import (
    VALUES,
    Access,
    Circle,
    Color,
    Fixed,
    Item,
    Level,
    Node,
    Options,
    Pair,
    Row,
    Square,
)

EVERY_TYPE = pytest.mark.parametrize(
    ("annotation", "values", "is_immutable"), VALUES, ids=[str(each[0]) for each in VALUES]
)


def exactly(value: Any) -> Any:
    """A form of a value that is equal only where the types of all its parts are equal too."""
    match value:
        case list() | tuple():
            return type(value), [exactly(each) for each in value]
        case set() | frozenset():
            return type(value), {exactly(each) for each in value}
        case dict():
            return type(value), [(exactly(key), exactly(each)) for key, each in value.items()]
        case Decimal():
            return type(value), value.as_tuple()
    return type(value), value


@EVERY_TYPE
@given(data=st.data())
def test_a_value_survives_encoding(
    annotation: Any, values: st.SearchStrategy[Any], is_immutable: Any, data: st.DataObject
) -> None:
    codec = value_codec_for(annotation)
    value = data.draw(values)
    assert codec.check(value) is value
    back = codec.decode(codec.encode(value))
    assert back == value
    assert exactly(back) == exactly(value)
    assert codec.is_immutable is is_immutable
    assert codec.exact in {None, type(value)}


@pytest.mark.slow
@EVERY_TYPE
@given(data=st.data())
def test_many_values_survive_encoding(
    annotation: Any, values: st.SearchStrategy[Any], is_immutable: Any, data: st.DataObject
) -> None:
    del is_immutable
    codec = value_codec_for(annotation)
    drawn = data.draw(st.lists(values, max_size=5))
    encoded = codec.encode_many(iter(drawn))
    assert encoded == [codec.encode(value) for value in drawn]
    assert codec.decode_many(iter(encoded)) == drawn
    assert codec.check_many(iter(drawn)) == drawn


@EVERY_TYPE
def test_the_description_is_json(
    annotation: Any, values: st.SearchStrategy[Any], is_immutable: Any
) -> None:
    del values, is_immutable
    described = value_codec_for(annotation).describe()
    assert json.loads(json.dumps(described)) == described


def test_nan_survives_encoding() -> None:
    for annotation, nan in ((float, float("nan")), (Decimal, Decimal("NaN"))):
        codec = value_codec_for(annotation)
        back = codec.decode(codec.encode(nan))
        assert type(back) is annotation
        assert back != back  # noqa: PLR0124
    assert value_codec_for(list[float]).check([float("nan")])


class Text(str):
    __slots__ = ()


TOKYO = ZoneInfo("Asia/Tokyo")
CONVERTED: list[tuple[Any, Any, Any]] = [
    (int, np.int8(3), 3),
    (int, Level.LOW, 1),
    (int, pa.scalar(3), 3),
    (float, 3, 3.0),
    (float, np.float32(0.5), 0.5),
    (bool, np.True_, True),
    (str, Text("a"), "a"),
    (str, pa.scalar("a"), "a"),
    (bytes, bytearray(b"a"), b"a"),
    (bytes, memoryview(b"a"), b"a"),
    (int | None, pa.scalar(None, pa.int64()), None),
    (float | None, 1, 1.0),
    (str | None, Text("a"), "a"),
    (Literal["a"], Text("a"), "a"),
    (Decimal, pa.scalar(Decimal("1.50")), Decimal("1.50")),
    (dt.date, pa.scalar(dt.date(2024, 1, 1)), dt.date(2024, 1, 1)),
    (dt.datetime, dt.datetime(2024, 1, 1, 9, tzinfo=TOKYO), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    (list[int], [np.int64(1), 2], [1, 2]),
    (list[int], pa.scalar([1, 2]), [1, 2]),
    (list[float], [1, 2.5], [1.0, 2.5]),
    (dict[str, int], OrderedDict(a=np.int64(1)), {"a": 1}),
    (dict[str, int], defaultdict(int, a=1), {"a": 1}),
    (dict[str, int], {Text("a"): 1}, {"a": 1}),
    (tuple[int, str], (np.int64(1), "a"), (1, "a")),
    (Item, Item("a", pa.scalar(Decimal(1)), ["b"]), Item("a", Decimal(1), ["b"])),
    (Fixed, Fixed(1, 2), Fixed(1, 2.0)),
    (Pair, Pair(1, 2), Pair(1, 2.0)),
    (Circle, Circle(1), Circle(1.0)),
    (Options, {"limit": np.int64(1)}, {"limit": 1}),
    (Options, pa.scalar({"limit": 1, "name": "a"}), {"limit": 1, "name": "a"}),
    (Any, [np.int64(1), {"a": np.float64(0.5)}], [1, {"a": 0.5}]),
    (Any, dt.datetime(2024, 1, 1, 9, tzinfo=TOKYO), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
]


@pytest.mark.parametrize(("annotation", "given", "expected"), CONVERTED)
def test_scalars_and_subclasses_are_converted(annotation: Any, given: Any, expected: Any) -> None:
    codec = value_codec_for(annotation)
    before = repr(given)
    assert exactly(codec.check(given)) == exactly(expected)
    assert codec.encode(given) == codec.encode(expected)
    assert codec.encode_many([given]) == [codec.encode(expected)]
    assert exactly(codec.check_many([given])) == exactly([expected])
    assert repr(given) == before


NAIVE = dt.datetime.fromisoformat("2024-01-01")
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
WRONG: Any = "x"
REFUSED: list[tuple[Any, Any, str]] = [
    (None, 0, ""),
    (bool, 1, ""),
    (int, True, ""),
    (int, 1.0, ""),
    (int, "1", ""),
    (int, None, ""),
    (int, 2**63, ""),
    (int, -(2**63) - 1, ""),
    (float, True, ""),
    (float, 2**53 + 1, ""),
    (float, 10**400, ""),
    (str, b"a", ""),
    (str, NAIVE, ""),
    (str, Decimal(1), ""),
    (str, "\ud800", ""),
    (list[str], ["a", "\ud800"], "at [1]"),
    (bytes, "a", ""),
    (bytearray, b"a", ""),
    (dt.datetime, "2024-01-01T00:00:00", ""),
    (dt.datetime, dt.date(2024, 1, 1), ""),
    (dt.date, NAIVE, ""),
    (dt.datetime, dt.datetime(1, 1, 1, tzinfo=TOKYO), ""),
    (dt.time, dt.time(1, tzinfo=dt.UTC), ""),
    (Decimal, 1.0, ""),
    (uuid.UUID, "a" * 32, ""),
    (Color, "red", ""),
    (Literal["a"], "b", ""),
    (Literal[1], True, ""),
    (int | None, "a", ""),
    (int | str, 1.5, ""),
    (list[int], (1, 2), ""),
    (list[int], [1, "a"], "at [1]"),
    (list[int], [1, 2**63], "at [1]"),
    (list[int], [True], "at [0]"),
    (tuple[int, ...], [1], ""),
    (tuple[int, float], Pair(1), ""),
    (tuple[int, str], (1,), ""),
    (tuple[int, str], (1, 2), "at [1]"),
    (set[int], {1, "a"}, "at ["),
    (dict[str, int], {"a": 1, "b": None}, "at ['b']"),
    (dict[str, int], {1: 1}, "at [1]"),
    (dict[str, list[int]], {"a": [1, "b"]}, "at ['a'][1]"),
    (Item, {"name": "a", "price": Decimal(1)}, ""),
    (Item, Item("a", Decimal(1), ["b", 5]), "at .tags[1]"),  # type: ignore[list-item]
    (Node, Node(1, [Node(2, [Node(WRONG)])]), "at .children[0].children[0].value"),
    (Pair, (1, 2.0), ""),
    (Pair, Pair("a"), "at [0]"),  # type: ignore[arg-type]
    (Options, {}, ""),
    (Options, {"limit": 1, "other": 2}, ""),
    (Options, {"limit": "a"}, "at ['limit']"),
    (Circle | Square, Pair(1), ""),
    (Access, Access.READ | Access.WRITE, ""),
    (Any, (1, 2), ""),
    (Any, {1, 2}, ""),
    (Any, NAIVE, ""),
    (Any, Decimal(1), ""),
    (Any, object(), ""),
    (Any, [1, {"a": (1,)}], "at [1]['a']"),
    (Any, {(1, 2): 3}, "at [(1, 2)]"),
    (Any, 2**64, ""),
    (Any, ENDLESS, ""),
    (list, ENDLESS, ""),
]


@pytest.mark.parametrize(("annotation", "value", "where"), REFUSED)
def test_a_value_of_another_type_is_refused(annotation: Any, value: Any, where: str) -> None:
    codec = value_codec_for(annotation)
    uses: list[Callable[[Any], Any]] = [
        codec.check,
        codec.encode,
        lambda each: codec.check_many([each]),
        lambda each: codec.encode_many([each]),
    ]
    for use in uses:
        with pytest.raises(Invalid) as caught:
            use(value)
        assert caught.value.expected
        assert caught.value.found
        assert caught.value.where.startswith(where)
        assert bool(caught.value.where) == bool(where)


def test_the_error_names_the_place_and_both_types() -> None:
    with pytest.raises(Invalid) as caught:
        value_codec_for(dict[str, list[int]]).encode({"a": [1, "b"]})
    assert str(caught.value) == (
        "a value does not fit its type [at ['a'][1]]: expected int, found str 'b'. "
        "The declared type is dict[str, list[int]]"
    )


@dataclass
class Larger(Item):
    size: int = 0


def test_a_subclass_would_lose_fields() -> None:
    with pytest.raises(Invalid, match=r"found .*Larger"):
        value_codec_for(Item).encode(Larger("a", Decimal(1)))


def test_a_field_that_was_never_set_is_named() -> None:
    bare = object.__new__(Fixed)
    with pytest.raises(Invalid, match="with a field 'a'"):
        value_codec_for(Fixed).encode(bare)


@pytest.mark.parametrize(
    "annotation",
    [
        complex,
        object,
        dt.datetime | str,
        list[complex],
        Callable,
        Annotated[int, msgspec.Meta(gt=0)],
        Annotated[list[int], msgspec.Meta(max_length=3)],
        memoryview,
        msgspec.Raw,
        "no such type",
        pa.Table,
    ],
)
def test_a_type_that_is_not_supported_is_refused(annotation: Any) -> None:
    with pytest.raises(Invalid, match="a type of values is not supported"):
        value_codec_for(annotation)


class Unset(msgspec.Struct):
    """What state could not hold: a value that is not there is no value of the type."""

    there: int
    perhaps: int | msgspec.UnsetType = msgspec.UNSET


def lost_default() -> Any:
    """What cloudpickle makes of a dataclass in another process."""

    @dataclass
    class Lost:
        here: int
        lost: int

    Lost.__dataclass_fields__["lost"].default = copy(MISSING)
    return Lost


def lost_fields() -> Any:
    """What cloudpickle makes of a Struct in another process."""
    lost = msgspec.defstruct("Lost", [])
    lost.__annotations__ = {"here": int}
    return lost


class OnlyTag(msgspec.Struct, tag=True):
    kind: ClassVar[str] = "stop"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Unset, "'perhaps' of Unset may be UNSET; let it be None instead"),
        (lost_default, "has lost that 'lost' has no default, where it was pickled by value"),
        (lost_fields, "Lost has lost its fields where it was pickled by value"),
    ],
)
def test_a_class_that_cannot_say_what_its_values_are_is_refused(
    make: Callable[[], Any], why: str
) -> None:
    cls: Any = make()
    for annotation in (cls, list[cls]):
        with pytest.raises(Invalid) as caught:
            value_codec_for(annotation)
        assert why in str(caught.value)
    assert value_codec_for(OnlyTag).decode(value_codec_for(OnlyTag).encode(OnlyTag())) == OnlyTag()


@EVERY_TYPE
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(
    annotation: Any, values: st.SearchStrategy[Any], is_immutable: Any, data: st.DataObject
) -> None:
    del is_immutable
    codec = value_codec_for(annotation)
    encoded = bytearray(codec.encode(data.draw(values)))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    with suppress(Corrupt):
        assert repr(codec.decode_many([damaged])) == repr([codec.decode(damaged)])


GOLDEN = Path(__file__).parent.parent.parent / "golden" / "values-v1.json"
FROZEN: list[tuple[Any, Any]] = [
    (None, None),
    (bool, True),
    (int, -(2**63)),
    (float, 1.5),
    (str, "größe"),
    (bytes, b"\x00\xff"),
    (bytearray, bytearray(b"a")),
    (dt.datetime, dt.datetime.fromisoformat("2024-02-29T01:02:03.000004")),
    (dt.datetime, dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC)),
    (dt.date, dt.date(2024, 2, 29)),
    (dt.time, dt.time(1, 2, 3, 4)),
    (dt.timedelta, dt.timedelta(days=-1, microseconds=5)),
    (Decimal, Decimal("-1.500")),
    (uuid.UUID, uuid.UUID(int=5)),
    (Color, Color.RED),
    (Level, Level.HIGH),
    (int | str | None, "a"),
    (list[int], [1, 2]),
    (set[int], {1}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, ...], (1, 2)),
    (tuple[int, str], (1, "a")),
    (dict[str, list[int | None]], {"a": [1, None]}),
    (Item, Item("a", Decimal(1), ["b"])),
    (Node, Node(1, [Node(2)])),
    (Pair, Pair(1, 2.0)),
    (Options, {"limit": 1}),
    (Circle | Square, Square(1.0, [1])),
    (Row, Row(1, "a")),
    (Any, [1, {"a": b"b"}]),
]


def frozen() -> list[dict[str, Any]]:
    """Every frozen value with its schema and its bytes."""
    return [
        {
            "value": repr(value),
            "schema": value_codec_for(annotation).describe(),
            "bytes": value_codec_for(annotation).encode(value).hex(),
        }
        for annotation, value in FROZEN
    ]


def test_bytes_and_schemas_are_those_of_the_first_release() -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))
    written = as_first_described(msgspec.json.encode(frozen()))
    assert json.loads(written) == golden
    for (annotation, value), stored in zip(FROZEN, golden, strict=True):
        assert value_codec_for(annotation).decode(bytes.fromhex(stored["bytes"])) == value


class Odd:
    def __init__(self, number: int) -> None:
        self.number = number


def test_pickle_is_written_where_asked_for_and_read_where_allowed() -> None:
    writer = value_codec_for(Odd, pickle=True)
    data = writer.encode(Odd(5))
    assert writer.describe() == {"type": "pickle", "name": f"{__name__}.Odd"}
    with pytest.raises(Invalid, match="reading pickles is not allowed"):
        writer.decode(data)
    reader = value_codec_for(Odd, pickle=True, allow_pickle=True)
    assert reader.decode(data).number == 5
    assert [each.number for each in reader.decode_many(reader.encode_many([Odd(1), Odd(2)]))] == [
        1,
        2,
    ]


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return _explode, ()


def _explode() -> None:
    raise AssertionError("a pickle was loaded")


def test_a_codec_without_pickle_loads_no_pickle() -> None:
    data = pickle.dumps(Bomb())
    with pytest.raises(Corrupt):
        value_codec_for(int, allow_pickle=True).decode(data)
    with pytest.raises(Invalid, match="not allowed"):
        value_codec_for(Bomb, pickle=True).decode(data)


def test_pickle_refuses_what_it_cannot_write_or_read() -> None:
    codec = value_codec_for(Odd, pickle=True, allow_pickle=True)
    with pytest.raises(Invalid, match="found int 5"):
        codec.encode(5)
    with pytest.raises(Corrupt, match="pickle of a value cannot be read"):
        codec.decode(b"no pickle")
    with pytest.raises(Corrupt, match="found int 5"):
        codec.decode(pickle.dumps(5))
    with pytest.raises(
        Invalid, match=r"cannot be pickled.*into a module that every process can import"
    ):
        value_codec_for(Any, pickle=True).encode(lambda: None)
    assert not codec.is_immutable


class Unlike(Enum):
    """Members that say that they are equal to nothing, and have no hash."""

    ONE = "one"

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def test_members_are_known_by_identity_and_literals_by_type_first() -> None:
    codec = value_codec_for(Unlike)
    assert codec.decode(codec.encode(Unlike.ONE)) is Unlike.ONE
    others: tuple[Any, ...] = ([], {}, 1, b"a")
    for value in others:
        with pytest.raises(Invalid, match="expected one of 'a', found"):
            value_codec_for(Literal["a"]).check(value)
