"""Records with all their fields: msgspec leaves out what it did not read and the class has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["complete"]


def complete(value: Any) -> None:
    """Have each dataclass in a value that was just decoded hold all its fields itself.

    msgspec does not set a field that the bytes lack and whose default is an attribute of the class;
    and when it writes the object, it leaves the field out again.
    """
    for part in _parts(value):
        complete(part)


def _parts(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return [*value.keys(), *value.values()]
        case list() | tuple() | set() | frozenset():
            return value
        case msgspec.Struct():
            return [getattr(value, name) for name in value.__struct_fields__]
    if not dataclasses.is_dataclass(value):
        return ()
    fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    own = getattr(value, "__dict__", None)
    if own is not None:
        own |= fields  # by the back door: it may be frozen
    return fields.values()
