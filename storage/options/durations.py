"""Durations as users write them: `timedelta`, or text such as "500ms" and "1h 30min".

A bare number is refused: Flink's users mean milliseconds by it, and Python's users seconds.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import Literal, TypeAlias

from holdfast.storage.errors import Invalid

__all__ = ["Duration", "duration_ms", "text_ms"]

Duration: TypeAlias = timedelta | str | Literal[0]
"""A `timedelta`, or text: numbers with their units, added up. 0 needs no unit."""

_UNITS_MS = {
    unit: Fraction(milliseconds)
    for units, milliseconds in (
        ("ns nano nanos nanosecond nanoseconds", Fraction(1, 1_000_000)),
        ("µs us micro micros microsecond microseconds", Fraction(1, 1_000)),
        ("ms milli millis millisecond milliseconds", 1),
        ("s sec secs second seconds", 1_000),
        ("m min minute minutes", 60_000),
        ("h hour hours", 3_600_000),
        ("d day days", 86_400_000),
    )
    for unit in units.split()
}
_TERM = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-zµ]+)")
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,18})?")
_TEXT = re.compile(rf"\s*(?:{_TERM.pattern}\s*)+")
# A clock's time plus this still fits into 64 bits.
_LONGEST_MS = 2**62


def duration_ms(value: Duration, *, name: str, least_ms: int = 0) -> int:
    """A duration in milliseconds, rounded; `name` says in errors which setting it is.

    Raises:
        Invalid: it is no duration, it is shorter than `least_ms`, or it rounds to nothing.
    """
    bare = _bare_number(value)
    if bare:
        raise Invalid(
            f"{name} is a number without a unit",
            expected="a timedelta, or text with units: d, h, min, s, ms",
            found=repr(value),
            fix=f'Write "{bare}ms" for milliseconds, as Flink reads it, or "{bare}s" for seconds',
        )
    exact = _exact_ms(value)
    if exact is None:
        raise Invalid(
            f"{name} is not a duration",
            expected="a timedelta, or text with units: d, h, min, s, ms",
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


def text_ms(text: str) -> Fraction | None:
    """The exact milliseconds of numbers with their units; None if the text is no duration."""
    lowered = text.lower()
    if not _TEXT.fullmatch(lowered):
        return None
    total = Fraction(0)
    for number, unit in _TERM.findall(lowered):
        if unit not in _UNITS_MS:
            return None
        total += Fraction(number) * _UNITS_MS[unit]
    return total


def _exact_ms(value: object) -> Fraction | None:
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1), 1000)
    if isinstance(value, str):
        return text_ms(value)
    is_nothing = isinstance(value, int | float) and not isinstance(value, bool) and value == 0
    return Fraction(0) if is_nothing else None


def _bare_number(value: object) -> str:
    """A number that lacks its unit, as text; empty for everything else."""
    if isinstance(value, str):
        return value.strip() if _NUMBER.fullmatch(value.strip()) else ""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return ""
    return str(value) if math.isfinite(value) else ""
