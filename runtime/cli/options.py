"""Options as they are given to a command: `-Dkey=value`, of a job or of a storage."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.storage import Invalid

__all__ = ["COMMAND_LINE", "read_options"]

COMMAND_LINE = "the command line"


def read_options(options: Iterable[str]) -> dict[str, str]:
    """The texts of `key=value`, by key.

    Raises:
        Invalid: one is given twice, or without a value.
    """
    given: dict[str, str] = {}
    for option in options:
        key, is_set, text = option.partition("=")
        if not is_set or not key:
            raise Invalid("this is no option", expected="-Dkey=value", found=f"-D{option}")
        if key in given:
            raise Invalid(f"option {key!r} is given twice", where=COMMAND_LINE, found=f"-D{option}")
        given[key] = text
    return given
