"""Operators over rows that know their context: `ProcessFunction` and `KeyedProcessFunction`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa

from holdfast.backends import KeyedStateBackend, Timer
from holdfast.runtime.api.functions import KeyedProcessFunction, ProcessFunction, TimeDomain
from holdfast.runtime.columns.rows import RowReader
from holdfast.runtime.operators.contexts import RowContext, TimeKeeper, TimersContext
from holdfast.runtime.operators.function_operator import (
    FunctionOperator,
    KeyedFunctionOperator,
    KeyedFunctionSpec,
)
from holdfast.runtime.operators.results import RowResults
from holdfast.runtime.operators.row_and_timer_loops import RowLoop, TimerLoop
from holdfast.runtime.operators.user_code import UserCode, UserFunctionSpec
from holdfast.runtime.protocol.operator import Operator, OperatorContext

__all__ = ["KeyedProcessSpec", "ProcessSpec"]


@dataclass(frozen=True, kw_only=True)
class ProcessSpec(UserFunctionSpec):
    """Runs a `ProcessFunction`."""

    def build(self) -> Operator:
        return _ProcessOperator(self, self.load(ProcessFunction))


@dataclass(frozen=True, kw_only=True)
class KeyedProcessSpec(KeyedFunctionSpec):
    """Runs a `KeyedProcessFunction`."""

    def build(self) -> Operator:
        return _KeyedProcessOperator(self, self.load(KeyedProcessFunction))


class _NoKey:
    """Stands in for keyed state where there is none."""

    key: Any = None


class _ProcessOperator(FunctionOperator):
    _loop: RowLoop
    _time: TimeKeeper

    def __init__(self, spec: ProcessSpec, code: UserCode) -> None:
        super().__init__(code)
        self._spec = spec
        self._reader = RowReader(spec.input_schema, uid=spec.uid)

    def _get_ready(self, context: OperatorContext) -> None:
        self._time = TimeKeeper(context.clock, context.uid)
        results = RowResults(self._spec, context.output)
        no_key = _NoKey()
        self._loop = RowLoop(no_key, RowContext(no_key, self._time), self.code, results)

    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        times = batch.column(batch.num_columns - 1) if self._spec.has_event_time else None
        self._loop.run(repeat(None), self._reader.read(batch), times)

    def advance(self, watermark: int) -> bool:
        self._time.watermark = watermark
        return False


class _KeyedProcessOperator(KeyedFunctionOperator):
    _keyed: KeyedStateBackend
    _rows: RowLoop
    _firing: TimerLoop
    _timer_context: TimersContext

    def __init__(self, spec: KeyedProcessSpec, code: UserCode) -> None:
        super().__init__(spec, code)
        self._reader = RowReader(spec.input_schema, uid=spec.uid)
        # A walk over many timers goes on in the next call: to begin one may cost as much as there
        # are timers of one moment.
        self._due: Iterator[Timer] | None = None
        self._due_by_clock: Iterator[Timer] | None = None

    def _prepare_keyed(self, context: OperatorContext, keyed: KeyedStateBackend) -> None:
        self._keyed = keyed
        results = RowResults(self._spec, context.output)
        self._rows = RowLoop(keyed, RowContext(keyed, self._timers), self.code, results)
        self._timer_context = TimersContext(keyed, self._timers)
        self._firing = TimerLoop(keyed, self._timer_context, self.code, results, context.clock)

    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        keys = self._keyed.keys_of(self._keys.of(batch))
        times = batch.column(batch.num_columns - 1) if self._spec.has_event_time else None
        self._rows.run(keys, self._reader.read(batch), times)

    def advance(self, watermark: int) -> bool:
        self._timers.watermark = watermark
        self._timer_context.domain = TimeDomain.EVENT_TIME
        if self._due is None:
            self._due = self._timers.service.due_event_time(watermark)
        has_more = self._firing.run(self._due, has_time=True)
        if not has_more:
            self._due = None
        return has_more

    def tick(self, now_ms: int) -> None:
        self._timer_context.domain = TimeDomain.PROCESSING_TIME
        if self._due_by_clock is None:
            self._due_by_clock = self._timers.service.due_processing_time(now_ms)
        if not self._firing.run(self._due_by_clock, has_time=False):
            self._due_by_clock = None
