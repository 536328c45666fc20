"""Recorders of the changes of a table since the last seal, merged by address.

The thread that makes changes merges them in memory; another thread turns them into rows. Setting a
value a thousand times is one row of the log; appending to a list logs the elements, not the list.

Flink logs each operation as it happens. Merging makes a counter cheap for the thread that counts,
and lets the log be columns that are read block by block. The price is memory, bounded by
`persist_threshold_bytes` before a seal and by `max_in_flight_bytes` until sealed changes are
written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from holdfast.backends.tables.contract import NO_NAMESPACE, Rows, TableSpec, TableStore
from holdfast.backends.values.normalizing import has_none

__all__ = ["ListChanges", "MapChanges", "Recorded", "Recorder", "TimerChanges", "ValueChanges"]

Recorded = Callable[[], Iterator[Rows]]
"""Returns the rows of taken changes: removed rows, then added rows. Any thread."""
_Pairs = tuple[list[Any], list[Any]]
"""Addresses and their cells."""


class Recorder(ABC):
    """The changes of one table. For the thread that makes them only."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of changed rows, about."""

    @abstractmethod
    def take(self) -> Recorded:
        """Take all recorded changes; the recorder is empty afterwards."""


class ValueChanges(Recorder):
    """The cell of each address that was set, None for a removed one.

    `hot` has the newest cells, in which tables look up values. `put_aside` retires it. Cells that
    no table will look up are put aside directly (`note`).
    """

    def __init__(self) -> None:
        self.hot: dict[Any, Any] = {}
        self._aside: list[dict[Any, Any] | _Pairs] = []
        self._rows_aside = 0

    @property
    def rows(self) -> int:
        return len(self.hot) + self._rows_aside

    def put_aside(self) -> dict[Any, Any]:
        """Begin a new `hot`; returns the old one, which the caller must not change."""
        before, self.hot = self.hot, {}
        if before:
            self._aside.append(before)
            self._rows_aside += len(before)
        return before

    def note(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        """Record cells that are merged in the background and never in `hot`."""
        self.put_aside()
        self._aside.append((list(addresses), list(cells)))
        self._rows_aside += len(addresses)

    def take(self) -> Recorded:
        self.put_aside()
        parts, self._aside, self._rows_aside = self._aside, [], 0

        def rows() -> Iterator[Rows]:
            merged = _merged(parts)
            addresses, cells = list(merged), list(merged.values())
            if has_none(cells):
                removed = [address for address, cell in merged.items() if cell is None]
                yield Rows(removed)
                addresses = [address for address, cell in merged.items() if cell is not None]
                cells = [cell for cell in cells if cell is not None]
            if addresses:
                yield Rows(addresses, cells=cells)

        return rows


def _merged(parts: Sequence[dict[Any, Any] | _Pairs]) -> dict[Any, Any]:
    """The last cell of each address."""
    match parts:
        case [dict(only)]:
            return only
    merged: dict[Any, Any] = {}
    for part in parts:
        merged.update(part if isinstance(part, dict) else zip(*part, strict=True))
    return merged


class ListChanges(Recorder):
    """The elements appended to each list, and whether the list was emptied before."""

    def __init__(self) -> None:
        self._lists: dict[Any, list[Any]] = {}
        self._emptied: dict[Any, None] = {}
        self._cells = 0

    @property
    def rows(self) -> int:
        return self._cells + len(self._emptied)

    def put(self, address: Any, cells: Sequence[Any]) -> None:
        self._emptied[address] = None
        self._lists.pop(address, None)
        self.extend(address, cells)

    def extend(self, address: Any, cells: Sequence[Any]) -> None:
        there = self._lists.get(address)
        if there is None:
            self._lists[address] = list(cells)
        else:
            there += cells
        self._cells += len(cells)

    def take(self) -> Recorded:
        lists, emptied = self._lists, self._emptied
        self._lists, self._emptied, self._cells = {}, {}, 0

        def rows() -> Iterator[Rows]:
            if emptied:
                yield Rows(list(emptied))
            addresses = list(_repeated(lists, lists.values()))
            if addresses:
                yield Rows(addresses, cells=list(chain.from_iterable(lists.values())))

        return rows


class MapChanges(Recorder):
    """The cell of each map key that was set, None if removed; and which maps were emptied."""

    def __init__(self) -> None:
        self._maps: dict[Any, dict[Any, Any]] = {}
        self._emptied: dict[Any, None] = {}
        self._cells = 0

    @property
    def rows(self) -> int:
        return self._cells + len(self._emptied)

    def put(self, address: Any, map_key: Any, cell: Any) -> None:
        """Record a cell; None if it was removed."""
        there = self._maps.get(address)
        if there is None:
            self._maps[address] = {map_key: cell}
        else:
            there[map_key] = cell
        self._cells += 1

    def put_all(self, address: Any, cells: dict[Any, Any]) -> None:
        self._maps.setdefault(address, {}).update(cells)
        self._cells += len(cells)

    def empty(self, address: Any) -> None:
        self._emptied[address] = None
        self._maps.pop(address, None)

    def take(self) -> Recorded:
        maps, emptied = self._maps, self._emptied
        self._maps, self._emptied, self._cells = {}, {}, 0

        def rows() -> Iterator[Rows]:
            if emptied:
                yield Rows(list(emptied))
            yield from _entries(list(_repeated(maps, maps.values())), maps.values(), emptied)

        return rows


class TimerChanges(Recorder):
    """Whether each added or removed timer exists, for a queue that the store keeps itself."""

    def __init__(self, store: TableStore, spec: TableSpec) -> None:
        self._store = store
        self._spec = spec
        self._cell = store.form(spec).encode(True)
        self.timers: dict[tuple[int, Any, Any], bool] = {}

    @property
    def rows(self) -> int:
        return len(self.timers)

    def take(self) -> Recorded:
        timers, self.timers = self.timers, {}

        def rows() -> Iterator[Rows]:
            for is_there in (False, True):
                chosen = [timer for timer, there in timers.items() if there is is_there]
                if chosen:
                    moments, keys, namespaces = zip(*chosen, strict=True)
                    addresses = self._addresses(keys, namespaces)
                    cells = [self._cell] * len(moments) if is_there else None
                    yield Rows(addresses, moments, cells)

        return rows

    def _addresses(self, keys: Sequence[Any], namespaces: Sequence[Any]) -> Sequence[Any]:
        if self._spec.namespaces is None:
            return self._store.addresses(self._spec, keys, NO_NAMESPACE)
        return list(map(self._store.address, repeat(self._spec), keys, namespaces))


def _repeated(addresses: Iterable[Any], of_each: Iterable[Any]) -> Iterator[Any]:
    """Each address, repeated for each of its elements."""
    return chain.from_iterable(map(repeat, addresses, map(len, of_each)))


def _entries(
    addresses: list[Any], maps: Iterable[dict[Any, Any]], emptied: dict[Any, None]
) -> Iterator[Rows]:
    maps = list(maps)
    map_keys = list(chain.from_iterable(maps))
    cells = list(chain.from_iterable(map(dict.values, maps)))
    if has_none(cells):
        entries = list(zip(addresses, map_keys, cells, strict=True))
        removed = [(a, key) for a, key, cell in entries if cell is None and a not in emptied]
        if removed:
            yield Rows([address for address, _ in removed], [key for _, key in removed])
        kept = [entry for entry in entries if entry[2] is not None]
        addresses = [address for address, _, _ in kept]
        map_keys = [map_key for _, map_key, _ in kept]
        cells = [cell for _, _, cell in kept]
    if addresses:
        yield Rows(addresses, map_keys, cells)
