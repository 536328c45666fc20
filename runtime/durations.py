"""Durations as users write them: `timedelta`, seconds, or text such as "500ms" and "1h 30min"."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from holdfast.storage import Invalid

__all__ = ["Duration", "duration_ms"]

Duration: TypeAlias = timedelta | float | str
"""A `timedelta`, a number of seconds, or text: numbers with their units, added up."""

_UNITS_MS = {
    unit: milliseconds
    for units, milliseconds in (
        ("ms milli millis millisecond milliseconds", 1),
        ("s sec secs second seconds", 1_000),
        ("m min minute minutes", 60_000),
        ("h hour hours", 3_600_000),
        ("d day days", 86_400_000),
    )
    for unit in units.split()
}
_TERM = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]+)")
_TEXT = re.compile(rf"\s*(?:{_TERM.pattern}\s*)+")
_LONGEST_MS = 2**62  # may be added to a clock, and is still a number of 64 bits


def duration_ms(value: Duration, *, name: str, least_ms: int = 0) -> int:
    """A duration in milliseconds, rounded; `name` says in errors which setting it is.

    Raises:
        Invalid: it is no duration, it is shorter than `least_ms`, or it rounds to nothing.
    """
    exact = _exact_ms(value)
    if exact is None:
        raise Invalid(
            f"{name} is not a duration",
            expected="a timedelta, a number of seconds, or text with units: d, h, min, s, ms",
            found=repr(value),
            fix='Write for example "500ms", "5s", "10 min" or "1h 30min"',
        )
    rounded = round(exact)
    is_lost = exact != 0 and rounded == 0
    if is_lost or not least_ms <= rounded <= _LONGEST_MS:
        least = max(least_ms, 1) if is_lost else least_ms
        raise Invalid(
            f"{name} is out of range",
            expected=f"{least} ms or more, and at most {_LONGEST_MS} ms",
            found=repr(value),
        )
    return rounded


def _exact_ms(value: object) -> Fraction | None:
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1), 1000)
    if isinstance(value, str):
        return _read(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return Fraction(value) * 1000


def _read(text: str) -> Fraction | None:
    lowered = text.lower()
    if not _TEXT.fullmatch(lowered):
        return None
    total = Fraction(0)
    for number, unit in _TERM.findall(lowered):
        if unit not in _UNITS_MS:
            return None
        total += Fraction(number) * _UNITS_MS[unit]
    return total
