"""Keys and values out of columns that somebody else has made, checked, as the bytes they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from holdfast.backends.arrow.keys import KeyForm
from holdfast.backends.arrow.values import ValueForm
from holdfast.backends.blocks.block import Column
from holdfast.backends.keys.hashing import Hashes
from holdfast.backends.values.codec import ValueCodec, pack_value
from holdfast.backends.values.type_descriptions import Schema
from holdfast.savepoints.writing.column_casts import fitted
from holdfast.storage.errors import UNREADABLE, Invalid

__all__ = ["KeyPart", "ValuePart", "has_null"]

_PLAIN = frozenset({"int", "float", "str", "bytes", "bool"})
"""Values that are written as they come; those of other types once more by their codec."""


class KeyPart:
    """Keys, namespaces or map keys of one type."""

    def __init__(self, schema: Schema, what: str) -> None:
        self._schema = schema
        self._what = what
        self._form = KeyForm(schema)

    def encoded(self, column: pa.Array, name: str) -> pa.Array:
        """Their ordered bytes; `name` is that of the column.

        Raises:
            Invalid: the column is of another type, or a value is none of such a key.
        """
        return self._data(column, name).to_arrow(len(column)).cast(pa.binary())

    def hashed(self, column: pa.Array, name: str) -> tuple[pa.Array, Hashes]:
        """Their ordered bytes, and their hashes; raises as `encoded`."""
        data, count = self._data(column, name), len(column)
        return data.to_arrow(count).cast(pa.binary()), self._form.hashes(data, count)

    def _data(self, column: pa.Array, name: str) -> Column:
        fit = fitted(column, self._schema, self._form.type, name=name)
        if fit.null_count and self._schema["type"] not in ("union", "none"):
            raise has_null(self._what, name, fit)
        try:
            return self._form.from_arrow(fit)
        except (*_MISFITS, ArithmeticError) as error:
            raise Invalid(
                f"column {name!r} has what cannot be a {self._what}",
                expected=f"values of type {self._form.codec.name}",
                found=str(error) or repr(error),
            ) from error


class ValuePart:
    """Values of one type."""

    def __init__(self, codec: ValueCodec[Any], *, is_packed: bool | None) -> None:
        """Where columns are `is_packed`, what is kept as MessagePack is that already.

        None: it is not said, and bytes are refused there.
        """
        self._schema = codec.describe()
        self._codec = codec
        self._form = ValueForm(self._schema, checked=True)
        self._is_packed = is_packed

    def packed(self, column: pa.Array, name: str) -> pa.Array:
        """The MessagePack of each; `name` is that of the column.

        Raises:
            Invalid: the column is of another type, or a value is none of such.
        """
        kind = self._form.field.type
        fit = fitted(column, self._schema, kind, name=name, is_packed=self._is_packed)
        try:
            return pa.array(self._items(fit), pa.binary())
        except Invalid as error:
            raise Invalid(
                f"column {name!r} has what is no such value",
                where=error.where,
                expected=error.expected,
                found=error.found,
                fix=error.fix,
            ) from error
        except (*_MISFITS, *UNREADABLE) as error:
            raise Invalid(
                f"column {name!r} has what is no such value",
                expected=f"values of type {self._codec.name}",
                found=str(error) or repr(error),
            ) from error

    def _items(self, column: pa.Array) -> list[bytes]:
        codec = self._codec
        if self._schema["type"] in _PLAIN:
            return list(map(pack_value, codec.check_many(column.to_pylist())))
        items = _raw_items.decode(self._form.from_arrow(column))
        values = [_decoded(codec, bytes(item)) for item in items]
        return codec.encode_many(values)


_raw_items = msgspec.msgpack.Decoder(list[msgspec.Raw])
_MISFITS = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What Python raises for what is none of a type."""


def _decoded(codec: ValueCodec[Any], item: bytes) -> Any:
    """The value; `Corrupt` would say that stored bytes were changed."""
    try:
        return codec.decode(item)
    except Exception as error:
        cause = error.__cause__ or error
        raise Invalid(
            "a value does not fit its type", expected=codec.name, found=str(cause)
        ) from error


def has_null(what: str, name: str, column: pa.Array) -> Invalid:
    """That a column has nulls where there must be none."""
    return Invalid(
        f"a row has no {what}",
        where=f"column {name!r}",
        expected="a value in each row",
        found=f"{column.null_count} nulls in {len(column)} rows",
        fix="Drop those rows, or fill the column",
    )
