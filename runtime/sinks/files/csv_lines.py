"""Batches as lines of CSV (RFC 4180): a comma between columns, a quote in quotes is doubled.

A null is nothing at all, an empty text `""`; where nothing at all would be an empty line, which
readers skip, because there is but one column, a null is written as `""` too. Floats that are no
numbers are `NaN`, `Inf` and `-Inf`, as Spark has them.

Spark reads it with the options `header` as it was written, `escape='"'` where texts have quotes in
them, and `multiLine=True` where they have line breaks. It takes an empty text for a null.
"""

from __future__ import annotations

from typing import Any

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

__all__ = ["csv_header", "csv_lines", "misfit_of_csv"]

_NON_FINITE = NonFinite("NaN", "Inf", "-Inf")
_QUOTED = r'[",\r\n]|^$|^\s|\s$'


def csv_lines(batch: pa.RecordBatch) -> memoryview:
    """The rows of a batch, each a line with its end; `misfit_of_csv` must have let them pass."""
    null = '""' if batch.num_columns == 1 else ""
    pieces: list[Any] = []
    for column in batch.columns:
        pieces += "," if pieces else "", _fields(plain(column), null)
    return data_of(join(*pieces, "\n"))


def csv_header(schema: pa.Schema) -> memoryview:
    """The line with the names of the columns."""
    return csv_lines(
        pa.record_batch(
            [pa.array([name], TEXT) for name in schema.names],
            names=[str(place) for place in range(len(schema))],
        )
    )


def misfit_of_csv(kind: pa.DataType) -> str | None:
    """The type, if CSV cannot hold it so that readers know what it was."""
    if isinstance(kind, pa.ExtensionType):
        return misfit_of_csv(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return misfit_of_csv(kind.value_type)
    return None if has_plain_text(kind) or is_text(kind) or pa.types.is_null(kind) else str(kind)


def _fields(column: Any, null: str) -> Any:
    kind = column.type
    if pa.types.is_null(kind):
        return pa.repeat(pa.scalar(null, TEXT), len(column))
    texts = _quoted(column.cast(TEXT)) if is_text(kind) else plain_text(column, _NON_FINITE)
    return pc.fill_null(texts, null)


def _quoted(texts: Any) -> Any:
    needs_quotes = pc.match_substring_regex(texts, _QUOTED)
    if not pc.any(needs_quotes).as_py():
        return texts
    return pc.if_else(needs_quotes, join('"', pc.replace_substring(texts, '"', '""'), '"'), texts)
