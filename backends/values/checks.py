"""Checks that a value fits its type before it is written, for plain values.

msgspec encodes any value that it can, whatever the declared type, and would fail only on reading;
and it encodes a dataclass without checking its fields. These checks cost less than decoding what
was written, and report which part of the value does not fit.
"""

from __future__ import annotations

import datetime as dt
import operator
import uuid
from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from msgspec import inspect

from holdfast.backends.values.normalizing import INT64_MAX, INT64_MIN, shown, to_plain

__all__ = [
    "SCALAR_CHECKS",
    "Check",
    "Misfit",
    "any_check",
    "are_same",
    "never_many",
    "of_types",
    "one_by_one",
]


class Misfit(Exception):
    """A value, or a part of it, does not fit. The codec turns it into the user's error."""

    def __init__(self, expected: str, value: object, fix: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.found = shown(value)
        self.fix = fix
        self.path = ""

    def inside(self, part: str) -> Misfit:
        """The same, with the path from the container of the value."""
        self.path = part + self.path
        return self


@dataclass(frozen=True)
class Check:
    """The checks of values of one type.

    `one` returns the value, maybe converted, or raises `Misfit`. `many` is a fast test that several
    values all fit unchanged; if it fails, `one` decides on each. `types` are the exact types of
    such values.
    """

    name: str
    types: frozenset[type]
    one: Callable[[Any], Any]
    many: Callable[[Collection[Any]], bool]
    is_immutable: bool = True
    exact: type | None = None
    """The type whose instances all fit unchanged, if there is one."""


def of_types(*types: type) -> Callable[[Collection[Any]], bool]:
    """Whether all values are exactly of one of these types."""
    allowed = frozenset(types)
    return lambda values: allowed.issuperset(map(type, values))


def never_many(values: Collection[Any]) -> bool:
    """The fast test of types whose values must be checked one by one."""
    return not values


def one_by_one(check: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """The values, each checked; a misfit tells its place."""
    checked: list[Any] = []
    try:
        checked.extend(map(check, values))
    except Misfit as misfit:
        raise misfit.inside(f"[{len(checked)}]") from None
    return checked


def are_same(checked: Iterable[Any], values: Iterable[Any]) -> bool:
    """Whether no value was converted."""
    return all(map(operator.is_, checked, values))


def _simple(exact: type, name: str = "") -> Check:
    """The check of a type that has no more to it than the type itself."""
    name = name or exact.__name__

    def one(value: Any) -> Any:
        if type(value) is exact:
            return value
        plain = to_plain(value)
        if type(plain) is not exact:
            raise Misfit(name, value)
        return plain

    return Check(name, frozenset({exact}), one, of_types(exact), exact=exact)


def _one_int(value: Any) -> int:
    plain = value if type(value) is int else to_plain(value)
    if type(plain) is not int:
        raise Misfit("int", value)
    if not INT64_MIN <= plain <= INT64_MAX:
        raise Misfit("int of 64 bits", value, "Declare Decimal or str for larger numbers")
    return plain


_are_int = of_types(int)


def _many_ints(values: Collection[Any]) -> bool:
    if not _are_int(values):
        return False
    try:
        array("q", values)
    except OverflowError:
        return False
    return True


def _one_float(value: Any) -> float:
    if type(value) is float:
        return value
    plain = to_plain(value)
    if type(plain) is float:
        return plain
    if type(plain) is int and INT64_MIN <= plain <= INT64_MAX and int(float(plain)) == plain:
        return float(plain)
    raise Misfit("float", value)


def _one_str(value: Any) -> str:
    plain = value if type(value) is str else to_plain(value)
    if type(plain) is not str:
        raise Misfit("str", value)
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError:
            fix = "Half of a surrogate pair is no character, and UTF-8 cannot hold it"
            raise Misfit("str", value, fix) from None
    return plain


_are_str = of_types(str)


def _many_strs(values: Collection[Any]) -> bool:
    return _are_str(values) and all(map(str.isascii, values))


def _one_datetime(value: Any) -> dt.datetime:
    """Aware ones come back in UTC, so they are kept in UTC from the start."""
    plain = value if type(value) is dt.datetime else to_plain(value)
    if type(plain) is not dt.datetime:
        raise Misfit("datetime", value)
    if plain.tzinfo is dt.UTC:
        return plain
    if plain.utcoffset() is None:
        is_bare = plain.tzinfo is None and not plain.fold
        return plain if is_bare else plain.replace(fold=0, tzinfo=None)
    try:
        return plain.astimezone(dt.UTC)
    except OverflowError:
        fix = "In UTC, its year is not between 1 and 9999"
        raise Misfit("datetime", value, fix) from None


def _one_time(value: Any) -> dt.time:
    if type(value) is not dt.time or value.tzinfo is not None:
        raise Misfit("time without a time zone", value)
    return value.replace(fold=0) if value.fold else value


SCALAR_CHECKS: dict[type[inspect.Type], Check] = {
    inspect.NoneType: _simple(type(None), "None"),
    inspect.BoolType: _simple(bool),
    inspect.IntType: Check("int", frozenset({int}), _one_int, _many_ints),
    inspect.FloatType: Check("float", frozenset({float}), _one_float, of_types(float), exact=float),
    inspect.StrType: Check("str", frozenset({str}), _one_str, _many_strs),
    inspect.BytesType: _simple(bytes),
    inspect.ByteArrayType: replace(_simple(bytearray), is_immutable=False),
    inspect.DateTimeType: Check("datetime", frozenset({dt.datetime}), _one_datetime, never_many),
    inspect.DateType: _simple(dt.date),
    inspect.TimeType: Check("time", frozenset({dt.time}), _one_time, never_many),
    inspect.TimeDeltaType: _simple(dt.timedelta),
    inspect.DecimalType: _simple(Decimal),
    inspect.UUIDType: _simple(uuid.UUID),
}
"""The checks of types without parts."""

_PLAIN: dict[type, Callable[[Any], Any]] = {
    check_type: SCALAR_CHECKS[node].one
    for check_type, node in (
        (type(None), inspect.NoneType),
        (bool, inspect.BoolType),
        (int, inspect.IntType),
        (float, inspect.FloatType),
        (str, inspect.StrType),
        (bytes, inspect.BytesType),
    )
}


def _one_plain(value: Any) -> Any:
    """`Any`: what comes back from msgpack, without a declared type, as it was."""
    check = _PLAIN.get(type(value))
    if check is not None:
        return check(value)
    if type(value) is list:
        checked = one_by_one(_one_plain, value)
        return value if are_same(checked, value) else checked
    if type(value) is dict:
        return _plain_dict(value)
    if isinstance(value, dt.datetime) and value.utcoffset() is not None:
        return _one_datetime(value)
    plain = to_plain(value)
    if type(plain) in _PLAIN:
        return _PLAIN[type(plain)](plain)
    fix = "Declare the type of the value: undeclared, it would come back as another"
    raise Misfit("None, bool, int, float, str, bytes, aware datetime, list or dict", value, fix)


def _plain_dict(values: dict[Any, Any]) -> dict[Any, Any]:
    checked = {}
    for key, value in values.items():
        try:
            if type(key) not in _PLAIN:
                raise Misfit("a key of type None, bool, int, float, str or bytes", key)
            checked[_PLAIN[type(key)](key)] = _one_plain(value)
        except Misfit as misfit:
            raise misfit.inside(f"[{key!r}]") from None
    return values if are_same(checked.values(), values.values()) else checked


any_check = Check("Any", frozenset(), _one_plain, never_many, is_immutable=False)
"""The check of values of no declared type."""
