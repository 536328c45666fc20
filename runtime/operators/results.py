"""Results of functions: fitted to the schema of their output, with event time, and emitted.

In a stream with event time, a result has the event time of the row or of the event-time timer that
it was made from. As in Flink, results of processing-time timers have none: it is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.runtime.api.functions import OutputTag
from holdfast.runtime.columns.rows import RowWriter
from holdfast.runtime.columns.types import is_text
from holdfast.runtime.protocol.elements import EVENT_TIME
from holdfast.runtime.protocol.operator import OperatorSpec, Output
from holdfast.storage import Invalid

__all__ = ["BatchResults", "RowResults", "moments_of"]

_TIME_FIELD = pa.field(EVENT_TIME, pa.int64())
_FIX = "Cast or select in the function, or change schema="


class RowResults:
    """Emits rows, and rows with a tag to side outputs."""

    def __init__(self, spec: OperatorSpec, output: Output) -> None:
        self._output = output
        self._has_event_time = spec.has_event_time
        self._main = RowWriter(spec.output_schema, where=f"operator {spec.uid!r}")
        self._sides = {
            tag: RowWriter(schema, where=f"operator {spec.uid!r}, side output {tag!r}")
            for tag, schema in spec.side_schemas.items()
        }
        self._schemas = {
            writer: _timed(writer.schema, self._has_event_time)
            for writer in (self._main, *self._sides.values())
        }

    def emit(self, rows: Sequence[Any], times: pa.Array | None) -> None:
        """Pass rows on; `times` are their event times, in a stream with event time.

        Rows of a side output that is not read are dropped.

        Raises:
            Invalid: a row does not fit its output; nothing of these was passed on.
        """
        if not rows:
            return
        try:
            batch = self._batch(self._main, rows, times)
        except Invalid:
            tagged = [place for place, row in enumerate(rows) if _is_tagged(row)]
            if not tagged:
                raise
            self._emit_split(rows, times, tagged)
        else:
            self._output.emit(batch)

    def _emit_split(
        self, rows: Sequence[Any], times: pa.Array | None, tagged: Sequence[int]
    ) -> None:
        is_main = np.ones(len(rows), np.bool_)
        is_main[tagged] = False
        main = np.flatnonzero(is_main).tolist()
        places: dict[str, list[int]] = {}
        for place in tagged:
            places.setdefault(rows[place][0].name, []).append(place)
        batch = self._batch(self._main, [rows[place] for place in main], _at(times, main))
        sides = [
            (tag, self._batch(self._sides[tag], [rows[at][1] for at in its], _at(times, its)))
            for tag, its in places.items()
            if tag in self._sides
        ]
        if main:
            self._output.emit(batch)
        for tag, side in sides:
            self._output.emit_side(tag, side)

    def _batch(
        self, writer: RowWriter, rows: Sequence[Any], times: pa.Array | None
    ) -> pa.RecordBatch:
        columns = writer.columns(rows)
        if self._has_event_time:
            columns.append(times)
        return pa.RecordBatch.from_arrays(columns, schema=self._schemas[writer])


class BatchResults:
    """Emits batches, and batches with a tag to side outputs."""

    def __init__(self, spec: OperatorSpec, output: Output) -> None:
        self._where = f"operator {spec.uid!r}"
        self._output = output
        self._has_event_time = spec.has_event_time
        self._schema = spec.output_schema
        self._sides = spec.side_schemas

    def emit(self, result: Any, moment: int | None) -> None:
        """Pass one result on: a batch or a table, or a tag with one of them.

        All its rows have the event time `moment`. Those of a side output without readers are
        dropped.

        Raises:
            Invalid: it is something else, or does not fit its output.
        """
        if not _is_tagged(result):
            for batch in self._batches(result, self._schema, self._where, moment):
                self._output.emit(batch)
            return
        tag, inner = result
        if tag.name in self._sides:
            where = f"{self._where}, side output {tag.name!r}"
            for batch in self._batches(inner, self._sides[tag.name], where, moment):
                self._output.emit_side(tag.name, batch)

    def _batches(
        self, result: Any, schema: pa.Schema, where: str, moment: int | None
    ) -> Iterator[pa.RecordBatch]:
        if not isinstance(result, pa.RecordBatch | pa.Table):
            raise Invalid(
                "a function over batches answered something else",
                where=where,
                expected="a pyarrow RecordBatch or Table, or a tag with one",
                found=f"{type(result).__module__}.{type(result).__qualname__}",
            )
        pieces = [result] if isinstance(result, pa.RecordBatch) else result.to_batches()
        for piece in pieces:
            batch = _fitted(piece, schema, where)
            if batch.num_rows:
                yield self._with_time(batch, moment)

    def _with_time(self, batch: pa.RecordBatch, moment: int | None) -> pa.RecordBatch:
        if not self._has_event_time:
            return batch
        times = pa.array(np.full(batch.num_rows, moment or 0, np.int64))
        if moment is None:
            times = pa.nulls(batch.num_rows, pa.int64())
        return pa.RecordBatch.from_arrays(
            [*batch.columns, times], schema=_timed(batch.schema, has_event_time=True)
        )


def moments_of(times: pa.Array, ends: Sequence[int], first: int) -> pa.Array:
    """The event time of each result; `ends` is the number of results after each row.

    The rows are those of `times` from number `first` on.
    """
    after = np.fromiter(ends, np.int64, len(ends))
    counts: npt.NDArray[np.int64] = np.diff(after, prepend=np.int64(0))
    if (counts == 1).all():
        return times.slice(first, len(ends))
    return times.take(pa.array(np.repeat(np.arange(first, first + len(ends)), counts)))


def _is_tagged(result: Any) -> bool:
    return type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag)


def _timed(schema: pa.Schema, has_event_time: bool) -> pa.Schema:  # noqa: FBT001
    return schema.append(_TIME_FIELD) if has_event_time else schema


def _at(times: pa.Array | None, places: Sequence[int]) -> pa.Array | None:
    return None if times is None else times.take(pa.array(places, pa.int64()))


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
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
    columns = [_fitted_column(batch.column(field.name), field, where) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fitted_column(column: pa.Array, field: pa.Field, where: str) -> pa.Array:
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


def _holds_text(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in {pa.binary(), pa.large_binary(), pa.binary_view()}


_Test: TypeAlias = Callable[[pa.DataType], bool]
_LOSSLESS: tuple[tuple[_Test, _Test], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_floating, pa.types.is_float64),
    (_holds_text, _holds_text),
    (_is_bytes, _is_bytes),
    (pa.types.is_null, lambda _: True),
)
"""From what to what columns are cast; Arrow refuses values that do not fit."""
