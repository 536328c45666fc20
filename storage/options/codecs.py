"""Codecs: how the text of an option becomes a value. One for each kind of value.

A reader raises `ValueError` for text that is of another kind; `Invalid` where it can say more.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

from holdfast.storage.options.durations import duration_ms, text_ms
from holdfast.storage.options.sizes import size_bytes

__all__ = [
    "DURATION",
    "NUMBER",
    "PATHS",
    "SECONDS",
    "SIZE",
    "SWITCH",
    "TEXT",
    "WHOLE_NUMBER",
    "Codec",
    "either",
    "one_of",
]


@dataclass(frozen=True, slots=True)
class Codec:
    """Reads the values of one kind."""

    values: str
    """What may be written, for documents and errors; literal words are in backquotes."""
    read: Callable[[str], Any]
    """The value of a text without space around it. Raises `ValueError` or `Invalid`."""
    is_same: Callable[[Any, Any], bool] = operator.eq
    """Whether a value set in code means the same as one that was read."""

    @property
    def expected(self) -> str:
        """`values` for an error."""
        return self.values.replace("`", "")


def one_of(words: Mapping[str, Any]) -> Codec:
    """One of these words, in any case, and its value."""
    known = {word.lower(): value for word, value in words.items()}

    def read(text: str) -> Any:
        if text.lower() not in known:
            raise ValueError(text)
        return known[text.lower()]

    return Codec(" or ".join(f"`{word}`" for word in words), read)


def either(word: str, value: Any, other: Codec) -> Codec:
    """What `other` reads, or a word for a value that `other` cannot read."""

    def read(text: str) -> Any:
        return value if text.lower() == word else other.read(text)

    return replace(other, values=f"{other.values}, or `{word}`", read=read)


def _text(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


def _whole_number(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,15}", text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", text):
        raise ValueError(text)
    return float(text)


def _duration(text: str) -> str:
    # As in Flink a bare number is in milliseconds. In code it is refused: it could be seconds.
    duration = f"{text}ms" if text.isdecimal() else text
    if text_ms(duration) is None:
        raise ValueError(text)
    return duration


def _seconds(text: str) -> float:
    return float(cast("Fraction", text_ms(_duration(text))) / 1000)


def _is_same_duration(code: Any, value: Any) -> bool:
    return duration_ms(code, name="duration") == duration_ms(value, name="duration")


def _size(text: str) -> int:
    size = size_bytes(text)
    if size is None:
        raise ValueError(text)
    return size


def _paths(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in re.split("[,:]", text) if each.strip())


def _are_same_paths(code: Any, value: tuple[str, ...]) -> bool:
    return tuple(map(str, code)) == value


_DURATION = "a duration such as `10 min`"
SWITCH = one_of({"true": True, "false": False})
TEXT = Codec("text", _text)
PATHS = Codec("absolute paths, with commas between them", _paths, _are_same_paths)
WHOLE_NUMBER = Codec("a whole number", _whole_number)
NUMBER = Codec("a number such as `1.5`", _number)
SIZE = Codec("a size such as `64 mb`", _size)
DURATION = Codec(_DURATION, _duration, _is_same_duration)
"""Kept as text, as settings classes of the room runtime take durations."""
SECONDS = Codec(_DURATION, _seconds)
"""As a number of seconds, for settings in seconds."""
