"""Timers: moments at which an operator wants to be called again, for a key and a namespace.

A timer is registered once however often it is asked for. Timers are kept in a table of the
backend, so they are in its snapshots and move with their keys; an index in memory orders them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.backends.key_base import KeyCodec
from holdfast.backends.key_codec import key_codec_for
from holdfast.backends.states import KeyContext
from holdfast.backends.tables import NO_NAMESPACE, KeyType, MapTable, StateKind, TableSpec
from holdfast.backends.value_codec import value_codec_for
from holdfast.storage.errors import Invalid

__all__ = ["Timer", "TimerService", "timer_specs"]


@dataclass(frozen=True, slots=True)
class Timer:
    """One timer, at a millisecond."""

    timestamp: int
    key: Any
    namespace: Any


def timer_specs(
    name: str, keys: KeyType, namespaces: KeyCodec[Any] | None
) -> tuple[TableSpec, TableSpec]:
    """The tables of a service's event-time and processing-time timers."""
    event, processing = (
        TableSpec(
            name=f"_timers/{name}/{domain}",
            kind=StateKind.MAP,
            key_type=keys,
            namespaces=namespaces,
            map_keys=key_codec_for(int),
            values=value_codec_for(bool),
            stamped=False,
        )
        for domain in ("event", "processing")
    )
    return event, processing


class TimerService:
    """The timers of one operator in one slot; see `KeyedStateBackend.timers`.

    Methods that register and delete work under the backend's current key.
    """

    def __init__(
        self,
        context: KeyContext,
        event: tuple[TableSpec, MapTable],
        processing: tuple[TableSpec, MapTable],
    ) -> None:
        self._event = _Timers(context, *event)
        self._processing = _Timers(context, *processing)

    def register_event_time_timer(self, timestamp: int, namespace: Any = NO_NAMESPACE) -> None:
        """Ask to be called when the watermark has reached `timestamp`."""
        self._event.register(timestamp, namespace)

    def register_processing_time_timer(self, timestamp: int, namespace: Any = NO_NAMESPACE) -> None:
        """Ask to be called when the clock has reached `timestamp`."""
        self._processing.register(timestamp, namespace)

    def delete_event_time_timer(self, timestamp: int, namespace: Any = NO_NAMESPACE) -> None:
        """Take the request back, if there is one."""
        self._event.delete(timestamp, namespace)

    def delete_processing_time_timer(self, timestamp: int, namespace: Any = NO_NAMESPACE) -> None:
        """Take the request back, if there is one."""
        self._processing.delete(timestamp, namespace)

    def due_event_time(self, watermark: int) -> Iterator[Timer]:
        """Remove and answer the timers up to `watermark`, in order of time.

        Those that are registered while the answer is walked are part of it, if they are due.
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
    """The timers of one domain: by moment, and for each moment by key and namespace."""

    def __init__(self, context: KeyContext, spec: TableSpec, table: MapTable) -> None:
        self._context = context
        self._spec = spec
        self._table = table
        self._cell = context.store.form(spec).encode(True)
        self._moments: list[int] = []
        self._at: dict[int, dict[tuple[Any, Any], None]] = {}
        for key, namespace in table.addresses():
            for timestamp, _ in table.items(context.store.address(spec, key, namespace)):
                self._index(timestamp, key, namespace)

    def register(self, timestamp: int, namespace: Any) -> None:
        key, namespace = self._owner(namespace)
        timestamp = self._moment(timestamp)
        if (key, namespace) not in self._at.get(timestamp, ()):
            self._index(timestamp, key, namespace)
            address = self._context.store.address(self._spec, key, namespace)
            self._table.put(address, timestamp, self._cell)

    def delete(self, timestamp: int, namespace: Any) -> None:
        key, namespace = self._owner(namespace)
        timestamp = self._moment(timestamp)
        there = self._at.get(timestamp)
        if there is not None and (key, namespace) in there:
            del there[key, namespace]
            self._forget(Timer(timestamp, key, namespace))

    def due(self, until: int) -> Iterator[Timer]:
        # A walk over a copy for each moment: to ask a dict for its first entry again and again is
        # to walk over all that were removed before it.
        self._context.check_thread()
        walks: dict[int, Iterator[tuple[Any, Any]]] = {}
        while self._moments and self._moments[0] <= until:
            timestamp = self._moments[0]
            there = self._at[timestamp]
            if not there:
                heapq.heappop(self._moments)
                del self._at[timestamp]
                walks.pop(timestamp, None)
                continue
            owner = next(walks.get(timestamp, iter(())), None)
            if owner is None:
                walks[timestamp] = iter(list(there))
            elif owner in there:
                del there[owner]
                timer = Timer(timestamp, *owner)
                self._forget(timer)
                yield timer

    def next(self) -> int | None:
        self._context.check_thread()
        while self._moments and not self._at[self._moments[0]]:
            del self._at[heapq.heappop(self._moments)]
        return self._moments[0] if self._moments else None

    def _index(self, timestamp: int, key: Any, namespace: Any) -> None:
        if timestamp not in self._at:
            self._at[timestamp] = {}
            heapq.heappush(self._moments, timestamp)
        self._at[timestamp][key, namespace] = None

    def _forget(self, timer: Timer) -> None:
        address = self._context.store.address(self._spec, timer.key, timer.namespace)
        self._table.remove_entry(address, timer.timestamp)

    def _owner(self, namespace: Any) -> tuple[Any, Any]:
        self._context.check_thread()
        key = self._context.key
        hash(key)  # raises when there is no current key
        if self._spec.namespaces is None:
            if namespace is not NO_NAMESPACE:
                raise Invalid("these timers have no namespaces", found=repr(namespace))
            return key, NO_NAMESPACE
        return key, self._spec.namespaces.canonical(namespace)

    def _moment(self, timestamp: int) -> int:
        if self._spec.map_keys is None:
            raise AssertionError("timers are kept by their moment")
        moment: int = self._spec.map_keys.canonical(timestamp)
        return moment
