"""Sizes as text, such as `64 mb`: one reader for options, memory and Hadoop's settings."""

from __future__ import annotations

import re

__all__ = ["size_bytes"]

_UNITS = {
    unit: 1 << bits
    for units, bits in (
        ("b bytes", 0),
        ("k kb kib kibibytes", 10),
        ("m mb mib mebibytes", 20),
        ("g gb gib gibibytes", 30),
        ("t tb tib tebibytes", 40),
        ("p pb pib pebibytes", 50),
        ("e eb eib exbibytes", 60),
    )
    for unit in units.split()
} | {"": 1}
_SIZE = re.compile(r"([0-9]{1,18})\s*([a-z]*)")


def size_bytes(text: str) -> int | None:
    """A whole number with a unit, as in Flink: units are of 1024, without one it is bytes.

    None if the text is no size.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        return None
    return int(match[1]) * _UNITS[match[2]]
