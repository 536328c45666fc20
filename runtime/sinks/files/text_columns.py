"""Columns as text: what JSON and CSV have in common. Arrow's kernels do all the work.

Every function answers an array of large strings, so that no batch is too large, of the length of
the column; null where the column is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["TEXT", "NonFinite", "data_of", "has_plain_text", "join", "plain", "plain_text"]

TEXT = pa.large_string()
_EMPTY = pa.scalar("", TEXT)
_WHOLE_NUMBER = r"^-?[0-9]+$"


@dataclass(frozen=True, slots=True)
class NonFinite:
    """How floats are written that are no numbers, or have no end."""

    nan: str
    infinity: str
    negative_infinity: str


def plain(column: Any) -> Any:
    """The column without what says only how it is kept: dictionaries and extension types."""
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def has_plain_text(kind: pa.DataType) -> bool:
    """Whether `plain_text` can write columns of this type."""
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_timestamp(kind)
    )


def plain_text(column: Any, non_finite: NonFinite) -> Any:
    """Numbers, truth values, dates and times: ISO, in UTC where they have a zone."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _moments(column)
    if pa.types.is_floating(kind):
        return _floats(column, non_finite)
    if pa.types.is_date64(kind):
        column = column.cast(pa.date32())
    return column.cast(TEXT)


def join(*pieces: Any) -> Any:
    """The pieces one after the other, row by row; some of them may be one text for all rows."""
    scalars = [pa.scalar(piece, TEXT) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*scalars, _EMPTY)


def data_of(texts: Any) -> memoryview:
    """All texts one after the other, without a copy."""
    _, offsets, data = texts.buffers()
    if data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(data)[ends[texts.offset] : ends[texts.offset + len(texts)]]


def _moments(column: Any) -> Any:
    kind = column.type
    suffix = "" if kind.tz is None else "Z"
    in_utc = column.cast(pa.int64()).cast(pa.timestamp(kind.unit))
    return join(pc.replace_substring(in_utc.cast(TEXT), " ", "T"), suffix)


def _floats(column: Any, non_finite: NonFinite) -> Any:
    """As short as they can be; with a point or an exponent, so that they are seen to be floats."""
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = column.cast(TEXT)
    whole = pc.match_substring_regex(texts, _WHOLE_NUMBER)
    if pc.any(whole).as_py():
        texts = pc.if_else(whole, join(texts, ".0"), texts)
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() in {True, None}:
        return texts
    infinite = pc.if_else(
        pc.less(column, pa.scalar(0.0, column.type)),
        pa.scalar(non_finite.negative_infinity, TEXT),
        pa.scalar(non_finite.infinity, TEXT),
    )
    others = pc.if_else(pc.is_nan(column), pa.scalar(non_finite.nan, TEXT), infinite)
    return pc.if_else(finite, texts, others)
