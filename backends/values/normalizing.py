"""Normalizing scalars of NumPy and Arrow, and subclasses of builtins, to plain Python types.

Keys and values of state have exact types, so that they are the same before and after a restore.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from itertools import repeat
from operator import is_
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.storage.errors import Invalid

__all__ = ["INT64_MAX", "INT64_MIN", "full_name", "has_none", "has_surrogates", "shown", "to_plain"]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
_SHOWN_CHARACTERS = 60


def to_plain(value: Any) -> Any:
    """The value as an exact builtin type if it is a scalar of such a kind; else the value itself.

    Raises:
        Invalid: a time with nanoseconds, which Python's types cannot hold.
    """
    if isinstance(value, np.generic):
        value = _from_numpy(value)
    elif isinstance(value, pa.Scalar):
        value = _from_arrow(value)
    for base, exact in _EXACT:
        if isinstance(value, base):
            return value if type(value) is base else exact(value)
    return value


def shown(value: object) -> str:
    """A value for an error message: its type, and the beginning of its repr."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - any class may have any `__repr__`
        text = f"that cannot be shown ({error!r})"
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}…"
    return f"{full_name(type(value))} {text}"


def full_name(cls: type) -> str:
    """A class's qualified name; builtins by their bare name."""
    module = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return f"{module}{cls.__qualname__}"


def has_none(values: Iterable[object]) -> bool:
    """Whether there is a None, by identity.

    `None in values` compares values with None: a user's `__eq__` may raise, return an array, or
    return True.
    """
    return any(map(is_, values, repeat(None)))


def has_surrogates(text: str) -> bool:
    """Whether a string has halves of surrogate pairs, which UTF-8 cannot encode."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _from_numpy(value: np.generic) -> Any:
    if not isinstance(value, np.datetime64 | np.timedelta64) or np.isnat(value):
        return value.item()
    plain = value.item()
    if not isinstance(plain, int):
        return plain
    unit = "datetime64[us]" if isinstance(value, np.datetime64) else "timedelta64[us]"
    in_microseconds = value.astype(unit)
    if in_microseconds != value:
        raise _too_fine(value)
    return in_microseconds.item()


def _from_arrow(value: Any) -> Any:
    kind = value.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        try:
            value = value.cast(pa.timestamp("us", kind.tz))
        except pa.ArrowInvalid:
            raise _too_fine(value) from None
    return value.as_py()


def _too_fine(value: object) -> Invalid:
    return Invalid(
        "a time is finer than a microsecond",
        expected="whole microseconds, the finest that Python's datetime holds",
        found=shown(value),
        fix="Round it first",
    )


def _exact_datetime(value: dt.datetime) -> dt.datetime:
    if getattr(value, "nanosecond", 0):
        raise _too_fine(value)
    return dt.datetime.combine(dt.date(value.year, value.month, value.day), value.timetz())


_EXACT: tuple[tuple[Any, Any], ...] = (
    (bool, bool),
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytes, bytes),
    (bytearray | memoryview, bytes),
    (dt.datetime, _exact_datetime),
    (dt.date, lambda value: dt.date(value.year, value.month, value.day)),
)
