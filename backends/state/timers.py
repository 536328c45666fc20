"""Timers: moments at which an operator is called again, for a key and a namespace.

A timer that is registered several times exists once. The backend decides how timers are kept; they
are in its snapshots, and move with their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.state.base import KeyContext
from holdfast.backends.state.heap_timers import HeapTimerQueue
from holdfast.backends.tables.contract import NO_NAMESPACE, StateKind, TableSpec, TableStore
from holdfast.backends.tables.timer_queues import Timer, TimerQueue
from holdfast.backends.values.codec import value_codec_for
from holdfast.backends.values.normalizing import shown
from holdfast.storage.errors import Invalid

__all__ = ["USER_TIMERS", "TimerService", "timer_queue", "timer_specs", "timer_table"]

USER_TIMERS = "user-timers"
"""The name of the timers of users' functions, as Flink has it."""


def timer_table(name: str, domain: str) -> str:
    """The name of the table of a timer service's timers: `domain` is `event` or `processing`."""
    return f"_timers/{name}/{domain}"


def timer_specs(
    name: str, key_type: Callable[[], KeyCodec[Any]], namespaces: KeyCodec[Any] | None
) -> tuple[TableSpec, TableSpec]:
    """The tables of a service's event-time and processing-time timers."""
    event, processing = (
        TableSpec(
            name=timer_table(name, domain),
            kind=StateKind.MAP,
            key_type=key_type,
            namespaces=namespaces,
            map_keys=key_codec_for(int),
            values=value_codec_for(bool),
            stamped=False,
            is_timers=True,
        )
        for domain in ("event", "processing")
    )
    return event, processing


def timer_queue(store: TableStore, spec: TableSpec) -> TimerQueue:
    """The timers of this spec: in the store's own way if it has one, otherwise on the heap."""
    queue = store.timer_queue(spec)
    return HeapTimerQueue(store, spec) if queue is None else queue


class TimerService:
    """The timers of one operator in one slot; see `KeyedStateBackend.timers`.

    Methods that register and delete work under the backend's current key.
    """

    def __init__(
        self,
        context: KeyContext,
        event: tuple[TableSpec, TimerQueue],
        processing: tuple[TableSpec, TimerQueue],
    ) -> None:
        self._event = _Timers(context, *event)
        self._processing = _Timers(context, *processing)

    def register_event_time_timer(self, timestamp: int, namespace: Any = NO_NAMESPACE) -> None:
        """Register a call for when the watermark reaches `timestamp`."""
        self._event.register(timestamp, namespace)

    def register_processing_time_timer(self, timestamp: int, namespace: Any = NO_NAMESPACE) -> None:
        """Register a call for when the clock reaches `timestamp`."""
        self._processing.register(timestamp, namespace)

    def delete_event_time_timer(self, timestamp: int, namespace: Any = NO_NAMESPACE) -> None:
        """Take the request back, if there is one."""
        self._event.delete(timestamp, namespace)

    def delete_processing_time_timer(self, timestamp: int, namespace: Any = NO_NAMESPACE) -> None:
        """Take the request back, if there is one."""
        self._processing.delete(timestamp, namespace)

    def moment(self, timestamp: Any) -> int:
        """The time of a timer as it is kept.

        Raises:
            Invalid: it is no int of 64 bits.
        """
        return self._event.moment(timestamp)

    def due_event_time(self, watermark: int) -> Iterator[Timer]:
        """Remove and answer the timers up to `watermark`, in order of time.

        Timers that are registered during the iteration are part of it, if they are due. The order
        of timers of one moment depends on the backend.
        """
        return self._event.due(watermark)

    def due_processing_time(self, now_ms: int) -> Iterator[Timer]:
        """Remove and answer the timers up to `now_ms`, likewise."""
        return self._processing.due(now_ms)

    def next_event_time(self) -> int | None:
        """When the first event-time timer is due."""
        return self._event.next()

    def next_processing_time(self) -> int | None:
        """When the first processing-time timer is due."""
        return self._processing.next()


class _Timers:
    """The timers of one time domain, registered under the current key."""

    def __init__(self, context: KeyContext, spec: TableSpec, queue: TimerQueue) -> None:
        if spec.map_keys is None:
            raise AssertionError("timers are kept by their moment")
        self._context = context
        self._namespaces = spec.namespaces
        self._canonical = spec.map_keys.canonical
        self._queue = queue

    def register(self, timestamp: int, namespace: Any) -> None:
        context = self._context
        context.check_thread()
        key = context.key
        hash(key)  # raises when there is no current key
        if self._namespaces is not None or namespace is not NO_NAMESPACE:
            namespace = self._space(namespace)
        self._queue.add(self.moment(timestamp), key, namespace)

    def delete(self, timestamp: int, namespace: Any) -> None:
        context = self._context
        context.check_thread()
        key = context.key
        hash(key)
        if self._namespaces is not None or namespace is not NO_NAMESPACE:
            namespace = self._space(namespace)
        self._queue.remove(self.moment(timestamp), key, namespace)

    def due(self, until: int) -> Iterator[Timer]:
        self._context.check_thread()
        return self._queue.due(until)

    def next(self) -> int | None:
        self._context.check_thread()
        return self._queue.first_moment()

    def moment(self, timestamp: Any) -> int:
        try:
            moment: int = self._canonical(timestamp)
            return moment
        except Invalid:
            raise Invalid(
                "the time of a timer is no whole number of milliseconds",
                expected="an int of 64 bits: milliseconds since 1970",
                found=shown(timestamp),
                fix="Of a datetime it is int(moment.timestamp() * 1000), of a float int(…)",
            ) from None

    def _space(self, namespace: Any) -> Any:
        if self._namespaces is None:
            raise Invalid("these timers have no namespaces", found=repr(namespace))
        return self._namespaces.canonical(namespace)
