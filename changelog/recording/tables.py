"""Tables that record what changes in them, over the tables of any backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from typing import Any, Generic, TypeVar

from holdfast.backends.blocks.block import Block
from holdfast.backends.tables.contract import ListTable, MapTable, Table, ValueTable
from holdfast.backends.tables.timer_queues import Timer, TimerQueue
from holdfast.backends.values.normalizing import has_none
from holdfast.changelog.recording.recorders import (
    ListChanges,
    MapChanges,
    Recorded,
    Recorder,
    TimerChanges,
    ValueChanges,
)

__all__ = [
    "LoggedListTable",
    "LoggedMapTable",
    "LoggedTable",
    "LoggedTimerQueue",
    "LoggedValueTable",
    "WrittenThroughTable",
]

_T = TypeVar("_T", bound=Table)
_ABSENT: Any = object()
_LEAST_APPLIED = 10_000
"""Rows that `apply_some` writes at least, so that small remainders do not linger."""
_MANY = 1024
"""The size of batch reads from which on a sample tells the hit rate."""
_SAMPLE = 64
_WEIGHT = 0.5
"""Of the newest sample in the moving average."""
_TOO_FEW, _ENOUGH = 0.4, 0.6
"""Hit rates at which memory stops and starts to run ahead; apart, so that it does not flap."""
_SEALS_BETWEEN = 8
"""Seals from one measurement of the hit rate to the next, while memory is not ahead."""


class LoggedTable(Table, Generic[_T]):
    """Common part of all kinds. Loading records nothing: loaded rows are in a log or a base."""

    changes: Recorder

    def __init__(self, inner: _T) -> None:
        self.inner = inner

    def addresses(self) -> Iterator[tuple[Any, Any]]:
        return self.inner.addresses()

    def sweep(self, limit: int) -> Iterable[Any]:
        return self.inner.sweep(limit)

    def load(self, block: Block) -> None:
        self.inner.load(block)

    def unload(self, block: Block) -> None:
        self.inner.unload(block)

    def take(self) -> Recorded:
        """Take the changes since the last call."""
        return self.changes.take()

    def apply(self) -> None:
        """Write all changes to the inner table."""

    def apply_some(self, share: float) -> None:
        """Write a share of the changes taken last to the inner table."""


class LoggedValueTable(LoggedTable[ValueTable], ValueTable):
    """Values: recent writes are in memory, for the next reads and for the log.

    They are written to the inner table later: before it is iterated, or in steps after a seal. So a
    value that changes often is written there once per seal, and sealing copies nothing.

    If batches rarely find what they read in memory, looking there is a waste: then writes go to the
    inner table at once (`_is_ahead` is False). Every few seals the hit rate is measured again.
    """

    changes: ValueChanges

    def __init__(self, inner: ValueTable) -> None:
        super().__init__(inner)
        self.changes = ValueChanges()
        self._sealed: dict[Any, Any] = {}
        """Sealed writes, looked up after `hot` and before the inner table, which has the first of
        them already. Kept once all are written: recent keys are likely read again."""
        # The sealed writes that the inner table lacks, consumed in steps.
        self._left: tuple[Iterator[Any], Iterator[Any]] = iter(()), iter(())
        self._is_ahead = True
        """Whether memory may have writes that the inner table lacks."""
        self._hits = 1.0
        """The recent share of batch reads that memory could answer."""
        self._seals_behind = 0
        """Seals since memory is not ahead."""

    def get(self, address: Any) -> Any:
        if not self._is_ahead:
            return self.inner.get(address)
        cell = self.changes.hot.get(address, _ABSENT)
        if cell is _ABSENT:
            cell = self._sealed.get(address, _ABSENT)
        return self.inner.get(address) if cell is _ABSENT else cell

    def put(self, address: Any, cell: Any) -> None:
        if not self._is_ahead:
            self.inner.put(address, cell)
        self.changes.hot[address] = cell

    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        if len(addresses) >= _MANY and self._is_remembered:
            self._choose(addresses)
        hot, sealed = self.changes.hot, self._sealed
        if not self._is_ahead or (not hot and not sealed):
            return self.inner.get_many(addresses)
        found = list(map(hot.get, addresses, map(sealed.get, addresses)))
        if has_none(found):
            missing = [
                place
                for place, cell in enumerate(found)
                if cell is None and addresses[place] not in hot and addresses[place] not in sealed
            ]
            there = self.inner.get_many([addresses[place] for place in missing])
            for place, cell in zip(missing, there, strict=True):
                found[place] = cell
        return found

    def put_many(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        if not self._is_ahead:
            self.inner.put_many(addresses, cells)
        if self._is_remembered:
            self.changes.hot.update(zip(addresses, cells, strict=True))
        else:
            self.changes.note(addresses, cells)

    def remove(self, address: Any) -> None:
        if not self._is_ahead:
            self.inner.remove(address)
        self.changes.hot[address] = None

    def remove_many(self, addresses: Sequence[Any]) -> None:
        if not self._is_ahead:
            self.inner.remove_many(addresses)
        self.changes.hot.update(dict.fromkeys(addresses))

    def addresses(self) -> Iterator[tuple[Any, Any]]:
        self.apply()
        return super().addresses()

    def sweep(self, limit: int) -> Iterable[Any]:
        self.apply()
        return super().sweep(limit)

    def load(self, block: Block) -> None:
        self.apply()
        super().load(block)

    def unload(self, block: Block) -> None:
        self.apply()
        super().unload(block)

    def take(self) -> Recorded:
        if self._is_ahead:
            self.apply_some(1.0)
            self._put_below()
        else:
            self._seals_behind += 1
        return super().take()

    def apply(self) -> None:
        if self._is_ahead:
            # First what was sealed, then what is newer: the inner table gets them in their order.
            self.apply_some(1.0)
            self._put_below()
            self.apply_some(1.0)
            self._sealed = {}  # the caller may change the inner table, which this would hide

    def apply_some(self, share: float) -> None:
        rows = max(round(len(self._sealed) * share), _LEAST_APPLIED)
        addresses, cells = (list(islice(left, rows)) for left in self._left)
        if has_none(cells):
            self.inner.remove_many(list(compress(addresses, [cell is None for cell in cells])))
            kept = [cell is not None for cell in cells]
            addresses, cells = list(compress(addresses, kept)), list(compress(cells, kept))
        if addresses:
            self.inner.put_many(addresses, cells)

    @property
    def _is_remembered(self) -> bool:
        """Whether writes go to `hot`: when memory is ahead, and while the hit rate is measured."""
        return self._is_ahead or self._seals_behind % _SEALS_BETWEEN == 0

    def _choose(self, addresses: Sequence[Any]) -> None:
        """Decide from a sample of reads whether memory runs ahead of the inner table."""
        sample = addresses[:: max(1, len(addresses) // _SAMPLE)]
        hot, sealed = self.changes.hot, self._sealed
        hits = sum(address in hot or address in sealed for address in sample) / len(sample)
        self._hits += _WEIGHT * (hits - self._hits)
        if self._is_ahead and self._hits < _TOO_FEW:
            self.apply()
            self._is_ahead, self._seals_behind = False, 1
        elif not self._is_ahead and self._hits > _ENOUGH:
            self._is_ahead = True

    def _put_below(self) -> None:
        """Make the hot writes the sealed ones, which do not change any more."""
        self._sealed = sealed = self.changes.put_aside()
        self._left = iter(sealed), iter(sealed.values())


class WrittenThroughTable(LoggedTable[ValueTable], ValueTable):
    """Values that are written to the inner table at once.

    For values with a time to live, whose sweeps iterate the inner table all the time; and for
    tables in memory, which have a faster direct path.
    """

    changes: ValueChanges

    def __init__(self, inner: ValueTable) -> None:
        super().__init__(inner)
        self.changes = ValueChanges()
        self.direct = inner.direct
        self.write_mirror = self.changes

    def get(self, address: Any) -> Any:
        return self.inner.get(address)

    def put(self, address: Any, cell: Any) -> None:
        self.inner.put(address, cell)
        self.changes.hot[address] = cell

    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        return self.inner.get_many(addresses)

    def put_many(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        self.inner.put_many(addresses, cells)
        self.changes.note(addresses, cells)

    def remove(self, address: Any) -> None:
        self.inner.remove(address)
        self.changes.hot[address] = None

    def remove_many(self, addresses: Sequence[Any]) -> None:
        self.inner.remove_many(addresses)
        self.changes.hot.update(dict.fromkeys(addresses))


class LoggedListTable(LoggedTable[ListTable], ListTable):
    """Lists: appended elements are logged, not the list."""

    changes: ListChanges

    def __init__(self, inner: ListTable) -> None:
        super().__init__(inner)
        self.changes = ListChanges()

    def get(self, address: Any) -> list[Any]:
        return self.inner.get(address)

    def put(self, address: Any, cells: Sequence[Any]) -> None:
        self.inner.put(address, cells)
        self.changes.put(address, cells)

    def extend(self, address: Any, cells: Sequence[Any]) -> None:
        self.inner.extend(address, cells)
        self.changes.extend(address, cells)

    def remove(self, address: Any) -> None:
        self.inner.remove(address)
        self.changes.put(address, ())


class LoggedMapTable(LoggedTable[MapTable], MapTable):
    """Maps: entries are logged one by one."""

    changes: MapChanges

    def __init__(self, inner: MapTable) -> None:
        super().__init__(inner)
        self.changes = MapChanges()

    def get(self, address: Any, map_key: Any) -> Any:
        return self.inner.get(address, map_key)

    def put(self, address: Any, map_key: Any, cell: Any) -> None:
        self.inner.put(address, map_key, cell)
        self.changes.put(address, map_key, cell)

    def put_all(self, address: Any, cells: Iterable[tuple[Any, Any]]) -> None:
        added = dict(cells)
        self.inner.put_all(address, added.items())
        self.changes.put_all(address, added)

    def remove_entry(self, address: Any, map_key: Any) -> None:
        self.inner.remove_entry(address, map_key)
        self.changes.put(address, map_key, None)

    def items(self, address: Any) -> list[tuple[Any, Any]]:
        return self.inner.items(address)

    def remove(self, address: Any) -> None:
        self.inner.remove(address)
        self.changes.empty(address)


class LoggedTimerQueue(TimerQueue):
    """Timers in a queue that the inner store implements itself."""

    def __init__(self, inner: TimerQueue, changes: TimerChanges) -> None:
        self._inner = inner
        self.changes = changes

    def add(self, moment: int, key: Any, namespace: Any) -> None:
        self._inner.add(moment, key, namespace)
        self.changes.timers[moment, key, namespace] = True

    def remove(self, moment: int, key: Any, namespace: Any) -> None:
        self._inner.remove(moment, key, namespace)
        self.changes.timers[moment, key, namespace] = False

    def first_moment(self) -> int | None:
        return self._inner.first_moment()

    def due(self, until: int) -> Iterator[Timer]:
        for timer in self._inner.due(until):
            self.changes.timers[timer.timestamp, timer.key, timer.namespace] = False
            yield timer

    def load(self, block: Block) -> None:
        self._inner.load(block)

    def take(self) -> Recorded:
        return self.changes.take()
