"""Selections of rows by key and key group, from options and from pushed-down filters.

A selection only narrows what is read: it may keep rows that a filter rejects, and never drops one
that it accepts. Spark applies its filters to every row again.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from holdfast.backends.values.type_descriptions import Schema
from holdfast.savepoints.reading.columns import KeyedColumns, KeySet, StateColumns
from holdfast.savepoints.showing.inspecting import type_of
from holdfast.storage import Invalid

__all__ = ["Path", "Selection", "asked_for", "given_key", "select"]

Path = tuple[str, ...]
"""A column, or a field of one that is a struct."""

_KEY = "key"
_HEXADECIMAL = "0x"
_UNKNOWN: Schema = {"type": "any"}
_MOST_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class Selection:
    """The wanted keys, None for all, and the first and last wanted place. Picklable."""

    keys: KeySet | None = None
    first: int | None = None
    last: int | None = None

    def and_also(self, other: Selection) -> Selection:
        """A selection that contains the intersection of both."""
        firsts = [each for each in (self.first, other.first) if each is not None]
        lasts = [each for each in (self.last, other.last) if each is not None]
        return Selection(
            other.keys if self.keys is None else self.keys,
            max(firsts, default=None),
            min(lasts, default=None),
        )

    def of(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """These ranges of places, cut to those that can contain wanted rows."""
        found = []
        for first, last in parts:
            low = first if self.first is None else max(first, self.first)
            high = last if self.last is None else min(last, self.last)
            if low <= high and (self.keys is None or self.keys.within((low, high))):
                found.append((low, high))
        return found


def asked_for(columns: StateColumns, options: Mapping[str, str | None]) -> Selection:
    """The selection of the options `key`, `keys` and `keyGroups`, which are texts.

    Raises:
        Invalid: an option cannot be parsed, or does not fit the state.
    """
    key, keys, groups = (options.get(name) for name in ("key", "keys", "keyGroups"))
    if key is not None and keys is not None:
        raise Invalid("both one key and several are given", fix="Leave one of them out")
    texts: list[Any] | None = None if key is None else [key]
    if keys is not None:
        texts = _json(keys)
        if not isinstance(texts, list):
            raise Invalid("the keys cannot be read", expected="a JSON array", found=keys)
    wanted = None
    if texts is not None:
        if not isinstance(columns, KeyedColumns):
            raise Invalid("keys are given for a state without keys")
        schema = columns.keys
        encoded = [given_key(schema, each, is_text=keys is None) for each in texts]
        wanted = KeySet(schema, columns.max_parallelism, encoded)
    if groups is None:
        return Selection(wanted)
    first, dash, last = groups.partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()) or not (
        columns.places[0] <= int(first) <= int(last) <= columns.places[1]
    ):
        raise Invalid(
            "these key groups do not exist",
            expected="from {} to {}, such as 0-9".format(*columns.places),
            found=groups,
        )
    return Selection(wanted, int(first), int(last))


def given_key(schema: Schema, given: Any, *, is_text: bool) -> bytes:
    """The encoded bytes of a key that is given as text or JSON, or as a part of JSON.

    Text in double quotes is JSON, also for keys of type text. Bytes are base64 in JSON, as in the
    output of `show`; as text they are taken literally, or as hexadecimal digits after `0x`.

    Raises:
        Invalid: it is not a key of this type.
    """
    for each in _readings(schema, given) if is_text else [_of_json(schema, given)]:
        encoded = KeySet.encode(schema, each)
        if encoded is not None:
            return encoded
    raise Invalid(
        "this is not a key of the state",
        expected=f"{type_of(schema)}, as text or as JSON",
        found=repr(given),
    )


def _readings(schema: Schema, text: str) -> list[Any]:
    """The possible readings of a text, the most likely first."""
    value = _json(text)
    if value is not text and (schema["type"] != "str" or isinstance(value, str)):
        return [_of_json(schema, value), text]
    if schema["type"] == "bytes" and text.startswith(_HEXADECIMAL):
        with suppress(ValueError):
            return [bytes.fromhex(text.removeprefix(_HEXADECIMAL))]
    return [text]


def _of_json(schema: Schema, value: Any) -> Any:
    """A JSON value as one of the type, such as bytes from base64; unchanged if it does not fit."""
    match schema, value:
        case {"type": "bytes"}, str():
            return _decoded(value)
        case {"type": "float"}, "NaN" | "Infinity" | "-Infinity":
            return float(value)
        case {"type": "union", "members": list(members)}, _ if value is not None:
            return _of_member(members, value)
        case {"items": dict(item)}, list():
            return [_of_json(item, each) for each in value]
        case {"type": "tuple" | "record"}, list() | dict():
            return _of_parts(dict(_parts(schema)), value)
        case _:
            return value


def _of_parts(parts: Mapping[str, Schema], value: list[Any] | dict[str, Any]) -> Any:
    if isinstance(value, list):
        schemas = [*parts.values(), *[_UNKNOWN] * len(value)]
        return [_of_json(part, each) for part, each in zip(schemas, value, strict=False)]
    return {name: _of_json(parts.get(name, _UNKNOWN), each) for name, each in value.items()}


def _of_member(members: Sequence[Schema], value: Any) -> Any:
    """The value as the first member of a union that reads it differently than JSON does."""
    if isinstance(value, str) and {"type": "str"} in members:
        return value
    for member in members:
        found = _of_json(member, value)
        if found is not value:
            return found
    return value


def _decoded(text: str) -> bytes | str:
    """The bytes that base64 encodes; the text itself if it is not base64."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return text


def _json(text: str) -> Any:
    """The value of a JSON text; the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def select(
    columns: StateColumns,
    equal: Mapping[Path, Sequence[Any]],
    bounds: tuple[int | None, int | None],
) -> Selection:
    """The selection for columns that must equal one of some values, and for bounds of places."""
    keys = None
    if isinstance(columns, KeyedColumns):
        encoded = _keys(columns.keys, equal)
        if encoded is not None:
            keys = KeySet(columns.keys, columns.max_parallelism, encoded)
    return Selection(keys, *bounds)


def _keys(schema: Schema, equal: Mapping[Path, Sequence[Any]]) -> list[bytes] | None:
    """The encoded keys that the filters allow; None if all, or too many to list."""
    shown = _shown(schema, (_KEY,), equal)
    if shown is None or len(shown) > _MOST_KEYS:
        return None
    found: list[bytes] = []
    for each in shown:
        encoded = KeySet.encode(schema, each)
        if encoded is None:
            return None
        found.append(encoded)
    return found


def _shown(schema: Schema, path: Path, equal: Mapping[Path, Sequence[Any]]) -> Sequence[Any] | None:
    """The values that filters allow in a column or field; all combinations for a struct."""
    if path in equal:
        return equal[path]
    parts = dict(_parts(schema))
    if not parts:
        return None
    choices = [_shown(part, (*path, name), equal) for name, part in parts.items()]
    listed = [each for each in choices if each is not None]
    if len(listed) < len(choices) or prod(map(len, listed)) > _MOST_KEYS:
        return None
    return [dict(zip(parts, each, strict=True)) for each in product(*listed)]


def _parts(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The fields of a key whose column is a struct; none for other keys."""
    match schema:
        case {"type": "tuple", "items": list(items)}:
            for place, item in enumerate(items):
                yield f"_{place + 1}", item
        case {"type": "record", "fields": list(fields)}:
            for field in fields:
                yield field["name"], field["schema"]
