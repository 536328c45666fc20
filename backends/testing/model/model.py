"""A model of keyed state: simple dicts in memory, with time to live and timers.

It supports the same calls as the states of a backend (`Action`), and keeps what a backend must
keep: also expired entries that were not read yet, since they may be alive under another time to
live after a restore.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.backends.state.descriptors import StateVisibility, TtlUpdateType
from holdfast.backends.testing.model.subjects import Action, Subject

__all__ = ["Model", "ModelTimer"]

_Address = tuple[Any, Any]
_Cells = dict[Any, tuple[int, Any]]
"""Stamp and value, by a number in a list, by a key in a map, or by nothing."""


@dataclass(frozen=True, slots=True)
class ModelTimer:
    """A timer of one of the domains `event` and `processing`."""

    domain: str
    timestamp: int
    key: Any
    namespace: Any


class _ModelState:
    """Base of all kinds of state: cells at addresses."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.cells: dict[_Address, _Cells] = {}
        self.is_stamped = False
        self.is_declared = False
        self.now_ms = 0

    def copied(self) -> _ModelState:
        """Another one, which changes by itself."""
        other = copy.copy(self)
        other.cells = {address: dict(cells) for address, cells in self.cells.items()}
        return other

    def declare(self) -> None:
        """The job asks for the state: what was restored gets a stamp, or loses it."""
        if self.is_declared:
            return
        self.is_declared = True
        if not self.is_stamped:
            for cells in self.cells.values():
                for each, (_, value) in cells.items():
                    cells[each] = (self.now_ms, value)
        self.is_stamped = self.subject.ttl is not None

    def drop_expired(self) -> None:
        """Forget every entry past its time."""
        for address, cells in list(self.cells.items()):
            for each, (stamp, _) in list(cells.items()):
                if self._is_expired(stamp):
                    del cells[each]
            self._tidy(address)

    def living(self) -> set[_Address]:
        """The addresses that have an entry within its time."""
        return {
            address
            for address, cells in self.cells.items()
            if not all(self._is_expired(stamp) for stamp, _ in cells.values())
        }

    def clear(self, address: _Address) -> None:
        self.cells.pop(address, None)

    def read(self, address: _Address, only: Iterable[Any] | None = None) -> dict[Any, Any]:
        """What a reader sees: it removes what is expired, and may renew the rest."""
        cells = self.cells.get(address, {})
        seen = {}
        ttl = self.subject.ttl
        for each in list(cells) if only is None else [each for each in only if each in cells]:
            stamp, value = cells[each]
            if not self._is_expired(stamp):
                seen[each] = value
                if ttl and ttl.update_type is TtlUpdateType.ON_READ_AND_WRITE:
                    cells[each] = (self.now_ms, value)
                continue
            del cells[each]
            if ttl and ttl.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP:
                seen[each] = value
        self._tidy(address)
        return copy.deepcopy(seen)

    def write(self, address: _Address, entries: Mapping[Any, Any]) -> None:
        cells = self.cells.setdefault(address, {})
        for each, value in entries.items():
            cells[each] = (self.now_ms, copy.deepcopy(value))
        self._tidy(address)

    def _is_expired(self, stamp: int) -> bool:
        ttl = self.subject.ttl
        return ttl is not None and stamp + ttl.ttl_ms <= self.now_ms

    def _tidy(self, address: _Address) -> None:
        if not self.cells.get(address, True):
            del self.cells[address]


class _ModelSingle(_ModelState):
    """One value at an address."""

    def value(self, address: _Address) -> Any:
        return self.read(address).get(None)

    def update(self, address: _Address, value: Any) -> None:
        if value is None:
            self.clear(address)
        else:
            self.write(address, {None: value})

    def get_many(self, addresses: Sequence[_Address]) -> list[Any]:
        found = {address: self.value(address) for address in dict.fromkeys(addresses)}
        return [found[address] for address in addresses]

    def put_many(self, addresses: Sequence[_Address], values: Sequence[Any]) -> None:
        for address, value in zip(addresses, values, strict=True):
            self.update(address, value)

    def clear_many(self, addresses: Sequence[_Address]) -> None:
        for address in addresses:
            self.clear(address)


class _ModelReducing(_ModelSingle):
    """One value, to which others are added."""

    def get(self, address: _Address) -> Any:
        return self.value(address)

    def add(self, address: _Address, value: Any) -> None:
        self.update(address, self._added(self.value(address), value))

    def reduce_many(self, addresses: Sequence[_Address], values: Sequence[Any]) -> None:
        for address, value in zip(addresses, values, strict=True):
            self.add(address, value)

    def merge_namespaces(self, target: _Address, sources: Sequence[_Address]) -> None:
        merged = None
        for source in (target, *sources):
            found = self.value(source)
            if found is not None:
                merged = found if merged is None else self._merge(merged, found)
                self.clear(source)
        self.update(target, merged)

    def _added(self, there: Any, value: Any) -> Any:
        return value if there is None else self._merge(there, value)

    def _merge(self, first: Any, second: Any) -> Any:
        return self.subject.descriptor.reduce(first, second)  # type: ignore[attr-defined]


class _ModelAggregating(_ModelReducing):
    """The same with an accumulator."""

    add_many = _ModelReducing.reduce_many

    def get(self, address: _Address) -> Any:
        return self._result(self.value(address))

    def get_many(self, addresses: Sequence[_Address]) -> list[Any]:
        return list(map(self._result, super().get_many(addresses)))

    def _added(self, there: Any, value: Any) -> Any:
        there = self._function.create_accumulator() if there is None else there
        return self._function.add(value, there)

    def _merge(self, first: Any, second: Any) -> Any:
        return self._function.merge(first, second)

    @property
    def _function(self) -> Any:
        return self.subject.descriptor.function  # type: ignore[attr-defined]

    def _result(self, accumulator: Any) -> Any:
        return None if accumulator is None else self._function.get_result(accumulator)


class _ModelList(_ModelState):
    """Elements by ascending numbers."""

    def get(self, address: _Address) -> list[Any]:
        return list(self.read(address).values())

    def add(self, address: _Address, element: Any) -> None:
        self.add_all(address, [element])

    def add_all(self, address: _Address, elements: Sequence[Any]) -> None:
        first = max(self.cells.get(address, {0: None})) + 1
        self.write(address, dict(enumerate(elements, first)))

    def update(self, address: _Address, elements: Sequence[Any]) -> None:
        self.clear(address)
        self.write(address, dict(enumerate(elements)))

    def merge_namespaces(self, target: _Address, sources: Sequence[_Address]) -> None:
        for source in sources:
            elements = self.get(source)
            self.clear(source)
            self.add_all(target, elements)


class _ModelMap(_ModelState):
    def get(self, address: _Address, map_key: Any) -> Any:
        return self.read(address, [map_key]).get(map_key)

    def contains(self, address: _Address, map_key: Any) -> bool:
        return map_key in self.read(address, [map_key])

    def put(self, address: _Address, map_key: Any, value: Any) -> None:
        self.write(address, {map_key: value})

    def put_all(self, address: _Address, entries: Mapping[Any, Any]) -> None:
        self.write(address, entries)

    def remove(self, address: _Address, map_key: Any) -> None:
        self.cells.get(address, {}).pop(map_key, None)
        self._tidy(address)

    def items(self, address: _Address) -> dict[Any, Any]:
        return self.read(address)

    def keys(self, address: _Address) -> list[Any]:
        return list(self.read(address))

    def values(self, address: _Address) -> list[Any]:
        return list(self.read(address).values())

    def is_empty(self, address: _Address) -> bool:
        return not self.read(address)


_STATES: dict[str, type[_ModelState]] = {
    "value": _ModelSingle,
    "list": _ModelList,
    "map": _ModelMap,
    "reducing": _ModelReducing,
    "aggregating": _ModelAggregating,
}


class Model:
    """Keyed state of one operator, over all its slots."""

    def __init__(self, subjects: Mapping[str, Subject], now_ms: int) -> None:
        self._states = {name: _STATES[each.kind](each) for name, each in subjects.items()}
        self._timers: set[ModelTimer] = set()
        self.advance(now_ms)

    def advance(self, now_ms: int) -> None:
        for state in self._states.values():
            state.now_ms = now_ms

    def declare(self, name: str) -> None:
        self._states[name].declare()

    def is_declared(self, name: str) -> bool:
        """Whether it did so since the last restore."""
        return self._states[name].is_declared

    def do(self, action: Action) -> Any:
        """What the state answers, which it may change. The answer is the caller's."""
        state = self._states[action.state]
        method = getattr(state, action.verb)
        if action.is_batch:
            keys, *others = action.arguments
            return method([(key, action.namespace) for key in keys], *others)
        address = (action.key, action.namespace)
        if action.verb == "merge_namespaces":
            target, sources = action.arguments
            return method((action.key, target), [(action.key, source) for source in sources])
        return method(address, *action.arguments)

    def keys(self, name: str, namespace: Any) -> tuple[set[Any], set[Any]]:
        """The keys that a scan must show, and those that it may show."""
        state = self._states[name]
        here = {address for address in state.cells if address[1] == namespace}
        return {key for key, _ in here & state.living()}, {key for key, _ in here}

    def snapshot(self, *, cleans: bool) -> Model:
        """What a snapshot has of it now; `cleans`: without what is expired, where states say so."""
        other = self._copied()
        for state in other._states.values():
            ttl = state.subject.ttl
            if cleans and state.is_declared and ttl is not None and ttl.cleanup_in_snapshot:
                state.drop_expired()
        return other

    def restored(self, subjects: Mapping[str, Subject], now_ms: int) -> Model:
        """What a job has that starts from this snapshot with these states."""
        other = self._copied()
        for name, state in other._states.items():
            state.subject = subjects[name]
            state.is_declared = False
        other.advance(now_ms)
        return other

    def _copied(self) -> Model:
        other = copy.copy(self)
        other._states = {name: state.copied() for name, state in self._states.items()}
        other._timers = set(self._timers)
        return other

    def register(self, timer: ModelTimer) -> None:
        """Register a timer, once."""
        self._timers.add(timer)

    def delete(self, timer: ModelTimer) -> None:
        self._timers.discard(timer)

    def fire(self, domain: str, until: int, again: int) -> list[ModelTimer]:
        """The timers that are due, which go; those at even moments come back `again` later."""
        fired: list[ModelTimer] = []
        while due := [each for each in self.timers(domain) if each.timestamp <= until]:
            first = min(due, key=lambda each: each.timestamp)
            fired.append(first)
            self._timers.remove(first)
            if again and first.timestamp % 2 == 0:
                self._timers.add(replace(first, timestamp=first.timestamp + again))
        return fired

    def timers(self, domain: str) -> list[ModelTimer]:
        return [each for each in self._timers if each.domain == domain]

    def size(self) -> int:
        """How many entries and timers there are."""
        cells = (cells for state in self._states.values() for cells in state.cells.values())
        return sum(map(len, cells)) + len(self._timers)
