"""Batches as lines of JSON, one object a row.

Numbers are numbers (decimals too, with all their digits), dates and times ISO text, times with a
zone in UTC, binary base64. A float that is no number is text, `"NaN"`, `"Infinity"` or
`"-Infinity"`, as Spark has it. Nulls are written out, so that every line has every key.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.runtime.columns.types import is_text
from holdfast.runtime.sinks.files.text_columns import (
    TEXT,
    NonFinite,
    data_of,
    has_plain_text,
    join,
    plain,
    plain_text,
)

__all__ = ["json_lines", "misfit_of_json"]

_NON_FINITE = NonFinite('"NaN"', '"Infinity"', '"-Infinity"')
_SPECIAL = r'[\x00-\x1f"\\]'
_CONTROL = r"[\x00-\x1f]"
_ESCAPES = {
    chr(code): {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(chr(code), f"\\u{code:04x}")
    for code in range(32)
}


def json_lines(batch: pa.RecordBatch) -> memoryview:
    """The rows of a batch, each a line with its end; `misfit_of_json` must have let them pass."""
    return data_of(join(_object(batch.schema.names, batch.columns), "\n"))


def misfit_of_json(kind: pa.DataType) -> str | None:
    """Which type, this one or one inside it, JSON cannot hold so that readers know what it was."""
    types = pa.types
    if isinstance(kind, pa.ExtensionType):
        return misfit_of_json(kind.storage_type)
    if types.is_dictionary(kind):
        return misfit_of_json(kind.value_type)
    if types.is_map(kind):
        return misfit_of_json(kind.item_type) if is_text(kind.key_type) else str(kind)
    if _is_list(kind):
        return misfit_of_json(kind.value_type)
    if types.is_struct(kind):
        inner = (misfit_of_json(kind.field(place).type) for place in range(kind.num_fields))
        return next(filter(None, inner), None) if kind.num_fields else str(kind)
    held = has_plain_text(kind) or is_text(kind) or _is_binary(kind) or types.is_null(kind)
    return None if held else str(kind)


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _json(column: Any) -> Any:
    """Each value of a column as JSON; never null."""
    column = plain(column)
    kind = column.type
    if pa.types.is_null(kind):
        return pa.repeat(pa.scalar("null", TEXT), len(column))
    if pa.types.is_struct(kind):
        names = [kind.field(place).name for place in range(kind.num_fields)]
        texts = _object(names, column.flatten())
    elif pa.types.is_map(kind):
        texts = _map(column)
    elif _is_list(kind):
        texts = join("[", _runs(_json(column.flatten()), pc.list_value_length(column)), "]")
    else:
        texts = _scalars(column)
    return pc.if_else(column.is_valid(), texts, pa.scalar("null", TEXT))


def _scalars(column: Any) -> Any:
    kind = column.type
    if is_text(kind):
        return join('"', _escaped(column.cast(TEXT)), '"')
    if _is_binary(kind):
        encoded = [value and b64encode(value) for value in column.to_pylist()]
        return join('"', pa.array(encoded, pa.large_binary()).cast(TEXT), '"')
    texts = plain_text(column, _NON_FINITE)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return texts
    return join('"', texts, '"')


def _object(names: list[str], columns: list[Any]) -> Any:
    pieces: list[Any] = []
    for name, column in zip(names, columns, strict=True):
        pieces += ("," if pieces else "{") + msgspec.json.encode(name).decode() + ":", _json(column)
    return join(*pieces, "}")


def _map(column: Any) -> Any:
    """Duplicate keys are written as they are."""
    validity, offsets = column.buffers()[:2]
    # Arrow keeps a map as a list of entries, and has kernels for lists only.
    lists = pa.ListArray.from_buffers(
        pa.list_(column.values.type),
        len(column),
        [validity, offsets],
        offset=column.offset,
        children=[column.values],
    )
    keys, items = lists.flatten().flatten()
    pairs = join('"', _escaped(plain(keys).cast(TEXT)), '":', _json(items))
    return join("{", _runs(pairs, pc.list_value_length(lists)), "}")


def _runs(texts: Any, lengths: Any) -> Any:
    """Texts that belong to one row joined by commas; a row has as many as its length says."""
    counts = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), texts)
    return pc.binary_join(lists, pa.scalar(",", TEXT))


def _escaped(texts: Any) -> Any:
    if not pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        return texts
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, _CONTROL)).as_py():
        for control, escape in _ESCAPES.items():
            texts = pc.replace_substring(texts, control, escape)
    return texts
