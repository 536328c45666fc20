"""The operator over batches of a keyed stream: `KeyedBatchFunction`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.backends import KeyedStateBackend, Timer
from holdfast.runtime.api.functions import BatchOrder, KeyedBatchFunction, OutputTag, TimeDomain
from holdfast.runtime.operators.contexts import TimedBatchContext
from holdfast.runtime.operators.function_operator import KeyedFunctionOperator, KeyedFunctionSpec
from holdfast.runtime.operators.results import BatchResults
from holdfast.runtime.operators.user_code import USER_ERRORS, UserCode
from holdfast.runtime.protocol.operator import Operator, OperatorContext

__all__ = ["MOST_BATCHED_TIMERS", "KeyedBatchSpec"]

MOST_BATCHED_TIMERS = 65536
"""As many timers at most are in one call: it lasts about as long as one for a batch of rows."""


@dataclass(frozen=True, kw_only=True)
class KeyedBatchSpec(KeyedFunctionSpec):
    """Runs a `KeyedBatchFunction`."""

    makes_rows: ClassVar[bool] = False

    def build(self) -> Operator:
        return _KeyedBatchOperator(self, self.load(KeyedBatchFunction))


class _KeyedBatchOperator(KeyedFunctionOperator):
    batch_bytes = 16 * 1024 * 1024

    _context: TimedBatchContext
    _results: BatchResults

    def __init__(self, spec: KeyedBatchSpec, code: UserCode) -> None:
        super().__init__(spec, code)
        self._order = BatchOrder(code.function.order)

    def _prepare_keyed(self, context: OperatorContext, keyed: KeyedStateBackend) -> None:
        self._context = TimedBatchContext(keyed, self._timers)
        self._results = BatchResults(self._spec, context.output)

    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        if not batch.num_rows:
            return
        batch = self._keys.arranged(batch, self._order)
        moment: int | None = None
        if self._spec.has_event_time:
            times = batch.column(batch.num_columns - 1)
            moment = pc.max(times).as_py()
            self._context.batch_times = times
            batch = batch.select(range(batch.num_columns - 1))
        self._context.batch_keys = self._keys.of(batch)
        process = self.code.function.process_batch
        in_hand = f"a batch of {batch.num_rows} rows"
        self._emit("process_batch", in_hand, lambda: process(batch, self._context), moment)
        self._context.batch_times = self._context.batch_keys = None

    def advance(self, watermark: int) -> bool:
        self._timers.watermark = watermark
        timers = [*islice(self._timers.service.due_event_time(watermark), MOST_BATCHED_TIMERS)]
        if timers:
            self._fire(timers, TimeDomain.EVENT_TIME, timers[-1].timestamp)
        return bool(timers)

    def tick(self, now_ms: int) -> None:
        timers = [*islice(self._timers.service.due_processing_time(now_ms), MOST_BATCHED_TIMERS)]
        if timers:
            self._fire(timers, TimeDomain.PROCESSING_TIME, None)

    def _fire(self, timers: Sequence[Timer], domain: TimeDomain, moment: int | None) -> None:
        moments = [timer.timestamp for timer in timers]
        keys = [timer.key for timer in timers]
        on_timers = self.code.function.on_timers
        self._emit(
            "on_timers",
            f"{len(timers)} timers, the first at {moments[0]} of key {keys[0]!r}",
            lambda: on_timers(moments, keys, domain, self._context),
            moment,
        )

    def _emit(self, method: str, in_hand: str, call: Callable[[], Any], moment: int | None) -> None:
        """Pass results on as they are made; errors of the receivers are not this function's."""
        results: Iterator[Any] | None = None
        while True:
            try:
                if results is None:
                    results = _each(call())
                result = next(results, _END)
            except USER_ERRORS as error:
                raise self.code.failure(error, method, in_hand) from error
            if result is _END:
                return
            self._results.emit(result, moment)


_END = object()


def _each(answer: Any) -> Iterator[Any]:
    """The results of an answer, which may be one of them, many, or None."""
    if answer is None:
        return iter(())
    is_tagged = isinstance(answer, tuple) and answer and isinstance(answer[0], OutputTag)
    if isinstance(answer, pa.RecordBatch | pa.Table) or is_tagged:
        return iter((answer,))
    return iter(answer)
