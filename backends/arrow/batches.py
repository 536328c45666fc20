"""Arrow columns in and out of state, and reducing a batch by key before state is accessed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.backends.values.codec import ValueCodec
from holdfast.backends.values.normalizing import INT64_MAX, has_none
from holdfast.storage.errors import Invalid

__all__ = ["Numbers", "grouped", "reduced_numbers", "to_arrow", "to_list"]

Numbers: TypeAlias = npt.NDArray[Any]
"""An array of 64-bit integers or floats."""

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
    """The values of a column, or of any sequence, as Python objects."""
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
    """The values as an Arrow array, if Arrow has their type; else unchanged."""
    arrow = _ARROW_TYPES.get(codec.describe()["type"])
    return values if arrow is None else pa.array(values, arrow)


def grouped(
    keys: Any,
    values: Any,
    reduce: Callable[[Any, Any], Any],
    canonical: Callable[[Any], Sequence[Any]],
    checked: Callable[[list[Any]], Sequence[Any]],
) -> tuple[Any, Sequence[Any] | Numbers]:
    """The distinct keys, and for each its values reduced to one; numbers where Arrow did that.

    `canonical` maps equal keys to one: 0.0 and -0.0 are equal, and so is every NaN. `checked`
    refuses values that do not fit, before `reduce` sees them.

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
    if kernel is not None and _is_told_apart(keys) and _is_safe(values, kernel):
        return _by_kernel(keys, values, kernel)
    reduced: dict[Any, Any] = {}
    listed = to_list(values)
    if has_none(listed):
        raise Invalid("a value to be reduced is null", fix="Drop such rows first")
    admitted = canonical(keys)
    for key, value in zip(admitted, checked(listed), strict=True):
        reduced[key] = reduce(reduced[key], value) if key in reduced else value
    return _distinct(keys, admitted, reduced), list(reduced.values())


def reduced_numbers(
    there: list[Any], added: Numbers, reduce: Callable[[Any, Any], Any]
) -> Numbers | None:
    """The numbers `there`, some of them None, reduced with `added`; None if one overflows."""
    if has_none(there):
        pairs = zip(there, added.tolist(), strict=True)
        unit = {operator.add: 0}.get(reduce)
        there = [(new if unit is None else unit) if old is None else old for old, new in pairs]
    before = np.fromiter(there, added.dtype, len(there))
    after: Numbers = _UFUNCS[reduce](before, added)
    if reduce is operator.add and added.dtype == np.int64:
        has_overflown = ((before ^ after) & (added ^ after)) < 0
        if has_overflown.any():
            return None
    return after


def _distinct(keys: Any, admitted: Sequence[Any], unique: Iterable[Any]) -> Any:
    """The distinct keys, as an Arrow column if they were passed in one."""
    if not isinstance(keys, _ARROW):
        return list(unique)
    places = dict(zip(reversed(admitted), range(len(admitted) - 1, -1, -1), strict=True))
    taken = keys.take(pa.array(map(places.__getitem__, unique), pa.int64()))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


_ARROW = (pa.Array, pa.ChunkedArray)
_UFUNCS: dict[Any, Any] = {operator.add: np.add, min: np.minimum, max: np.maximum}


def _is_told_apart(keys: Any) -> bool:
    """Whether Arrow can group these keys, by the same equality."""
    return isinstance(keys, _ARROW) and any(test(keys.type) for test in _GROUPED_TYPES)


_GROUPED_TYPES = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_timestamp,
)


def _is_safe(values: Any, kernel: str) -> bool:
    """Whether Arrow reduces these values to the same as Python: no nulls, no overflow."""
    if not isinstance(values, _ARROW) or values.null_count or not len(values):
        return False
    if values.type == pa.float64():
        return kernel == "sum"  # min and max of signed zeros and NaN differ from Python's
    if not pa.types.is_signed_integer(values.type):
        return False
    ends = pc.min_max(values).as_py()
    largest = max(-ends["min"], ends["max"])
    return kernel != "sum" or largest * len(values) <= INT64_MAX


def _by_kernel(keys: Any, values: Any, kernel: str) -> tuple[pa.Array, Numbers]:
    table = pa.table({"key": keys, "value": values})
    reduced = table.group_by("key", use_threads=False).aggregate([("value", kernel)])
    column = reduced[f"value_{kernel}"].combine_chunks()
    kind = np.float64 if pa.types.is_floating(column.type) else np.int64
    return reduced["key"].combine_chunks(), column.to_numpy().astype(kind, copy=False)
