"""Values as typed Arrow columns that any tool can read, and back to the same bytes.

| description | Arrow |
|---|---|
| bool, int, float, str, bytes, bytearray | bool, int64, double, string, binary |
| none | bool, always null |
| date | date32 |
| datetime, time, timedelta | string: ISO 8601, with a Z where there is a zone |
| decimal, uuid | string |
| enum and literal of str, or of int | string, int64 |
| list, set, frozenset, sequence | list |
| tuple | struct of `_1`, `_2`, … |
| dict with keys of the types before list, but none | map |
| record | struct of its fields; null is a field that was left out, where that is possible |
| union of a type and none | that type, with nulls |

Anything else stays the stored MessagePack or pickle: values of type `Any`, other unions, recursive
records. The metadata of the Arrow field then names it by `holdfast.encoding`. If keys of a dict are
or contain records, the whole value stays MessagePack: records are written as maps, and maps as keys
of maps cannot be decoded without their types.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from holdfast.backends.values.codec import PICKLE, pack_value
from holdfast.backends.values.normalizing import INT64_MAX, INT64_MIN, has_none
from holdfast.backends.values.type_descriptions import Schema

__all__ = ["ENCODING", "Unfit", "ValueForm", "is_plain", "may_lack_fields"]

ENCODING = "holdfast.encoding"
"""In the metadata of an Arrow field: the encoding of its bytes, which are kept as stored."""

_MSGPACK = "msgpack"
_Convert = Callable[[Any], Any]


class Unfit(Exception):
    """A value does not have the described shape, as one from before its class changed."""


class ValueForm:
    """Values of one type as an Arrow column.

    If values are not `checked`, a record that is not described as `whole` may lack fields with a
    default: it may have been written before they were added.
    """

    def __init__(self, schema: Schema, *, checked: bool) -> None:
        self._node = _Compiler(checked=checked).node(schema)
        if _has_maps_as_keys(schema):
            self._node = _OPAQUE
        self._is_pickle = schema["type"] == PICKLE
        if self._is_pickle:
            self._node = _Node(pa.binary(), encoding=PICKLE)
        self._is_raw = self._node.encoding == _MSGPACK
        self._decode = _typed(schema["type"], self._node).decode
        self.field: pa.Field = self._node.field("value")
        """The field of the column, with its name."""

    def to_arrow(self, values: bytes) -> pa.Array:
        """The column of the values of a block.

        Raises:
            Unfit: a value does not have the described shape.
        """
        try:
            items = self._decode(values)
            if self._is_raw:
                items = list(map(bytes, items))
            elif self._node.read is not None:
                items = list(map(self._node.read, items))
            return pa.array(items, self._node.type)
        except (msgspec.DecodeError, pa.ArrowException, *_MISFITS) as error:
            raise Unfit(str(error)) from error

    def from_arrow(self, column: pa.Array) -> bytes:
        """The values of a block, with their original bytes.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: a value is not of this type.
        """
        if self._is_raw:
            items = list(map(msgspec.Raw, column.to_pylist()))
        elif column.type in _NUMBERS and not column.null_count:
            items = column.to_numpy(zero_copy_only=False).tolist()
        else:
            items = column.to_pylist()
            if self._node.write is not None:
                items = list(map(self._node.write, items))
        return pack_value(items)


def is_plain(schema: Schema) -> bool:
    """Whether such values have only one encoding, so that Arrow gives back the same bytes."""
    return schema["type"] in ("bool", "bytes", "float", "int", "none", "str", "any", PICKLE)


def may_lack_fields(schema: Schema) -> bool:
    """Whether unchecked values may lack fields: some record has fields with a default."""
    is_known = schema["type"] != "record" or schema.get("sparse") or schema.get("whole")
    if not is_known and not all(field["required"] for field in schema["fields"]):
        return True
    return any(map(may_lack_fields, _parts(schema)))


def _has_maps_as_keys(schema: Schema) -> bool:
    """Whether some dict has keys that are, or contain, records written as maps."""
    if schema["type"] == "dict" and _has_map(schema["keys"]):
        return True
    return any(map(_has_maps_as_keys, _parts(schema)))


def _has_map(schema: Schema) -> bool:
    if schema["type"] == "recursive" or schema.get("layout") == "map":
        return True
    return any(map(_has_map, _parts(schema)))


def _parts(schema: Schema) -> list[Schema]:
    parts = [field["schema"] for field in schema.get("fields", ())]
    for name in ("items", "keys", "values", "members"):
        part = schema.get(name)
        found = part if isinstance(part, list) else [part]
        parts += [each for each in found if isinstance(each, dict) and "type" in each]
    return parts


_MISFITS = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""Python's errors for a value of another shape."""
_NUMBERS = (pa.int64(), pa.float64())


@dataclass(frozen=True, slots=True)
class _Node:
    """An Arrow type, and the conversions of MessagePack's plain values to its values and back.

    None means unchanged. `encoding` is that of bytes that are kept as stored.
    """

    type: pa.DataType
    read: _Convert | None = None
    write: _Convert | None = None
    encoding: str = ""

    def field(self, name: str) -> pa.Field:
        """The Arrow field of such a column, or of such a part of one."""
        metadata = {ENCODING: self.encoding} if self.encoding else None
        return pa.field(name, self.type, metadata=metadata)


def _typed(kind: str, node: _Node) -> msgspec.msgpack.Decoder[list[Any]]:
    """The decoder of a block's values: typed where possible, which is faster."""
    if node.encoding:
        return _RAW if node.encoding == _MSGPACK else _BYTES
    return _PLAIN.get(kind, _GENERIC)


_RAW: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[msgspec.Raw])
_BYTES: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[bytes])
_GENERIC: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Any])
_PLAIN: dict[str, msgspec.msgpack.Decoder[list[Any]]] = {
    "int": msgspec.msgpack.Decoder(list[int]),
    "float": msgspec.msgpack.Decoder(list[float]),
    "str": msgspec.msgpack.Decoder(list[str]),
    "bytes": msgspec.msgpack.Decoder(list[bytes]),
}


def _same(value: Any) -> Any:
    return value


def _instant_read(value: Any) -> str:
    """Naive datetimes are stored as text, aware ones as instants."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"
    return str(value)


def _instant_write(text: str) -> Any:
    return dt.datetime.fromisoformat(text) if text.endswith("Z") else text


def _uuid_read(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


_OPAQUE = _Node(pa.binary(), pack_value, msgspec.msgpack.Decoder().decode, _MSGPACK)
"""A part that has no Arrow type. It is decoded without a type, which loses nothing."""
_SCALARS: dict[str, _Node] = {
    "none": _Node(pa.bool_()),
    "bool": _Node(pa.bool_()),
    "int": _Node(pa.int64()),
    "float": _Node(pa.float64()),
    "str": _Node(pa.string()),
    "bytes": _Node(pa.binary()),
    "bytearray": _Node(pa.binary()),
    "date": _Node(pa.date32(), dt.date.fromisoformat, dt.date.isoformat),
    "datetime": _Node(pa.string(), _instant_read, _instant_write),
    "time": _Node(pa.string()),
    "timedelta": _Node(pa.string()),
    "decimal": _Node(pa.string()),
    "uuid": _Node(pa.string(), _uuid_read, uuid.UUID),
}


class _Compiler:
    """Makes the Arrow type of a description, and the conversions."""

    def __init__(self, *, checked: bool) -> None:
        self._checked = checked

        self._makers: dict[str, Callable[[Schema], _Node]] = {
            **dict.fromkeys(("enum", "literal"), _choices),
            **dict.fromkeys(("list", "set", "frozenset", "sequence"), self._list),
            "tuple": self._tuple,
            "dict": self._dict,
            "record": self._record,
            "union": self._union,
        }

    def node(self, schema: Schema) -> _Node:
        """The node of a type; binary if there is no Arrow type for it."""
        kind = schema["type"]
        if kind in _SCALARS:
            return _SCALARS[kind]
        make = self._makers.get(kind)
        return _OPAQUE if make is None else make(schema)

    def _list(self, schema: Schema) -> _Node:
        item = self.node(schema["items"])
        return _Node(pa.list_(item.field("item")), _each(item.read), _each(item.write))

    def _tuple(self, schema: Schema) -> _Node:
        names = [f"_{place}" for place in range(1, len(schema["items"]) + 1)]
        parts = list(map(self.node, schema["items"]))
        return _struct(_Fields(names, parts, frozenset(), [], is_array=True))

    def _record(self, schema: Schema) -> _Node:
        fields = schema["fields"]
        omitted: frozenset[str] = frozenset()
        if schema.get("sparse") or not (self._checked or schema.get("whole")):
            omitted = frozenset(field["name"] for field in fields if not field["required"])
        for field in fields:
            if field["name"] in omitted and _has_none(field["schema"]):
                return _OPAQUE  # a null could mean None or left out
        is_array = schema["layout"] == "array"
        tag = schema.get("tag", [])
        names = [field["name"] for field in fields]
        parts = [self.node(field["schema"]) for field in fields]
        its_tag = tag[1:] if is_array else tag
        return _struct(_Fields(names, parts, omitted, its_tag, is_array=is_array))

    def _dict(self, schema: Schema) -> _Node:
        key = schema["keys"]["type"]
        if key == "none" or not (key in _SCALARS or key in ("enum", "literal")):
            return _OPAQUE  # keys of Arrow's maps are never null, and few tools read structs there
        return _map(self.node(schema["keys"]), self.node(schema["values"]))

    def _union(self, schema: Schema) -> _Node:
        members = [each for each in schema["members"] if each["type"] != "none"]
        if len(members) != 1 or len(schema["members"]) != 2:
            return _OPAQUE
        inner = self.node(members[0])
        if inner.encoding:
            return _OPAQUE
        return _Node(inner.type, _if_there(inner.read), _if_there(inner.write))


def _has_none(schema: Schema) -> bool:
    """Whether None is among such values."""
    if schema["type"] == "union":
        return any(map(_has_none, schema["members"]))
    return schema["type"] in ("none", "any") or has_none(schema.get("values", ()))


def _choices(schema: Schema) -> _Node:
    """An enum or a literal: the type of its values, if they have one."""
    values = schema["values"]
    types = set(map(type, values))
    if types == {str}:
        return _SCALARS["str"]
    if types == {int} and INT64_MIN <= min(values) <= max(values) <= INT64_MAX:
        return _SCALARS["int"]
    return _OPAQUE


def _each(convert: _Convert | None) -> _Convert | None:
    return None if convert is None else lambda items: list(map(convert, items))


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a struct; `omitted` ones may be left out, `tag` is a Struct's tag."""

    names: list[str]
    parts: list[_Node]
    omitted: frozenset[str]
    tag: list[Any]
    is_array: bool


def _struct(fields: _Fields) -> _Node:
    if not fields.names or len(set(fields.names)) < len(fields.names) or "" in fields.names:
        return _OPAQUE
    kind = pa.struct(
        [node.field(name) for name, node in zip(fields.names, fields.parts, strict=True)]
    )
    if fields.is_array:
        return _Node(kind, *_by_place(fields))
    return _Node(kind, *_by_name(fields))


def _by_place(fields: _Fields) -> tuple[_Convert, _Convert]:
    names, tag, omitted = fields.names, fields.tag, fields.omitted
    reads = [node.read or _same for node in fields.parts]
    writes = [node.write or _same for node in fields.parts]
    least = max((place + 1 for place, name in enumerate(names) if name not in omitted), default=0)

    def read(items: list[Any]) -> dict[str, Any]:
        its = items[len(tag) :]
        if len(its) < least:
            raise ValueError(len(its))
        return {name: each(item) for name, each, item in zip(names, reads, its, strict=False)}

    def write(found: dict[str, Any]) -> list[Any]:
        items = list(tag)
        for name, each in zip(names, writes, strict=True):
            if name in omitted and found[name] is None:
                break
            items.append(each(found[name]))
        return items

    return read, write


def _by_name(fields: _Fields) -> tuple[_Convert, _Convert]:
    reads = {
        name: node.read or _same for name, node in zip(fields.names, fields.parts, strict=True)
    }
    writes = [
        (name, node.write or _same, name in fields.omitted)
        for name, node in zip(fields.names, fields.parts, strict=True)
    ]
    must = frozenset(fields.names) - fields.omitted
    tag = {fields.tag[0]: fields.tag[1]} if fields.tag else {}

    def read(items: dict[str, Any]) -> dict[str, Any]:
        if not must <= items.keys():
            raise KeyError(must - items.keys())
        return {name: each(items[name]) for name, each in reads.items() if name in items}

    def write(found: dict[str, Any]) -> dict[str, Any]:
        items = dict(tag)
        for name, each, is_omitted in writes:
            part = found[name]
            if part is not None or not is_omitted:
                items[name] = each(part)
        return items

    return read, write


def _map(key: _Node, value: _Node) -> _Node:
    read_key, read_value = key.read or _same, value.read or _same
    write_key, write_value = key.write or _same, value.write or _same

    def read(entries: dict[Any, Any]) -> list[tuple[Any, Any]]:
        return [(read_key(each), read_value(item)) for each, item in entries.items()]

    def write(entries: list[tuple[Any, Any]]) -> dict[Any, Any]:
        return {write_key(each): write_value(item) for each, item in entries}

    return _Node(pa.map_(key.field("key").with_nullable(False), value.field("value")), read, write)


def _if_there(convert: _Convert | None) -> _Convert | None:
    return None if convert is None else lambda item: None if item is None else convert(item)
