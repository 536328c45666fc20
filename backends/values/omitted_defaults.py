"""Writing Structs declared with `omit_defaults` with all their fields.

msgspec would leave out fields that equal their default, and a later version would read them as its
own default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect

__all__ = ["completing", "leaves_out_defaults"]


def leaves_out_defaults(node: inspect.Type) -> bool:
    """Whether some Struct in values of this type is declared with `omit_defaults`.

    Raises:
        TypeError: one is in the key of a dict, where it cannot be written otherwise.
    """
    return _Walk().finds(node)


def completing(pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """The encoder `pack`, which then writes all fields of each Struct."""
    return lambda value: pack(_whole(value))


class _Walk:
    """One walk over a type, which can contain itself."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def finds(self, node: inspect.Type) -> bool:
        """Whether there is such a Struct in this part."""
        if id(node) in self._seen:
            return False
        self._seen.add(id(node))
        config = getattr(getattr(node, "cls", None), "__struct_config__", None)
        found = [bool(config and config.omit_defaults), *map(self.finds, _parts_of(node))]
        if isinstance(node, inspect.DictType) and _Walk().finds(node.key_type):
            raise TypeError("the key of a dict is declared with omit_defaults")
        return True in found


def _parts_of(node: Any) -> list[inspect.Type]:
    match node:
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            return list(types)
        case inspect.CollectionType(item_type=item):
            return [item]
        case inspect.DictType(key_type=keys, value_type=values):
            return [keys, values]
    return [field.type for field in getattr(node, "fields", ())]


def _whole(value: Any) -> Any:
    """The value with a dict, or a list, for each object."""
    match value:
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return list(map(_whole, value))
        case msgspec.Struct():
            return _fields_of(value)
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value)]
    elif hasattr(value, "__attrs_attrs__"):
        names = [each.name for each in value.__attrs_attrs__]
    else:
        return value
    return {name: _whole(getattr(value, name)) for name in names}


def _fields_of(value: msgspec.Struct) -> Any:
    config = value.__struct_config__
    fields = [_whole(getattr(value, name)) for name in value.__struct_fields__]
    if config.array_like:
        return [*([] if config.tag is None else [config.tag]), *fields]
    named = dict(zip(value.__struct_encode_fields__, fields, strict=True))
    return named if config.tag_field is None else {config.tag_field: config.tag, **named}
