"""Checks of values that settings classes share. Each raises an error that names the setting."""

from __future__ import annotations

import math
from collections.abc import Collection

from holdfast.storage.errors import Invalid

__all__ = ["check_choice", "check_count", "check_number", "check_switch"]


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


def check_count(value: object, *, name: str, least: int) -> None:
    """Refuse a value that is not a whole number of at least `least`.

    Raises:
        Invalid: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Invalid(
            f"{name} is out of range",
            expected=f"a whole number, {least} or more",
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
