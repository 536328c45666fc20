"""The description of a type of values as JSON, for a snapshot's metadata.

| description | types |
|---|---|
| `{"type": "int"}`, likewise none, bool, float, str, … | types without parts; `any` for no type |
| `{"type": "enum" or "literal", "values": […]}` | their stored values |
| `{"type": "list", "items": …}`, set, frozenset, sequence | `sequence` is `tuple[T, ...]` |
| `{"type": "tuple", "items": […]}` | tuples of a fixed length |
| `{"type": "dict", "keys": …, "values": …}` | |
| `{"type": "union", "members": […]}` | unions, Optional |
| `{"type": "record", "name": …, "layout": "map" or "array", "fields": […]}` | classes with fields |
| `{"type": "recursive", "name": …}` | a record within itself |

A field has its name as it is written, a schema, and whether it is required. `tag` is a Struct's
tag, a list of the tag's field and its value. `closed` says that a record refuses unknown fields.
`sparse` says that fields which are not required may be left out, as in a TypedDict. `whole` says
that all records have all their fields, though some are not required: in snapshots without this word
there may be records from before a field was added. Keys are described in the same words, with less
about records.
"""

from __future__ import annotations

import typing
from typing import Any, TypeVar

from msgspec import inspect

from holdfast.backends.values.normalizing import full_name

__all__ = ["SIMPLE_TYPES", "Schema", "are_alike", "describe_type"]

Schema = dict[str, Any]
_Outer = tuple[tuple[type, list[Any], str], ...]
"""The records around a part: the class, its arguments if it is generic, and its name."""

SIMPLE_TYPES: dict[type[inspect.Type], str] = {
    inspect.AnyType: "any",
    inspect.NoneType: "none",
    inspect.BoolType: "bool",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "str",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytearray",
    inspect.DateTimeType: "datetime",
    inspect.DateType: "date",
    inspect.TimeType: "time",
    inspect.TimeDeltaType: "timedelta",
    inspect.DecimalType: "decimal",
    inspect.UUIDType: "uuid",
}
"""Types without parts, and their names in descriptions."""
_COLLECTIONS: dict[type[inspect.Type], str] = {
    inspect.ListType: "list",
    inspect.SetType: "set",
    inspect.FrozenSetType: "frozenset",
    inspect.VarTupleType: "sequence",
}


def describe_type(node: inspect.Type) -> Schema:
    """The description of a type for which there is a check (`values/compound_checks.py`)."""
    return _describe(node, ())


def _describe(node: inspect.Type, outer: _Outer) -> Schema:
    if type(node) in SIMPLE_TYPES:
        return {"type": SIMPLE_TYPES[type(node)]}
    match node:
        case inspect.LiteralType(values=values):
            return {"type": "literal", "values": sorted(values, key=repr)}
        case inspect.EnumType(cls=cls):
            values = tuple(member.value for member in cls)
            return {"type": "enum", "name": full_name(cls), "values": sorted(values)}
        case inspect.CollectionType(item_type=item):
            return {"type": _COLLECTIONS[type(node)], "items": _describe(item, outer)}
    return _describe_parts(node, outer)


def _describe_parts(node: Any, outer: _Outer) -> Schema:
    match node:
        case inspect.UnionType(types=types):
            return {"type": "union", "members": [_describe(each, outer) for each in types]}
        case inspect.TupleType(item_types=types):
            return {"type": "tuple", "items": [_describe(each, outer) for each in types]}
        case inspect.DictType(key_type=keys, value_type=values):
            described = {"keys": _describe(keys, outer), "values": _describe(values, outer)}
            return {"type": "dict", **described}
    cls = typing.get_origin(node.cls) or node.cls
    arguments = [each for each in typing.get_args(node.cls) if not isinstance(each, TypeVar)]
    for known, its_arguments, its_name in outer:
        if (known, its_arguments) == (cls, arguments):
            return {"type": "recursive", "name": its_name}
    name = full_name(cls)
    if name in [its_name for _, _, its_name in outer]:
        # A generic class within itself with other arguments is another record
        name += f"[{', '.join(map(_argument, arguments)) or 'Any'}]"
    return _describe_record(node, name, (*outer, (cls, arguments, name)))


def _argument(annotation: Any) -> str:
    return full_name(annotation) if isinstance(annotation, type) else str(annotation)


def _describe_record(node: Any, name: str, outer: _Outer) -> Schema:
    is_array = isinstance(node, inspect.NamedTupleType) or getattr(node, "array_like", False)
    described: Schema = {
        "type": "record",
        "name": name,
        "layout": "array" if is_array else "map",
        "fields": [
            {
                "name": field.encode_name,
                "schema": _describe(field.type, outer),
                "required": field.required,
            }
            for field in node.fields
        ],
    }
    if getattr(node, "tag_field", None) is not None:
        described["tag"] = [node.tag_field, node.tag]
    if getattr(node, "forbid_unknown_fields", False):
        described["closed"] = True
    if isinstance(node, inspect.TypedDictType):
        described["sparse"] = True
    elif not all(field.required for field in node.fields):
        described["whole"] = True
    return described


def are_alike(first: Schema | None, second: Schema | None) -> bool:
    """Whether two descriptions differ only in names of classes, which no bytes contain.

    So a class that was renamed, or moved to another module, is the same class. A pickle contains
    the name of its class, so there another name is another type.
    """
    return first == second or _nameless(first, ()) == _nameless(second, ())


def _nameless(schema: Any, outer: tuple[str, ...]) -> Any:
    """The description without names of classes; a record within itself as its nesting depth."""
    match schema:
        case {"type": "recursive", "name": name} if name in outer:
            return ("recursive", outer.index(name))
        case {"type": "record", "name": name}:
            parts, outer = {**schema, "name": ""}, (*outer, name)
        case {"type": "enum"}:
            parts = {**schema, "name": ""}
        case dict():
            parts = schema
        case list():
            return [_nameless(each, outer) for each in schema]
        case _:
            return schema
    return {word: _nameless(part, outer) for word, part in parts.items()}
