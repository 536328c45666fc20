"""Columns of Arrow in and out of state, and adding up by key before state is touched."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from holdfast.backends.value_codec import ValueCodec
from holdfast.storage.errors import Invalid

__all__ = ["grouped", "to_arrow", "to_list"]

_ARROW_TYPES: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "str": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
}
_KERNELS: dict[Any, str] = {operator.add: "sum", min: "min", max: "max"}


def to_list(column: Any) -> list[Any]:
    """The values of a column, or of any sequence, as Python has them."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, pa.Array):
        return list(column)
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        column = column.to_numpy()
        return list(column.tolist())
    return list(column.to_pylist())


def to_arrow(values: list[Any], codec: ValueCodec[Any]) -> pa.Array | list[Any]:
    """The values as an Arrow array, if their type is one that Arrow has; else as they are."""
    arrow = _ARROW_TYPES.get(codec.describe()["type"])
    return values if arrow is None else pa.array(values, arrow)


def grouped(
    keys: Any, values: Any, reduce: Callable[[Any, Any], Any]
) -> tuple[Any, Sequence[Any], bool]:
    """The distinct keys, for each its values reduced to one, and whether these are plain numbers.

    Raises:
        Invalid: the columns are not of one length, or a value is null.
    """
    if len(keys) != len(values):
        raise Invalid(
            "columns of keys and values are not of one length",
            expected=f"{len(keys)} values",
            found=str(len(values)),
        )
    kernel = _KERNELS.get(reduce)
    if kernel is not None and isinstance(keys, _ARROW) and _is_number(values):
        return *_by_kernel(keys, values, kernel), True
    reduced: dict[Any, Any] = {}
    for key, value in zip(to_list(keys), to_list(values), strict=True):
        if value is None:
            raise Invalid("a value to be reduced is null", fix="Drop such rows first")
        reduced[key] = reduce(reduced[key], value) if key in reduced else value
    return list(reduced), list(reduced.values()), False


_ARROW = (pa.Array, pa.ChunkedArray)


def _is_number(values: Any) -> bool:
    return (
        isinstance(values, _ARROW)
        and values.null_count == 0
        and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type))
    )


def _by_kernel(keys: Any, values: Any, kernel: str) -> tuple[pa.Array, list[Any]]:
    table = pa.table({"key": keys, "value": values})
    sums = table.group_by("key", use_threads=False).aggregate([("value", kernel)])
    return sums["key"].combine_chunks(), to_list(sums[f"value_{kernel}"])
