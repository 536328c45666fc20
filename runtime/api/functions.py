"""What users write: functions over rows and over batches, and what they are given to work with.

Names follow PyFlink. A function is made on the driver, pickled, and opened once in each slot.
Whatever a method yields goes on: tuples in the order of the operator's schema, or
`tag, tuple` for a side output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from holdfast.backends import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OperatorListState,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)

__all__ = [
    "BatchContext",
    "BatchOrder",
    "Context",
    "KeyedBatchFunction",
    "KeyedContext",
    "KeyedProcessFunction",
    "OnTimerContext",
    "OutputTag",
    "ProcessFunction",
    "RuntimeContext",
    "TimeDomain",
    "TimerAccess",
]


@dataclass(frozen=True, slots=True)
class OutputTag:
    """The name of a side output, and the schema of its rows: DDL, or an Arrow or Spark schema."""

    name: str
    schema: Any


class TimeDomain(Enum):
    """Which time a timer belongs to."""

    EVENT_TIME = "event"
    PROCESSING_TIME = "processing"


class TimerAccess(Protocol):
    """The timers of the current key, and what time it is. All in milliseconds."""

    def current_processing_time(self) -> int:
        """The clock of this machine."""

    def current_watermark(self) -> int:
        """How far event time has got; the least 64-bit number before there is any."""

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` once the watermark has reached `timestamp`; twice is once."""

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` once the clock has reached `timestamp`; twice is once."""

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Take the request back, if there is one."""

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Take the request back, if there is one."""


class RuntimeContext(Protocol):
    """What a function is opened with: where it runs, and its state.

    Keyed state is there for functions over keyed streams; operator state for all.
    """

    @property
    def uid(self) -> str:
        """The operator's uid."""

    @property
    def slot(self) -> int:
        """The number of this slot, from 0."""

    @property
    def parallelism(self) -> int:
        """How many slots there are."""

    @property
    def attempt(self) -> int:
        """How often the job was started before, by this run."""

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """A value for each key."""

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list for each key."""

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState[Any]:
        """A map for each key."""

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """A value for each key, to which values are reduced."""

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any]:
        """An accumulator for each key."""

    def get_operator_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        """A list of this slot, dealt out anew when the parallelism changes."""

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        """A list of this slot; on restore each slot gets those of all."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map that is the same in every slot."""


class Context(Protocol):
    """What there is to know of the row in hand."""

    def timestamp(self) -> int | None:
        """When the row happened, in milliseconds; None in a stream without event time."""

    def timer_service(self) -> TimerAccess:
        """Timers, and the time. Only keyed streams have timers to register."""


class KeyedContext(Context, Protocol):
    """The same in a keyed stream."""

    def get_current_key(self) -> Any:
        """The key of the row, or of the timer, in hand."""


class OnTimerContext(KeyedContext, Protocol):
    """The same for a timer."""

    def time_domain(self) -> TimeDomain:
        """Which time the timer belongs to."""


class BatchContext(Protocol):
    """What a function over batches may ask."""

    def current_watermark(self) -> int:
        """How far event time has got."""

    def current_processing_time(self) -> int:
        """The clock of this machine, in milliseconds."""

    def keys(self) -> pa.Array:
        """The key of each row of the batch in hand, as state takes them.

        That is the key column, or a struct of several. While timers fire there is no batch.
        """

    def timestamps(self) -> pa.Array | None:
        """When each row of the batch in hand happened; None in a stream without event time."""

    def register_event_time_timers(self, keys: Any, timestamps: Any) -> None:
        """A timer for each key and time, from columns or sequences of one length."""

    def register_processing_time_timers(self, keys: Any, timestamps: Any) -> None:
        """A timer for each key and time, likewise."""

    def delete_event_time_timers(self, keys: Any, timestamps: Any) -> None:
        """Take requests back, where there are any."""

    def delete_processing_time_timers(self, keys: Any, timestamps: Any) -> None:
        """Take requests back, where there are any."""


class _Function:
    """What all functions have. Nothing has to be overridden."""

    def open(self, ctx: RuntimeContext) -> None:
        """Called once in each slot before the first row; ask for state here."""

    def close(self) -> None:
        """Called once in each slot in the end, also after a failure."""


class ProcessFunction(_Function, ABC):
    """A function over the rows of a stream."""

    @abstractmethod
    def process_element(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Called for each row, which is a named tuple."""


class KeyedProcessFunction(_Function, ABC):
    """A function over the rows of a keyed stream, with state and timers for each key."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        """Called for each row, which is a named tuple, under its key."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Called for each timer that is due, under its key."""


class BatchOrder(Enum):
    """How rows lie in the batches that a function gets."""

    AS_THEY_COME = "as-they-come"
    GROUPED = "grouped"
    """Rows of one key lie together, in the order in which they came."""
    SORTED = "sorted"
    """Keys ascend; rows of one key are in the order in which they came."""


class KeyedBatchFunction(_Function, ABC):
    """A function over the batches of a keyed stream: state by `get_many` and its like."""

    order: BatchOrder = BatchOrder.AS_THEY_COME

    @abstractmethod
    def process_batch(
        self, batch: pa.RecordBatch, ctx: BatchContext
    ) -> pa.RecordBatch | pa.Table | Iterable[Any] | None:
        """Called for each batch.

        Answers, or yields, batches of the operator's schema, or `tag, batch` for a side output.
        """

    def on_timers(
        self, timestamps: Sequence[int], keys: Sequence[Any], domain: TimeDomain, ctx: BatchContext
    ) -> pa.RecordBatch | pa.Table | Iterable[Any] | None:
        """Called with the timers that are due, in order of time; with many, more than once."""
