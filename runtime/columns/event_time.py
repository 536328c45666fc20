"""When rows happened: from a column of theirs to 64-bit milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.runtime.columns.types import check_no_nulls

__all__ = ["event_times"]


def event_times(column: pa.Array, *, name: str, where: str) -> pa.Array:
    """The milliseconds of a column of 64-bit milliseconds or of timestamps, rounded down.

    Raises:
        Invalid: a row has none; names the column.
    """
    check_no_nulls(
        column,
        f"column {name!r}, the event time, has a null",
        where=where,
        expected="a time in each row",
        fix="Drop such rows first, or fill in a value",
    )
    return _conversion(column.type)(column)


def _conversion(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if not pa.types.is_timestamp(kind) or kind.unit == "ms":
        return lambda column: column.cast(pa.int64())
    if kind.unit == "s":
        return lambda column: pc.multiply_checked(column.cast(pa.int64()), 1_000)
    # Arrow divides towards zero; times before 1970 have to be rounded down like all others.
    divisor = {"us": 1_000, "ns": 1_000_000}[kind.unit]
    return lambda column: pa.array(np.floor_divide(column.cast(pa.int64()).to_numpy(), divisor))
