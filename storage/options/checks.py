"""Checks of values that settings classes share. Each raises an error that names the setting."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable
from difflib import get_close_matches

from holdfast.storage.errors import Invalid

__all__ = [
    "check_choice",
    "check_count",
    "check_known",
    "check_number",
    "check_switch",
    "check_text",
    "did_you_mean",
    "text_fix",
]


def check_choice(value: object, choices: Collection[str], *, name: str) -> None:
    """Refuse a value that is not one of the words.

    Raises:
        Invalid: it is not; names the choices.
    """
    if value not in choices:
        raise Invalid(
            f"{name} is not one of the choices",
            expected=" or ".join(repr(choice) for choice in choices),
            found=repr(value),
        )


def check_count(value: object, *, name: str, least: int, most: float = math.inf) -> None:
    """Refuse a value that is not a whole number from `least` to `most`.

    Raises:
        Invalid: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        upper = "or more" if most == math.inf else f"to {most}"
        raise Invalid(
            f"{name} is out of range",
            expected=f"a whole number, {least} {upper}",
            found=repr(value),
        )


def check_number(value: object, *, name: str, least: float, most: float = math.inf) -> None:
    """Refuse a value that is not a finite number from `least` to `most`.

    Raises:
        Invalid: it is not.
    """
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if math.isfinite(number) and least <= number <= most:
        return
    upper = "" if most == math.inf else f" to {most:g}"
    raise Invalid(
        f"{name} is out of range", expected=f"a number from {least:g}{upper}", found=repr(value)
    )


def check_switch(value: object, *, name: str) -> None:
    """Refuse a value that is neither True nor False.

    Raises:
        Invalid: it is neither.
    """
    if not isinstance(value, bool):
        raise Invalid(f"{name} is a switch", expected="True or False", found=repr(value))


def check_text(value: object, *, name: str, expected: str = "text") -> None:
    """Refuse a value that is not text, is empty, or has a NUL character, which no path can have.

    Raises:
        Invalid: it is such a value.
    """
    if not isinstance(value, str) or not value or "\0" in value:
        raise Invalid(
            f"{name} is not usable", expected=expected, found=repr(value), fix=text_fix(value)
        )


def text_fix(given: object) -> str:
    """What to do about a place that is given as a path of Python's, and not as text.

    Places may be URLs, and `Path("s3://bucket")` is `s3:/bucket`, a folder: so none is taken.
    """
    return f'Pass it as text: "{given}"' if isinstance(given, os.PathLike) else ""


def check_known(options: Iterable[str], known: Collection[str], *, what: str, where: str) -> None:
    """Refuse names of options that do not exist.

    Raises:
        Invalid: there is one; names those that exist.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise Invalid(
            f"{what} option {unknown[0]!r} is not known",
            where=where,
            expected=f"one of {', '.join(sorted(known)) or 'none: it has no options'}",
            fix=did_you_mean(unknown[0], known).rstrip(),
        )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question that names the nearest of the names, with a space behind it; else nothing."""
    near = get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}? " if near else ""
