"""Types of values, and values of each to draw."""

import datetime as dt
import enum
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict

import msgspec
from hypothesis import strategies as st


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


@dataclass
class Item:
    name: str
    price: Decimal
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fixed:
    a: int
    b: float | None = None


@dataclass
class Node:
    value: int
    children: list["Node"] = field(default_factory=list)
    other: "Node | None" = None


class Pair(NamedTuple):
    left: int
    right: float = 0.5


class Options(TypedDict):
    limit: int
    name: NotRequired[str]


class Circle(msgspec.Struct, tag="circle", frozen=True):
    radius: float


class Square(msgspec.Struct, tag="square", rename="camel"):
    side_length: float
    marks: list[int] = []


class Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    first: int
    second: str = ""


@dataclass
class Stats:
    counts: dict[Fixed, int]
    by_place: dict[tuple[int, Fixed], str] = field(default_factory=dict)


INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
AWARE = st.datetimes(
    dt.datetime.fromisoformat("0001-01-03"),
    dt.datetime.fromisoformat("9999-12-29"),
    timezones=st.just(dt.UTC),
)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NODES = st.recursive(
    st.builds(Node, INTS), lambda inner: st.builds(Node, INTS, st.lists(inner, max_size=3), inner)
)
STATS = st.builds(
    Stats,
    st.dictionaries(st.builds(Fixed, INTS), INTS),
    st.dictionaries(st.tuples(INTS, st.builds(Fixed, INTS)), st.text()),
)


def without_fold(time: Any) -> Any:
    return time.replace(fold=0)


UserId = NewType("UserId", int)

VALUES: list[tuple[Any, st.SearchStrategy[Any], bool]] = [
    (None, st.none(), True),
    (bool, st.booleans(), True),
    (int, INTS, True),
    (UserId, INTS, True),
    (Annotated[int, "seconds"], INTS, True),
    (float, FLOATS, True),
    (str, st.text(), True),
    (bytes, st.binary(), True),
    (bytearray, st.binary().map(bytearray), False),
    (dt.datetime, st.datetimes().map(without_fold), True),
    (dt.datetime, AWARE, True),
    (dt.date, st.dates(), True),
    (dt.time, st.times().map(without_fold), True),
    (dt.timedelta, st.timedeltas(), True),
    (Decimal, st.decimals(allow_nan=False), True),
    (uuid.UUID, st.uuids(), True),
    (Color, st.sampled_from(Color), True),
    (Level, st.sampled_from(Level), True),
    (Literal["a", 1], st.sampled_from(["a", 1]), True),
    (int | None, st.none() | INTS, True),
    (int | str | bool | None, st.none() | INTS | st.text() | st.booleans(), True),
    (list[int], st.lists(INTS), False),
    (list[str], st.lists(st.text()), False),
    (list[int | None], st.lists(st.none() | INTS), False),
    (set[int], st.sets(INTS), False),
    (frozenset[str], st.frozensets(st.text()), True),
    (tuple[int, ...], st.lists(INTS).map(tuple), True),
    (tuple[int, str, float], st.tuples(INTS, st.text(), FLOATS), True),
    (tuple[()], st.just(()), True),
    (tuple[list[int], int], st.tuples(st.lists(INTS), INTS), False),
    (dict[str, int], st.dictionaries(st.text(), INTS), False),
    (dict[int, list[float]], st.dictionaries(INTS, st.lists(FLOATS)), False),
    (
        dict[tuple[int, str], dt.date],
        st.dictionaries(st.tuples(INTS, st.text()), st.dates()),
        False,
    ),
    (Item, st.builds(Item, st.text(), st.decimals(allow_nan=False), st.lists(st.text())), False),
    (Fixed, st.builds(Fixed, INTS, st.none() | FLOATS), True),
    (Node, NODES, False),
    (Pair, st.builds(Pair, INTS, FLOATS), True),
    (Options, st.fixed_dictionaries({"limit": INTS}, optional={"name": st.text()}), False),
    (Circle, st.builds(Circle, FLOATS), True),
    (Circle | Square, st.builds(Circle, FLOATS), False),
    (Row, st.builds(Row, INTS, st.text()), False),
    (Square, st.builds(Square, FLOATS, st.lists(INTS)), False),
    (dict[str, list[Fixed]], st.dictionaries(st.text(), st.lists(st.builds(Fixed, INTS))), False),
    (dict[Fixed, int], st.dictionaries(st.builds(Fixed, INTS), INTS), False),
    (Stats, STATS, False),
    (list[Stats | None], st.lists(st.none() | STATS, max_size=3), False),
    (Any, JSON, False),
    (list, st.lists(JSON, max_size=3), False),
    (dict, st.dictionaries(st.text(), JSON, max_size=3), False),
]
