"""Assigns event time: each row gets the time of a column, and watermarks follow the rows.

The watermark is the latest time that was seen, less the delay that is allowed for, less one: a row
that is late by just the delay is not late. As in Flink watermarks from before are not passed on,
but for the last one; and none is kept in a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.runtime.columns.event_time import event_times
from holdfast.runtime.columns.types import type_of_column
from holdfast.runtime.protocol.elements import EVENT_TIME, MAX_WATERMARK, MIN_WATERMARK
from holdfast.runtime.protocol.operator import Operator, OperatorContext, OperatorSpec, Output
from holdfast.storage import Clock, Invalid

__all__ = ["WatermarkSpec"]


@dataclass(frozen=True, kw_only=True)
class WatermarkSpec(OperatorSpec):
    """Takes event time from a column: 64-bit milliseconds since 1970, or a timestamp.

    `max_delay_ms` is how late rows may be. After `idle_after_ms` without rows, operators downstream
    do not wait for this slot; None: they always do. Event time that rows had before is replaced.

    Making one raises `Invalid` if the column is not there or of another type, or a number is not
    legal.
    """

    column: str
    max_delay_ms: int = 0
    idle_after_ms: int | None = None

    def __post_init__(self) -> None:
        where = f"operator {self.uid!r}"
        missing = f"there is no column {self.column!r} for event time"
        kind = type_of_column(self.input_schema, self.column, missing=missing, where=where)
        if not (kind == pa.int64() or pa.types.is_timestamp(kind)):
            raise Invalid(
                f"column {self.column!r} cannot be event time",
                where=where,
                expected="int64 milliseconds since 1970, or a timestamp",
                found=str(kind),
            )
        if (
            not self.output_schema.equals(self.input_schema)
            or EVENT_TIME in self.input_schema.names
        ):
            raise Invalid(
                "an operator for watermarks keeps the schema",
                where=where,
                expected=f"the same, without {EVENT_TIME}",
                found=", ".join(self.output_schema.names),
            )
        if self.max_delay_ms < 0 or (self.idle_after_ms is not None and self.idle_after_ms <= 0):
            raise Invalid(
                "a time of a watermark is not legal",
                where=where,
                expected="a delay of 0 or more, an idle time above 0",
                found=f"max_delay_ms={self.max_delay_ms}, idle_after_ms={self.idle_after_ms}",
            )

    def build(self) -> Operator:
        return _WatermarkOperator(self)


class _WatermarkOperator(Operator):
    makes_event_time: ClassVar[bool] = True
    _output: Output
    _clock: Clock

    def __init__(self, spec: WatermarkSpec) -> None:
        self._spec = spec
        self._place = spec.input_schema.get_field_index(spec.column)
        self._schema = spec.output_schema.append(pa.field(EVENT_TIME, pa.int64()))
        self._watermark = MIN_WATERMARK
        self._is_idle = False
        self._active_ms = 0

    def open(self, context: OperatorContext) -> None:
        self._output, self._clock = context.output, context.clock
        self._active_ms = context.clock.now_ms()

    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        if not batch.num_rows:
            return
        times = event_times(
            batch.column(self._place),
            name=self._spec.column,
            where=f"operator {self._spec.uid!r}",
        )
        columns = [*batch.columns[: len(self._spec.input_schema)], times]
        self._wake()
        self._output.emit(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        watermark = pc.max(times).as_py() - self._spec.max_delay_ms - 1
        if watermark > self._watermark:
            self._watermark = watermark
            self._output.advance(watermark)

    def _wake(self) -> None:
        """Declare the stream active before its rows go on, so that event time waits for them."""
        if self._spec.idle_after_ms is not None:
            self._active_ms = self._clock.now_ms()
        if self._is_idle:
            self._is_idle = False
            self._output.active()

    def advance(self, watermark: int) -> bool:
        if watermark == MAX_WATERMARK:
            self._watermark = watermark
            self._is_idle = False
            self._output.advance(watermark)
        return False

    def next_tick_ms(self) -> int | None:
        idle_after_ms = self._spec.idle_after_ms
        if idle_after_ms is None or self._is_idle or self._watermark == MAX_WATERMARK:
            return None
        return self._active_ms + idle_after_ms

    def tick(self, now_ms: int) -> None:
        due_ms = self.next_tick_ms()
        if due_ms is not None and now_ms >= due_ms:
            self._is_idle = True
            self._output.idle()

    def close(self) -> None:
        pass
