"""Fits batches of users' functions to the schema of their output, or refuses them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from holdfast.runtime.columns.types import is_text
from holdfast.storage import Invalid

__all__ = ["fitted"]

_FIX = "Cast or select in the function, or change schema="


def fitted(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The batch in the schema of its output: columns by name, in any order.

    Another type is accepted where nothing can be lost: other widths of numbers if all values fit,
    whole numbers for floats, other layouts of text and bytes.

    Raises:
        Invalid: a column is missing, unknown, of another type, or null where it must not be.
    """
    if batch.schema.equals(schema) and not any(
        column.null_count and not field.nullable
        for column, field in zip(batch.columns, schema, strict=True)
    ):
        return batch
    if sorted(batch.schema.names) != sorted(schema.names):
        raise Invalid(
            "a batch has other columns than its output",
            where=where,
            expected=", ".join(schema.names),
            found=", ".join(batch.schema.names) or "none",
            fix=_FIX,
        )
    columns = [_fitted(batch.column(field.name), field, where) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fitted(column: pa.Array, field: pa.Field, where: str) -> pa.Array:
    where = f"{where}, column {field.name!r}"
    if column.null_count and not field.nullable:
        raise Invalid(
            "a batch has nulls where there must be none",
            where=where,
            expected=f"{field.type}, not null",
            found=f"{column.null_count} nulls in {len(column)} rows",
            fix=_FIX,
        )
    if column.type == field.type:
        return column
    if not any(was(column.type) and is_now(field.type) for was, is_now in _LOSSLESS):
        raise _unfit(where, field.type, str(column.type))
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _unfit(where, field.type, f"{column.type}: {error}") from None


def _unfit(where: str, expected: pa.DataType, found: str) -> Invalid:
    return Invalid(
        "a batch has a column of another type than its output",
        where=where,
        expected=str(expected),
        found=found,
        fix=_FIX,
    )


_Test = Callable[[pa.DataType], bool]


def _holds_text(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in {pa.binary(), pa.large_binary(), pa.binary_view()}


def _is_wide(kind: pa.DataType) -> bool:
    return bool(kind == pa.float64())


_LOSSLESS: tuple[tuple[_Test, _Test], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_floating, _is_wide),
    (_holds_text, _holds_text),
    (_is_bytes, _is_bytes),
    (pa.types.is_null, lambda _: True),
)
"""From what to what columns are cast; Arrow refuses values that do not fit."""
