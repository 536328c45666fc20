"""Timers in a map table, with an index of all in memory: for any store, but not for many timers."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from holdfast.backends.blocks.block import Block
from holdfast.backends.tables.contract import MapTable, TableSpec, TableStore
from holdfast.backends.tables.timer_queues import Timer, TimerQueue

__all__ = ["HeapTimerQueue"]


class HeapTimerQueue(TimerQueue):
    """Timers of one moment fire in order of registration; after a restore, in any order.

    The index has the keys and namespaces of each moment, and a heap of the moments. It is read from
    the table on first use: a restored table already has timers.
    """

    def __init__(self, store: TableStore, spec: TableSpec) -> None:
        self._store = store
        self._spec = spec
        table = store.table(spec)
        assert isinstance(table, MapTable)
        self._table = table
        self._cell = store.form(spec).encode(True)
        self._moments: list[int] = []
        self._at: dict[int, dict[tuple[Any, Any], None]] = {}
        self._is_read = False

    def add(self, moment: int, key: Any, namespace: Any) -> None:
        if not self._is_read:
            self._read()
        owner = key, namespace
        there = self._at.get(moment)
        if there is None:
            self._at[moment] = {owner: None}
            heapq.heappush(self._moments, moment)
        elif owner in there:
            return
        else:
            there[owner] = None
        self._table.put(self._store.address(self._spec, key, namespace), moment, self._cell)

    def remove(self, moment: int, key: Any, namespace: Any) -> None:
        if not self._is_read:
            self._read()
        there = self._at.get(moment)
        if there is not None and (key, namespace) in there:
            del there[key, namespace]
            self._forget(moment, key, namespace)

    def first_moment(self) -> int | None:
        if not self._is_read:
            self._read()
        while self._moments and not self._at[self._moments[0]]:
            del self._at[heapq.heappop(self._moments)]
        return self._moments[0] if self._moments else None

    def due(self, until: int) -> Iterator[Timer]:
        # Walk over a copy of each moment's keys: asking a dict for its first entry skips all
        # entries that were removed before it, each time.
        if not self._is_read:
            self._read()
        walks: dict[int, Iterator[tuple[Any, Any]]] = {}
        while self._moments and self._moments[0] <= until:
            moment = self._moments[0]
            there = self._at[moment]
            if not there:
                heapq.heappop(self._moments)
                del self._at[moment]
                walks.pop(moment, None)
                continue
            owner = next(walks.get(moment, iter(())), None)
            if owner is None:
                walks[moment] = iter(list(there))
            elif owner in there:
                del there[owner]
                self._forget(moment, *owner)
                yield Timer(moment, *owner)

    def load(self, block: Block) -> None:
        self._table.load(block)
        self._is_read = False

    def _read(self) -> None:
        self._at = {}
        for key, namespace in self._table.addresses():
            address = self._store.address(self._spec, key, namespace)
            for moment, _ in self._table.items(address):
                self._at.setdefault(moment, {})[key, namespace] = None
        self._moments = list(self._at)
        heapq.heapify(self._moments)
        self._is_read = True

    def _forget(self, moment: int, key: Any, namespace: Any) -> None:
        address = self._store.address(self._spec, key, namespace)
        self._table.remove_entry(address, moment)
