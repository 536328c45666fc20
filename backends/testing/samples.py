"""Keys and values of every kind, chosen so that a careless backend confuses them."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "KEYS",
    "PREFIXES",
    "VALUES",
    "Colour",
    "Customer",
    "Item",
    "Order",
    "Sample",
]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class Customer(NamedTuple):
    """A key made of two."""

    name: str
    number: int | None


@dataclass(frozen=True)
class Order:
    """A key of the user's own class."""

    day: dt.date
    customer: Customer


class Colour(Enum):
    """A value out of a few."""

    RED = "red"
    GREEN = "green"


@dataclass
class Item:
    """A value that can be changed, with one in it that can be changed."""

    name: str
    price: Decimal = Decimal(0)
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """A type, and distinct instances of it in their canonical form."""

    annotation: Any
    instances: Sequence[Any]


PREFIXES = ["", "\0", "\0\0", "\0\1", "\1", "\1\0", "a", "a\0", "a\0b", "a\1", "ab", "abc", "b"]
"""Strings of which many are the beginning of others, with the bytes that mark ends in them."""

_DAY = dt.date.fromisoformat("2024-02-29")
_NOON = dt.datetime.fromisoformat("2024-02-28T12:00:00.000001")

KEYS: dict[str, Sample] = {
    "int": Sample(
        int, [0, 1, -1, 255, 256, -256, 2**31, -(2**31), 2**32, INT64_MAX, INT64_MIN, 10, 100]
    ),
    "str": Sample(
        str, [*PREFIXES, *map(chr, range(2, 97)), "ü", "u\u0308", "部", "😀", "\uffff", "a" * 1000]
    ),
    "bytes": Sample(
        bytes,
        [
            *(text.encode() for text in PREFIXES),
            *(bytes([byte]) for byte in range(2, 256) if byte not in b"ab"),
            b"\xff\xff",
            b"\0\xff",
            b"\xff\0",
            bytes(range(256)),
        ],
    ),
    "bool": Sample(bool, [False, True]),
    "float": Sample(float, [0.0, 5e-324, -5e-324, 1.5, -1.5, 1e308, math.inf, -math.inf, math.nan]),
    "date": Sample(dt.date, [dt.date.min, dt.date.max, _DAY]),
    "datetime": Sample(
        dt.datetime,
        [_NOON, _NOON.replace(tzinfo=dt.UTC), _NOON.replace(year=1), _NOON.replace(year=9999)],
    ),
    "Decimal": Sample(Decimal, [Decimal(0), Decimal("1.5"), Decimal("-1.5"), Decimal(10) ** 30]),
    "optional": Sample(int | None, [None, 0, -1, 1]),
    "tuple": Sample(
        tuple[str, str], [("", ""), ("", "a"), ("a", ""), ("a", "b"), ("ab", ""), ("a\0", "b")]
    ),
    "tuple of all": Sample(
        tuple[str, int | None, bytes],
        [("", None, b""), ("", 0, b""), ("\0", -1, b"\0"), ("", -1, b"\0\0"), ("a", None, b"\xff")],
    ),
    "sequence": Sample(
        tuple[str, ...], [(), ("",), ("", ""), ("a",), ("a", ""), ("a", "b"), ("ab",)]
    ),
    "NamedTuple": Sample(Customer, [Customer("", None), Customer("ann", -1), Customer("ann", 1)]),
    "dataclass": Sample(
        Order, [Order(_DAY, Customer("ann", 1)), Order(dt.date.min, Customer("", None))]
    ),
}

VALUES: dict[str, Sample] = {
    "int": Sample(int, [0, 1, -1, 127, 128, -32, -33, INT64_MAX, INT64_MIN]),
    "float": Sample(float, [0.0, -1.5, 1e308, math.inf]),
    "bool": Sample(bool, [False, True]),
    "str": Sample(str, ["", "\0", "a", "ü部😀", "a" * 70_000]),
    "bytes": Sample(bytes, [b"", b"\0", b"\xc0", bytes(range(256)), b"x" * 70_000]),
    "date": Sample(dt.date, [_DAY]),
    "datetime": Sample(dt.datetime, [_NOON, _NOON.replace(tzinfo=dt.UTC)]),
    "timedelta": Sample(dt.timedelta, [dt.timedelta(0), dt.timedelta(days=-1, microseconds=1)]),
    "Decimal": Sample(Decimal, [Decimal("0.10"), Decimal("-1E+40")]),
    "UUID": Sample(uuid.UUID, [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)]),
    "Enum": Sample(Colour, [Colour.RED, Colour.GREEN]),
    "union": Sample(int | str, [0, "", 1, "1"]),
    "tuple": Sample(tuple[int, str], [(0, ""), (1, "a")]),
    "frozenset": Sample(frozenset[int], [frozenset(), frozenset({1, 2})]),
    "NamedTuple": Sample(Customer, [Customer("ann", None), Customer("", 1)]),
    "frozen dataclass": Sample(Order, [Order(_DAY, Customer("ann", 1))]),
    "list": Sample(list[int], [[], [0], [1, 2]]),
    "set": Sample(set[str], [set(), {"a"}]),
    "dict": Sample(dict[str, list[int]], [{}, {"": []}, {"a": [1]}]),
    "dataclass": Sample(Item, [Item(""), Item("pen", Decimal("1.50"), ["blue"])]),
    "any": Sample(Any, [0, "", b"", [], {}, {"a": [1, None]}]),
}
