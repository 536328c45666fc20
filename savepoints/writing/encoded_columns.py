"""Encoding of keys and values from columns of a DataFrame, with all checks."""

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
"""Types whose values are encoded directly; values of other types are re-encoded by their codec."""


class KeyPart:
    """Encodes keys, namespaces or map keys of one type."""

    def __init__(self, schema: Schema, what: str) -> None:
        self._schema = schema
        self._what = what
        self._form = KeyForm(schema)

    def encoded(self, column: pa.Array, name: str) -> pa.Array:
        """The ordered bytes of each value; `name` is the name of the column in errors.

        Raises:
            Invalid: the column is of another type, or a value is not a key of this type.
        """
        return self._data(column, name).to_arrow(len(column)).cast(pa.binary())

    def hashed(self, column: pa.Array, name: str) -> tuple[pa.Array, Hashes]:
        """As `encoded`, with the hashes of the keys."""
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
                f"column {name!r} has a value that cannot be a {self._what}",
                expected=f"values of type {self._form.codec.name}",
                found=str(error) or repr(error),
            ) from error


class ValuePart:
    """Encodes values of one type."""

    def __init__(self, codec: ValueCodec[Any], *, is_packed: bool | None) -> None:
        """`is_packed`: bytes in place of types that are stored as MessagePack are MessagePack.

        None: not known, and such bytes are refused.
        """
        self._schema = codec.describe()
        self._codec = codec
        self._form = ValueForm(self._schema, checked=True)
        self._is_packed = is_packed

    def packed(self, column: pa.Array, name: str) -> pa.Array:
        """The MessagePack of each value; `name` is the name of the column in errors.

        Raises:
            Invalid: the column is of another type, or a value does not fit it.
        """
        kind = self._form.field.type
        fit = fitted(column, self._schema, kind, name=name, is_packed=self._is_packed)
        try:
            return pa.array(self._items(fit), pa.binary())
        except Invalid as error:
            what = f"column {name!r} has a value that does not fit"
            raise error.replaced(what=what) from error
        except (*_MISFITS, *UNREADABLE) as error:
            raise Invalid(
                f"column {name!r} has a value that does not fit",
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
"""What Python raises for a value that is not of a type."""


def _decoded(codec: ValueCodec[Any], item: bytes) -> Any:
    """Decode a value; an error is `Invalid`, since the bytes come from a caller, not a storage."""
    try:
        return codec.decode(item)
    except Exception as error:
        cause = error.__cause__ or error
        raise Invalid(
            "a value does not fit its type", expected=codec.name, found=str(cause)
        ) from error


def has_null(what: str, name: str, column: pa.Array) -> Invalid:
    """The error for nulls in a column that must not have any."""
    return Invalid(
        f"a row has no {what}",
        where=f"column {name!r}",
        expected="a value in each row",
        found=f"{column.null_count} nulls in {len(column)} rows",
        fix="Drop those rows, or fill the column",
    )
