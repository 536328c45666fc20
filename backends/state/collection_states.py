"""States of many cells for each key and namespace: lists and maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from holdfast.backends.state.base import KeyContext, State
from holdfast.backends.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
)
from holdfast.backends.tables.contract import ListTable, MapTable, TableSpec
from holdfast.storage.errors import Invalid

__all__ = ["ListState", "MapState"]

_V = TypeVar("_V")


class ListState(State[_V]):
    """A list of elements for each key and namespace."""

    _descriptor: ListStateDescriptor
    _table: ListTable

    def get(self) -> list[_V]:
        """The elements, in a new list; empty if there are none."""
        return self._form.decode_many(self._table.get(self._address()))

    def add(self, element: _V) -> None:
        """Append an element.

        Raises:
            Invalid: the element does not fit its type; nothing has changed.
        """
        self._table.extend(self._address(), (self._encode(element),))

    def add_all(self, elements: Iterable[_V]) -> None:
        """Append elements; raises as `add` does."""
        cells = self._encode_many(list(elements))
        if cells:
            self._table.extend(self._address(), cells)

    def update(self, elements: Iterable[_V] | None) -> None:
        """Replace the list; raises as `add` does."""
        self._table.put(self._address(), self._encode_many(list(elements or ())))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of `sources` to `target`, for the current key; clear the sources."""
        for source in sources:
            self.set_current_namespace(source)
            cells = self._table.get(self._address())
            self.clear()
            self.set_current_namespace(target)
            if cells:
                self._table.extend(self._address(), cells)
        self.set_current_namespace(target)


class MapState(State[_V]):
    """A map for each key and namespace. A value may be None, which is not the same as absent."""

    _descriptor: MapStateDescriptor
    _table: MapTable

    def __init__(
        self, context: KeyContext, descriptor: StateDescriptor, spec: TableSpec, table: MapTable
    ) -> None:
        super().__init__(context, descriptor, spec, table)
        if spec.map_keys is None:
            raise AssertionError("a map has keys")
        self._canonical = spec.map_keys.canonical

    def get(self, map_key: Any) -> _V | None:
        """The value of a map key; None when it is absent or None."""
        cell = self._table.get(self._address(), self._map_key(map_key))
        return None if cell is None else self._form.decode(cell)

    def contains(self, map_key: Any) -> bool:
        """Whether the map key is there."""
        return self._table.get(self._address(), self._map_key(map_key)) is not None

    def put(self, map_key: Any, value: _V) -> None:
        """Set the value of a map key.

        Raises:
            Invalid: the map key or the value does not fit its type; nothing has changed.
        """
        self._table.put(self._address(), self._map_key(map_key), self._encode(value))

    def put_all(self, entries: Any) -> None:
        """Set many, from a dict or from pairs; raises as `put` does."""
        pairs = list(dict(entries).items())
        cells = self._encode_many([value for _, value in pairs])
        map_keys = [self._map_key(map_key) for map_key, _ in pairs]
        self._table.put_all(self._address(), zip(map_keys, cells, strict=True))

    def remove(self, map_key: Any) -> None:
        """Remove a map key, if it is there."""
        self._table.remove_entry(self._address(), self._map_key(map_key))

    def items(self) -> Iterator[tuple[Any, _V]]:
        """All map keys with their values; the map may be changed meanwhile."""
        decode = self._form.decode
        return ((map_key, decode(cell)) for map_key, cell in self._table.items(self._address()))

    def keys(self) -> Iterator[Any]:
        """All map keys."""
        return (map_key for map_key, _ in self._table.items(self._address()))

    def values(self) -> Iterator[_V]:
        """All values."""
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        """Whether there are no map keys."""
        return not self._table.items(self._address())

    def _map_key(self, map_key: Any) -> Any:
        try:
            return self._canonical(map_key)
        except Invalid as error:
            raise self._misfit("a map key", error) from None
