"""One reader for each kind of value, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.storage.options.codecs import (
    DURATION,
    NUMBER,
    SECONDS,
    SIZE,
    SWITCH,
    TEXT,
    WHOLE_NUMBER,
    Codec,
    either,
    one_of,
)

NEVER = either("never", None, SECONDS)
COLOURS = one_of({"RED": 1, "DARK_BLUE": 2})


@pytest.mark.parametrize(
    ("codec", "text", "value"),
    [
        (SWITCH, "True", True),
        (SWITCH, "false", False),
        (WHOLE_NUMBER, "0042", 42),
        (WHOLE_NUMBER, "-1", -1),
        (NUMBER, "1.5", 1.5),
        (NUMBER, "-3", -3.0),
        (SIZE, "7", 7),
        (SIZE, "700 Kb", 700 << 10),
        (SIZE, "16mib", 16 << 20),
        (SIZE, "2G", 2 << 30),
        (SIZE, "1 p", 1 << 50),
        (DURATION, "500", "500ms"),
        (DURATION, "1h 30min", "1h 30min"),
        (DURATION, "0", "0ms"),
        (SECONDS, "500", 0.5),
        (SECONDS, "2500 µs", 0.0025),
        (SECONDS, "30 ns", 3e-8),
        (SECONDS, "1.5 s", 1.5),
        (SECONDS, "1h 30min", 5400.0),
        (NEVER, "Never", None),
        (NEVER, "1 d", 86_400.0),
        (COLOURS, "dark_blue", 2),
        (TEXT, "x = y", "x = y"),
    ],
)
def test_a_text_becomes_a_value(codec: Codec, text: str, value: Any) -> None:
    read = codec.read(text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        (SWITCH, "yes"),
        (SWITCH, ""),
        (WHOLE_NUMBER, "1.0"),
        (WHOLE_NUMBER, "1e3"),
        (WHOLE_NUMBER, "1" * 16),
        (WHOLE_NUMBER, "٣"),
        (NUMBER, "nan"),
        (NUMBER, ".5"),
        (SIZE, "-1"),
        (SIZE, "1.5 mb"),
        (SIZE, "5 mbit"),
        (DURATION, "soon"),
        (DURATION, "-1 s"),
        (SECONDS, "10 parsecs"),
        (NEVER, "ever"),
        (COLOURS, "green"),
        (TEXT, ""),
    ],
)
def test_a_text_of_another_kind_is_refused(codec: Codec, text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the table says what was expected
        codec.read(text)


def test_a_codec_says_what_it_expects() -> None:
    assert COLOURS.values == "`RED` or `DARK_BLUE`"
    assert COLOURS.expected == "RED or DARK_BLUE"
    assert NEVER.expected == "a duration such as 10 min, or never"


def test_durations_are_the_same_in_any_unit() -> None:
    assert DURATION.is_same("1 s", "1000ms")
    assert not DURATION.is_same("1 s", "1s 1ms")
