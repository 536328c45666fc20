"""The common part of two type descriptions, and their differences.

States of different types are compared by the common part: the fields that the records of both
have, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any, TypeAlias

from holdfast.backends.values.type_descriptions import Schema
from holdfast.savepoints.showing.inspecting import type_of

__all__ = ["common_of", "common_of_all", "differences", "projection"]

_ANY: Schema = {"type": "any"}
_NUMBERS = frozenset({"bool", "int", "float", "number"})
_INT_END = 2.0**63
_LISTS = frozenset({"list", "set", "frozenset", "sequence"})
_Project: TypeAlias = Callable[[Any], Any]


def common_of(first: Schema, second: Schema) -> Schema:
    """The description of the part that values of both types have."""
    pair = {first["type"], second["type"]}
    if first == second or pair == {"recursive"}:
        return first
    members = [each["type"] for side in (first, second) for each in side.get("members", [side])]
    if {*members} <= _NUMBERS | {"none"}:
        return {"type": "number"}
    if "record" in pair or "union" in pair:
        return _common_member(_record_of(first), _record_of(second))
    return _common_parts(first, second)


def _common_member(first: Schema | None, second: Schema | None) -> Schema:
    if first is None or second is None:
        return _ANY
    if {first["type"], second["type"]} == {"record"}:
        return _common_record(first, second)
    return first if first["type"] == second["type"] else _ANY


def _common_parts(first: Schema, second: Schema) -> Schema:
    pair = {first["type"], second["type"]}
    if pair <= _LISTS:
        return {"type": "list", "items": common_of(first["items"], second["items"])}
    if pair == {"dict"}:
        return {"type": "dict", "values": common_of(first["values"], second["values"])}
    if pair == {"tuple"} and len(first["items"]) == len(second["items"]):
        items = map(common_of, first["items"], second["items"])
        return {"type": "tuple", "items": list(items)}
    return _ANY


def common_of_all(schemas: list[Schema]) -> Schema:
    """The common part of all types."""
    return reduce(common_of, schemas)


def _common_record(first: Schema, second: Schema) -> Schema:
    theirs = _fields(second)
    both = {
        name: common_of(schema, theirs[name])
        for name, schema in _fields(first).items()
        if name in theirs
    }
    fields = [{"name": name, "schema": both[name]} for name in sorted(both)]
    return {"type": "record", "name": first["name"], "fields": fields}


def _fields(schema: Schema) -> dict[str, Schema]:
    return {field["name"]: field["schema"] for field in schema["fields"]}


def _record_of(schema: Schema) -> Schema | None:
    """The record that a type is, or the only record of a union, also a recursive one."""
    members = schema.get("members", [schema])
    records = [each for each in members if each["type"] in ("record", "recursive")]
    return records[0] if len(records) == 1 else None


def projection(written: Schema, common: Schema) -> _Project:
    """A function from plain values of a type to their part that `common` describes."""
    return _projection(written, common, {})


def _projection(written: Schema, common: Schema, around: dict[str, list[_Project]]) -> _Project:
    match common["type"]:
        case "number":
            return _number
        case "recursive":
            record = _record_of(written) or {}
            return partial(_later, around.get(record.get("name", ""), [_same]))
        case "record":
            return _of_record(_record_of(written), common, around)
    return _of_parts(written, common, around)


def _later(projected: list[_Project], value: Any) -> Any:
    """The projection of a recursive record, which is known once the whole record is."""
    return projected[0](value)


def _of_parts(written: Schema, common: Schema, around: dict[str, list[_Project]]) -> _Project:
    match common["type"]:
        case "list" if written["type"] in _LISTS:
            item = _projection(written["items"], common["items"], around)
            return lambda values: [item(each) for each in values]
        case "dict" if written["type"] == "dict":
            each = _projection(written["values"], common["values"], around)
            return lambda values: {key: each(value) for key, value in values.items()}
        case "tuple" if written["type"] == "tuple":
            parts = [
                _projection(*pair, around)
                for pair in zip(written["items"], common["items"], strict=True)
            ]
            return lambda values: [part(each) for part, each in zip(parts, values, strict=True)]
    return _same


def _of_record(
    written: Schema | None, common: Schema, around: dict[str, list[_Project]]
) -> _Project:
    if written is None or written["type"] == "recursive":
        return _same
    own: list[_Project] = [_same]
    around = {**around, written["name"]: own}
    theirs = _fields(written)
    parts = {
        field["name"]: _projection(theirs[field["name"]], field["schema"], around)
        for field in common["fields"]
        if field["name"] in theirs
    }
    kind: type = list if written["layout"] == "array" else dict
    tag = 1 if "tag" in written else 0

    def project(value: Any) -> Any:
        if not isinstance(value, kind):
            return value  # another member of a union
        if isinstance(value, list):
            value = dict(zip(theirs, value[tag:], strict=False))
        return {name: part(value[name]) for name, part in parts.items() if name in value}

    own[0] = project
    return project


def _same(value: Any) -> Any:
    return value


def _number(value: Any) -> Any:
    """Make 1, 1.0 and True equal. A float beyond the range of a 64-bit int is left unchanged."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _INT_END
    return int(value) if is_whole or isinstance(value, bool) else value


def differences(a: Schema, b: Schema) -> list[str]:
    """The differences between two types as text, one line each."""
    return list(dict.fromkeys(_differences(a, b, "")))


def _differences(a: Schema, b: Schema, path: str) -> Iterator[str]:
    pair = {a["type"], b["type"]}
    if pair == {"recursive"} or a == b:
        return
    if pair == {"record"}:
        yield from _of_fields(a, b, path)
    elif pair == {"enum"}:
        yield from _of_enums(a, b, path or "value")
    else:
        yield from _of_others(a, b, path)


def _of_others(a: Schema, b: Schema, path: str) -> Iterator[str]:
    where = path or "value"
    pair = {a["type"], b["type"]}
    if pair <= _LISTS and len(pair) == 1:
        yield from _differences(a["items"], b["items"], f"{path}[]")
    elif pair == {"dict"}:
        if a["keys"] != b["keys"]:
            yield f"keys of {where}: {type_of(a['keys'])} in A, {type_of(b['keys'])} in B"
        yield from _differences(a["values"], b["values"], f"{path}[]")
    elif pair == {"tuple"} and len(a["items"]) == len(b["items"]):
        for place, (mine, its) in enumerate(zip(a["items"], b["items"], strict=True)):
            yield from _differences(mine, its, f"{path}[{place}]")
    elif type_of(a) != type_of(b):
        yield f"{where}: {type_of(a)} in A, {type_of(b)} in B"


def _of_enums(a: Schema, b: Schema, where: str) -> Iterator[str]:
    for one, values, others in (("A", a, b), ("B", b, a)):
        only = [repr(each) for each in values["values"] if each not in others["values"]]
        if only:
            yield f"{where}: {', '.join(only)} only in {one}"


def _of_fields(a: Schema, b: Schema, path: str) -> Iterator[str]:
    mine, its = ({field["name"]: field for field in each["fields"]} for each in (a, b))
    for name in dict.fromkeys((*mine, *its)):
        where = f"{path}.{name}"
        if name not in its:
            yield f"{where}: only in A, {type_of(mine[name]['schema'])}"
        elif name not in mine:
            yield f"{where}: only in B, {type_of(its[name]['schema'])}"
        else:
            yield from _differences(mine[name]["schema"], its[name]["schema"], where)
            if mine[name]["required"] != its[name]["required"]:
                yield f"{where}: has a default only in {'B' if mine[name]['required'] else 'A'}"
    if a["layout"] != b["layout"]:
        yield f"{path or 'value'}: a {a['layout']} in A, a {b['layout']} in B"
    if a.get("tag") != b.get("tag"):
        yield f"{path or 'value'}: tag {a.get('tag')} in A, {b.get('tag')} in B"
