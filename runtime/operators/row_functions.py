"""Operators over functions of one row that need no context: map, filter and flat_map."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import truth
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from holdfast.runtime.columns.rows import RowReader
from holdfast.runtime.operators.results import RowResults, moments_of
from holdfast.runtime.operators.row_and_timer_loops import MOST_RESULTS
from holdfast.runtime.operators.user_code import (
    NO_ROWS,
    USER_ERRORS,
    UserCode,
    UserFunctionSpec,
    answers_anything,
)
from holdfast.runtime.protocol.operator import Operator, OperatorContext
from holdfast.storage import Invalid

__all__ = ["FilterSpec", "FlatMapSpec", "MapSpec"]


@dataclass(frozen=True, kw_only=True)
class MapSpec(UserFunctionSpec):
    """Returns a row for each row."""

    def build(self) -> Operator:
        return _Map(self, self.load())


@dataclass(frozen=True, kw_only=True)
class FlatMapSpec(UserFunctionSpec):
    """Returns any number of rows for each row, or None."""

    def build(self) -> Operator:
        return _FlatMap(self, self.load())


@dataclass(frozen=True, kw_only=True)
class FilterSpec(UserFunctionSpec):
    """Keeps the rows for which the function returns a true value."""

    has_side_outputs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_schema.equals(self.input_schema):
            raise Invalid(
                f"the filter {self.uid!r} has another schema for its output",
                expected=str(self.input_schema),
                found=str(self.output_schema),
            )

    def build(self) -> Operator:
        return _Filter(self, self.load())


class _RowFunction(Operator):
    """The common base of the three. They have no state, and nothing to close."""

    _results: RowResults

    def __init__(self, spec: UserFunctionSpec, code: UserCode) -> None:
        self._spec = spec
        self._code = code
        self._function: Callable[[Any], Any] = code.function
        self._is_checked = answers_anything(code.function)
        self._reader = RowReader(spec.input_schema, uid=spec.uid)

    def open(self, context: OperatorContext) -> None:
        self._results = RowResults(self._spec, context.output)

    def close(self) -> None:
        pass

    def _times(self, batch: pa.RecordBatch) -> pa.Array | None:
        return batch.column(batch.num_columns - 1) if self._spec.has_event_time else None

    def _answers(self, rows: Sequence[Any], convert: Callable[[Any], Any] | None) -> list[Any]:
        """The function's return value for each row, converted if `convert` is given."""
        answers: list[Any] = []
        calls = map(self._function, rows)
        try:
            # Where a call fails, those before it are in the list already.
            answers.extend(calls if convert is None else map(convert, calls))
        except USER_ERRORS as error:
            in_hand = self._code.row(rows[len(answers)]) if len(answers) < len(rows) else ""
            raise self._code.failure(error, "", in_hand) from error
        return answers


class _Map(_RowFunction):
    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        rows = list(self._reader.read(batch))
        self._results.emit(self._answers(rows, None), self._times(batch))


class _Filter(_RowFunction):
    _context: OperatorContext

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        rows = list(self._reader.read(batch))
        keep = np.fromiter(self._answers(rows, truth), np.bool_, len(rows))
        kept = batch if keep.all() else batch.filter(pa.array(keep))
        if kept.num_rows:
            self._context.output.emit(kept)


class _FlatMap(_RowFunction):
    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        rows, times = self._reader.read(batch), self._times(batch)
        first, is_done = 0, False
        while not is_done:
            made, ends, is_done = self._some(rows)
            self._results.emit(made, None if times is None else moments_of(times, ends, first))
            first += len(ends)

    def _some(self, rows: Iterator[Any]) -> tuple[list[Any], list[int], bool]:
        function, is_checked = self._function, self._is_checked
        made: list[Any] = []
        ends: list[int] = []
        extend, end = made.extend, ends.append
        row = None
        try:
            for row in rows:
                results = function(row)
                if results is not None:
                    if is_checked and type(results) in NO_ROWS:
                        raise self._code.no_rows(results)
                    extend(results)
                end(count := len(made))
                if count >= MOST_RESULTS:
                    return made, ends, False
        except USER_ERRORS as error:
            raise self._code.failure(error, "", self._code.row(row)) from error
        return made, ends, True
