"""The types of operator state: lists of elements and broadcast maps, with no key.

Values that a state returns belong to the caller: changing one does not change state; put it back to
do so. All methods must be called by the thread that opened the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from holdfast.backends.operator_state.forms import OperatorForm

__all__ = ["BroadcastState", "OperatorListState", "ReadOnlyBroadcastState"]

_K = TypeVar("_K")
_V = TypeVar("_V")


class _OperatorState:
    """Base: the cells of a state in one slot, and the check of the calling thread."""

    def __init__(self, form: OperatorForm, cells: Any, check: Callable[[], None]) -> None:
        self._form = form
        self._cells = cells
        self._check = check

    @property
    def name(self) -> str:
        """The name in the descriptor."""
        return self._form.name


class OperatorListState(_OperatorState, Generic[_V]):
    """The elements of a list that are in one slot.

    For list state a slot restores its own elements, or its part of all of them if the parallelism
    has changed. For union list state it restores the elements of all slots: select the slot's own
    and `update` the state with them, or each restart multiplies them by the number of slots.
    """

    _cells: list[Any]

    def get(self) -> list[_V]:
        """The elements, in a list of the caller's own; empty when there are none."""
        self._check()
        return self._form.listed(self._cells)

    def add(self, element: _V) -> None:
        """Append an element.

        Raises:
            Invalid: the element does not fit its type; nothing has changed.
        """
        self._check()
        self._cells.append(self._form.cell(element))

    def add_all(self, elements: Iterable[_V]) -> None:
        """Append elements; raises as `add` does."""
        self._check()
        self._cells.extend(self._form.cells(list(elements)))

    def update(self, elements: Iterable[_V] | None) -> None:
        """Replace the elements; raises as `add` does."""
        self._check()
        self._cells[:] = self._form.cells(list(elements or ()))

    def clear(self) -> None:
        """Remove all elements."""
        self._check()
        self._cells.clear()


class ReadOnlyBroadcastState(_OperatorState, Generic[_K, _V]):
    """Read-only view of a broadcast map, for the side that is not broadcast.

    A value may be None, which is not the same as absent.
    """

    _cells: dict[Any, Any]

    def get(self, map_key: _K) -> _V | None:
        """The value of a map key; None when it is absent or None."""
        self._check()
        canonical = self._form.map_key(map_key)
        if canonical not in self._cells:
            return None
        value: _V | None = self._form.value(self._cells[canonical])
        return value

    def contains(self, map_key: _K) -> bool:
        """Whether the map key is there."""
        self._check()
        return self._form.map_key(map_key) in self._cells

    def items(self) -> Iterator[tuple[_K, _V]]:
        """All map keys with their values; the map may be changed meanwhile."""
        return zip(self.keys(), self.values(), strict=True)

    def keys(self) -> Iterator[_K]:
        """All map keys; the map may be changed meanwhile."""
        self._check()
        return iter(list(self._cells))

    def values(self) -> Iterator[_V]:
        """All values; the map may be changed meanwhile."""
        self._check()
        return iter(self._form.listed(list(self._cells.values())))

    def is_empty(self) -> bool:
        """Whether there are no map keys."""
        self._check()
        return not self._cells


class BroadcastState(ReadOnlyBroadcastState[_K, _V]):
    """A map of which every slot has a copy, for the side that is broadcast.

    The copies are the same because every slot sees the same broadcast elements in the same order
    and does the same with each; a change that depends on the slot would make them differ.
    """

    @property
    def read_only(self) -> ReadOnlyBroadcastState[_K, _V]:
        """The same map, without methods that change it."""
        return ReadOnlyBroadcastState(self._form, self._cells, self._check)

    def put(self, map_key: _K, value: _V) -> None:
        """Set the value of a map key.

        Raises:
            Invalid: the map key or the value does not fit its type; nothing has changed.
        """
        self._check()
        self._cells[self._form.map_key(map_key)] = self._form.cell(value)

    def put_all(self, entries: Mapping[_K, _V] | Iterable[tuple[_K, _V]]) -> None:
        """Set many, from a dict or from pairs; raises as `put` does."""
        self._check()
        pairs = dict(entries)
        cells = self._form.cells(list(pairs.values()))
        map_keys = list(map(self._form.map_key, pairs))
        self._cells.update(zip(map_keys, cells, strict=True))

    def remove(self, map_key: _K) -> None:
        """Remove a map key, if it is there."""
        self._check()
        self._cells.pop(self._form.map_key(map_key), None)

    def clear(self) -> None:
        """Remove all map keys."""
        self._check()
        self._cells.clear()
