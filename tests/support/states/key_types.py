"""Key types, and keys of each to draw, with what their natural order and equality are."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

UTC = dt.UTC


class Place(NamedTuple):
    city: str
    number: int | None


@dataclass(frozen=True)
class Order:
    user: str
    day: dt.date
    place: Place | None = None


Columns = Callable[[list[Any]], pa.Array]


@dataclass(frozen=True)
class KeyType:
    """A type, keys of it to draw, and how a list of keys is an Arrow column, if it can be one."""

    annotation: Any
    keys: st.SearchStrategy[Any]
    column: Columns | None = None


def natural(key: Any) -> Any:
    """A sort key with None first and NaN last, for keys of one type."""
    if key is None:
        return (0,)
    match key:
        case float():
            rank: Any = (math.isnan(key), 0.0 if math.isnan(key) else key)
        case dt.datetime():
            start = dt.datetime.fromisoformat("1970-01-01").replace(tzinfo=key.tzinfo and UTC)
            rank = (key.tzinfo is not None, key - start)
        case tuple():
            rank = tuple(map(natural, key))
        case Order():
            rank = tuple(map(natural, (key.user, key.day, key.place)))
        case _:
            rank = key
    return (1, rank)


INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
TEXT = st.text(max_size=40) | st.text("\x00\x01\x02a", max_size=6)
DATA = st.binary(max_size=40) | st.binary(max_size=6).map(lambda data: bytes(b % 3 for b in data))
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.0])
ZONES = st.builds(
    dt.timezone, st.integers(-23 * 60, 23 * 60).map(lambda minutes: dt.timedelta(minutes=minutes))
)
NAIVE = st.datetimes()
AWARE = st.datetimes(
    dt.datetime.fromisoformat("0001-01-03"),
    dt.datetime.fromisoformat("9999-12-29"),
    timezones=ZONES,
)
DECIMALS = (
    st.decimals(allow_nan=False, allow_infinity=False)
    | st.decimals(-1000, 1000, places=2)
    | st.integers(-1000, 1000).map(lambda number: Decimal(number) * 100)
)
SHORT_DECIMALS = st.decimals(-(10**15), 10**15, places=4) | st.integers(-99, 99).map(Decimal)
PLACES = st.builds(Place, TEXT, st.none() | INTS)
ORDERS = st.builds(Order, TEXT, st.dates(), st.none() | PLACES)


def arrow(kind: pa.DataType) -> Columns:
    return lambda keys: pa.array(keys, kind)


def structs(*fields: tuple[str, int, Columns]) -> Columns:
    """A column of structs from tuples: for each field its name, its place and its column."""

    def column(keys: list[Any]) -> pa.Array:
        values = [None if key is None else tuple(key) for key in keys]
        children = [make([value and value[place] for value in values]) for _, place, make in fields]
        names = [name for name, _, _ in fields]
        missing = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(children, names, mask=missing)

    return column


STRINGS, LONGS = arrow(pa.string()), arrow(pa.int64())
PLACE_COLUMN = structs(("number", 1, LONGS), ("city", 0, STRINGS))

KEY_TYPES = {
    "none": KeyType(None, st.none(), arrow(pa.null())),
    "bool": KeyType(bool, st.booleans(), arrow(pa.bool_())),
    "int": KeyType(int, INTS, LONGS),
    "float": KeyType(float, FLOATS, arrow(pa.float64())),
    "str": KeyType(str, TEXT, STRINGS),
    "bytes": KeyType(bytes, DATA, arrow(pa.binary())),
    "date": KeyType(dt.date, st.dates(), arrow(pa.date32())),
    "naive datetime": KeyType(dt.datetime, NAIVE, arrow(pa.timestamp("us"))),
    "aware datetime": KeyType(dt.datetime, AWARE, arrow(pa.timestamp("us", "UTC"))),
    "datetime": KeyType(dt.datetime, NAIVE | AWARE),
    "Decimal": KeyType(Decimal, DECIMALS),
    "short Decimal": KeyType(Decimal, SHORT_DECIMALS, arrow(pa.decimal128(20, 4))),
    "optional int": KeyType(int | None, st.none() | INTS, LONGS),
    "optional str": KeyType(str | None, st.none() | TEXT, arrow(pa.large_string())),
    "empty tuple": KeyType(tuple[()], st.just(())),
    "tuple": KeyType(
        tuple[str, int | None, bytes, bool],
        st.tuples(TEXT, st.none() | INTS, DATA, st.booleans()),
        structs(
            ("a", 0, STRINGS),
            ("b", 1, LONGS),
            ("c", 2, arrow(pa.large_binary())),
            ("d", 3, arrow(pa.bool_())),
        ),
    ),
    "sequence": KeyType(
        tuple[str, ...], st.lists(TEXT, max_size=4).map(tuple), arrow(pa.list_(pa.string()))
    ),
    "NamedTuple": KeyType(Place, PLACES, PLACE_COLUMN),
    "optional NamedTuple": KeyType(Place | None, st.none() | PLACES, PLACE_COLUMN),
    "dataclass": KeyType(
        Order,
        ORDERS,
        lambda keys: structs(
            ("place", 2, PLACE_COLUMN), ("user", 0, STRINGS), ("day", 1, arrow(pa.date32()))
        )([(key.user, key.day, key.place) for key in keys]),
    ),
}
