"""Lossless casts of columns of any tool to columns of the canonical form.

Numbers are widened to 64 bits; times and decimals become the texts of the savepoint format. Structs
are matched with classes by field name, and with tuples by name or position. Types that the format
stores as MessagePack are encoded from plain values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from holdfast.backends.values.codec import pack_value
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage.errors import Invalid

__all__ = ["fitted"]

_Test = Callable[[pa.DataType], bool]
_WAYS: tuple[type[Exception], ...] = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow and Python raise for a value that is too large, or is not of the type."""


def fitted(
    column: pa.Array, schema: Schema, kind: pa.DataType, *, name: str, is_packed: bool | None = None
) -> pa.Array:
    """Cast a column to `kind`, the Arrow type of the described type in the canonical form.

    Nulls are kept, also where the type does not allow them. `name` is the name of the column in
    errors. `is_packed` states whether bytes in place of a type that is stored as MessagePack are
    MessagePack already; None: not known, which is an error if there are such bytes.

    Raises:
        Invalid: the type of the column or one of its values does not fit; or `is_packed` is None
            and needed.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    try:
        return _Casts(is_packed=is_packed).fit(column, schema, kind, name)
    except _WAYS as error:
        raise _misfit(name, schema, column, str(error)) from error


@dataclass(frozen=True, slots=True)
class _Casts:
    """Casts of columns and of what is in them; see `fitted` for `is_packed`."""

    is_packed: bool | None

    def fit(self, column: pa.Array, schema: Schema, kind: pa.DataType, name: str) -> pa.Array:
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), kind)
        if schema["type"] == "union" and (member := _member(schema)) is not None:
            schema = member
        if pa.types.is_binary(kind) and schema["type"] not in _BINARY:
            return self._whole(column, schema, name)
        match schema["type"]:
            case "list" | "set" | "frozenset" | "sequence":
                return self._list(column, schema, kind, name)
            case "tuple" | "record":
                return self._struct(column, schema, kind, name)
            case "dict":
                return self._map(column, schema, kind, name)
        for test, convert in _LEAVES.get(_leaf_of(schema), ()):
            if test(column.type):
                return convert(column, kind)
        raise _misfit(name, schema, column)

    def _whole(self, column: pa.Array, schema: Schema, name: str) -> pa.Array:
        """A column that is stored as MessagePack."""
        if self.is_packed and not _is_bytes(column.type):
            raise _misfit(name, schema, column, "this is no MessagePack")
        if self.is_packed is None and _is_bytes(column.type):
            raise _unsaid(name)
        return column.cast(pa.binary()) if self.is_packed else _packed(column)

    def _list(self, column: pa.Array, schema: Schema, kind: pa.DataType, name: str) -> pa.Array:
        if not _is_list(column.type):
            raise _misfit(name, schema, column)
        lists = column.cast(pa.list_(column.type.value_field))
        start, end = _ends(lists)
        items = lists.values.slice(start, end - start)
        inner = self.fit(items, schema["items"], kind.value_type, f"{name}[]")
        return pa.ListArray.from_arrays(
            _offsets(lists), inner, type=kind, mask=lists.is_null() if lists.null_count else None
        )

    def _map(self, column: pa.Array, schema: Schema, kind: pa.DataType, name: str) -> pa.Array:
        if not pa.types.is_map(column.type):
            raise _misfit(name, schema, column)
        start, end = _ends(column)
        keys, items = column.keys.slice(start, end - start), column.items.slice(start, end - start)
        return pa.MapArray.from_arrays(
            _offsets(column),
            self.fit(keys, schema["keys"], kind.key_type, f"{name}[key]"),
            self.fit(items, schema["values"], kind.item_type, f"{name}[value]"),
            type=kind,
            mask=column.is_null() if column.null_count else None,
        )

    def _struct(self, column: pa.Array, schema: Schema, kind: pa.DataType, name: str) -> pa.Array:
        if not pa.types.is_struct(column.type):
            raise _misfit(name, schema, column)
        parts = schema["items"] if schema["type"] == "tuple" else schema["fields"]
        schemas = [part.get("schema", part) for part in parts]
        wanted = [kind.field(place).name for place in range(kind.num_fields)]
        found = [column.type.field(place).name for place in range(column.type.num_fields)]
        is_by_place = schema["type"] == "tuple" and len(found) == len(wanted)
        if sorted(found) != sorted(wanted) and not is_by_place:
            raise Invalid(
                f"a struct does not have the fields of the class in column {name!r}",
                expected=", ".join(wanted),
                found=", ".join(found),
                fix="Make a struct with all of them, and no others",
            )
        by_name = dict(zip(found, column.flatten(), strict=True))
        if sorted(found) != sorted(wanted):
            by_name = dict(zip(wanted, by_name.values(), strict=True))
        children = [
            self.fit(by_name[field.name], each, field.type, f"{name}.{field.name}")
            for field, each in zip(kind, schemas, strict=True)
        ]
        return pa.StructArray.from_arrays(
            children, fields=list(kind), mask=column.is_null() if column.null_count else None
        )


_BINARY = ("bytes", "bytearray")


def _member(schema: Schema) -> Schema | None:
    """The other member of a union of two with none."""
    members: list[Schema] = [each for each in schema["members"] if each["type"] != "none"]
    return members[0] if len(members) == 1 and len(schema["members"]) == 2 else None


def _leaf_of(schema: Schema) -> str:
    """The name of a type without parts; for an enum that of its values."""
    if schema["type"] in ("enum", "literal"):
        return "str" if isinstance(schema["values"][0], str) else "int"
    return str(schema["type"])


def _packed(column: pa.Array) -> pa.Array:
    items = column.to_pylist(maps_as_pydicts="strict")
    return pa.array([None if item is None else pack_value(item) for item in items], pa.binary())


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _ends(column: pa.Array) -> tuple[int, int]:
    return column.offsets[0].as_py(), column.offsets[-1].as_py()


def _offsets(column: pa.Array) -> pa.Array:
    """The offsets of values, starting at 0."""
    offsets = column.offsets.to_numpy()
    return pa.array(offsets - offsets[0], pa.int32())


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _texts(show: Callable[[Any], str]) -> Callable[[pa.Array, pa.DataType], pa.Array]:
    def convert(column: pa.Array, kind: pa.DataType) -> pa.Array:
        items: Sequence[Any] = column.to_pylist()
        return pa.array([None if item is None else show(item) for item in items], kind)

    return convert


def _instants(column: pa.Array, kind: pa.DataType) -> pa.Array:
    zone = None if column.type.tz is None else "UTC"
    whole = column.cast(pa.timestamp(column.type.unit, zone)).cast(pa.timestamp("us", zone))
    return _texts(_show_instant)(whole, kind)


def _show_instant(moment: dt.datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat()
    return text if moment.tzinfo is None else f"{text}Z"


def _show_duration(span: dt.timedelta) -> str:
    return str(msgspec.to_builtins(span))


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


_TEXT = (_is_text, _cast)
_BYTES = (_is_bytes, _cast)
_LEAVES: Mapping[str, tuple[tuple[_Test, Callable[[pa.Array, pa.DataType], pa.Array]], ...]] = {
    "none": ((pa.types.is_boolean, _cast),),
    "bool": ((pa.types.is_boolean, _cast),),
    "int": ((pa.types.is_integer, _cast),),
    "float": ((_is_number, _cast),),
    "str": (_TEXT,),
    "bytes": (_BYTES,),
    "bytearray": (_BYTES,),
    "date": ((pa.types.is_date, _cast),),
    "datetime": ((pa.types.is_timestamp, _instants), _TEXT),
    "time": ((pa.types.is_time, _texts(dt.time.isoformat)), _TEXT),
    "timedelta": ((pa.types.is_duration, _texts(_show_duration)), _TEXT),
    "decimal": ((pa.types.is_decimal, _texts(str)), (pa.types.is_integer, _texts(str)), _TEXT),
    "uuid": (_TEXT,),
}
"""The column types accepted for each type, and their casts."""


def _unsaid(name: str) -> Invalid:
    return Invalid(
        f"it is not known whether the bytes of column {name!r} are values or MessagePack of values",
        expected="packed=True for what was read from a savepoint, packed=False for values of bytes",
        found="a column that is computed, or comes from elsewhere",
        fix="Pass packed=",
    )


def _misfit(name: str, schema: Schema, column: pa.Array, why: str = "") -> Invalid:
    return Invalid(
        f"column {name!r} does not fit",
        expected=f"values of type {schema.get('name') or schema['type']}",
        found=f"{column.type}" + (f": {why}" if why else ""),
        fix="Cast it in the DataFrame, or declare another type",
    )
