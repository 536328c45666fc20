"""Helpers for Arrow types that several modules use."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from holdfast.storage import Invalid

__all__ = [
    "cast_to",
    "check_no_nulls",
    "copied",
    "detached",
    "has_dictionary",
    "is_text",
    "listed",
    "nullable",
    "parts_of",
    "type_of_column",
    "united",
]

_SLACK_BYTES = 4096
"""Buffers are rounded up: of a few rows that is no news."""

_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def detached(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in a form to keep: copied if it is a small part of its buffers.

    A slice keeps all of the batch that it was cut from, so bounds in bytes would bound nothing.
    Without a copy it keeps twice its size at most.
    """
    if batch.get_total_buffer_size() <= 2 * batch.nbytes + _SLACK_BYTES:
        return batch
    return copied(batch)


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in buffers of their own."""
    return pa.concat_batches([batch, batch.slice(0, 0)])  # of one alone nothing is copied


def is_text(kind: pa.DataType) -> bool:
    """Whether it is text, in any of its layouts."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def listed(schema: pa.Schema) -> str:
    """Names and types of all columns, for an error's message."""
    return ", ".join(_shown(field) for field in schema) or "none"


def has_dictionary(kind: pa.DataType) -> bool:
    """Whether values of the type are kept as numbers in a dictionary, or parts of them are."""
    if isinstance(kind, pa.ExtensionType):
        return has_dictionary(kind.storage_type)
    return bool(
        pa.types.is_dictionary(kind) or any(has_dictionary(part.type) for part in parts_of(kind))
    )


def nullable(kind: pa.DataType) -> pa.DataType:
    """The type such that all parts of its values may be null."""
    parts = [field.with_type(nullable(field.type)).with_nullable(True) for field in parts_of(kind)]
    if pa.types.is_struct(kind):
        return pa.struct(parts)
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, parts[1], kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(parts[0], kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(parts[0])
    return pa.list_(parts[0]) if pa.types.is_list(kind) else kind


def united(schemas: Iterable[pa.Schema]) -> pa.Schema | None:
    """The schema that has room for rows of all of these; None if there is none.

    They may differ in what may be null, and in nothing else.
    """
    first, *others = schemas
    for other in others:
        if first.equals(other):
            continue
        if first.names != other.names:
            return None
        fields = [_united(mine, its) for mine, its in zip(first, other, strict=True)]
        if any(field is None for field in fields):
            return None
        first = pa.schema(fields, first.metadata)
    return first


def cast_to(columns: Iterable[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """The rows under a schema that has room for them, such as `united` finds."""
    cast = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def type_of_column(schema: pa.Schema, name: str, *, missing: str, where: str) -> pa.DataType:
    """The type of the one column of this name.

    Raises:
        Invalid: there is none, which `missing` says, or there are several.
    """
    count = schema.names.count(name)
    if count != 1:
        raise Invalid(
            "several columns have one name" if count else missing,
            where=where,
            expected=f"one of {', '.join(schema.names)}",
            found=f"{count} columns {name!r}" if count else "no column of that name",
        )
    return schema.field(name).type


def check_no_nulls(column: pa.Array, what: str, *, where: str, expected: str, fix: str) -> None:
    """Refuse a column with nulls.

    Raises:
        Invalid: it has; says `what` is wrong, and in which row first.
    """
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise Invalid(
            what,
            where=f"{where}, row {row} of a batch of {len(column)}",
            expected=expected,
            found=f"{column.null_count} nulls",
            fix=fix,
        )


def _united(mine: pa.Field, its: pa.Field) -> pa.Field | None:
    if not mine.type.equals(its.type):
        kind = nullable(mine.type)
        if not kind.equals(nullable(its.type)):
            return None
        mine = mine.with_type(kind)
    return mine.with_nullable(mine.nullable or its.nullable)


def parts_of(kind: pa.DataType) -> list[pa.Field]:
    """The fields that values of the type are made of."""
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return [kind.field(place) for place in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_run_end_encoded(kind):
        return [pa.field("values", kind.value_type)]
    return [kind.value_field] if any(is_its(kind) for is_its in _LISTS) else []


def _shown(field: pa.Field) -> str:
    return f"{field.name}: {field.type}" + ("" if field.nullable else " not null")
