"""Filters that Spark offers to a source: what they say of the values of columns.

Filters only leave out key groups and keys, and all of them go back to Spark, which looks at every
row once more. So a literal that no key is spelled like, or a comparison that means something else
to Spark, costs time and no rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from holdfast.savepoints.showing.selections import Path

__all__ = ["equalities", "place_bounds"]

_PLACES = (("key_group",), ("slot",))


def equalities(filters: Iterable[Filter]) -> dict[Path, list[Any]]:
    """Columns that must have one of some values, and these."""
    found: dict[Path, list[Any]] = {}
    for each in filters:
        match each:
            case EqualTo(attribute, value) | EqualNullSafe(attribute, value):
                values = [value]
            case In(attribute, value):
                values = list(value)
            case _:
                continue
        there = found.get(attribute)
        found[attribute] = (
            values if there is None else [value for value in there if value in values]
        )
    return found


def place_bounds(filters: Iterable[Filter]) -> tuple[int | None, int | None]:
    """From which to which key group, or slot, all must be; None is no bound."""
    lows: list[int] = []
    highs: list[int] = []
    for each in filters:
        if getattr(each, "attribute", None) not in _PLACES:
            continue
        match each:
            case EqualTo(_, int(value)):
                lows.append(value)
                highs.append(value)
            case In(_, value) if value and all(type(one) is int for one in value):
                lows.append(min(value))
                highs.append(max(value))
            case GreaterThan(_, int(value)):
                lows.append(value + 1)
            case GreaterThanOrEqual(_, int(value)):
                lows.append(value)
            case LessThan(_, int(value)):
                highs.append(value - 1)
            case LessThanOrEqual(_, int(value)):
                highs.append(value)
    return max(lows, default=None), min(highs, default=None)
