"""Tables by keys and values, for the clauses about the table contract.

Keys and values of a clause are converted here to addresses and cells, and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.backends.blocks.block import Block
from holdfast.backends.blocks.columns import decode_values
from holdfast.backends.tables.contract import (
    NO_NAMESPACE,
    CellForm,
    FrozenTables,
    ListTable,
    MapTable,
    Table,
    TableSpec,
    TableStore,
    ValueTable,
)

__all__ = [
    "Cells",
    "Lists",
    "Maps",
    "Row",
    "Values",
    "rows_of",
]


class Row(NamedTuple):
    """One row of a block, decoded."""

    group: int
    key: Any
    namespace: Any
    map_key: Any
    value: Any
    stamp: int | None


class Cells:
    """Base: one table by keys and values."""

    table: Table

    def __init__(self, store: TableStore, spec: TableSpec) -> None:
        self.store = store
        self.spec = spec
        self.form: CellForm = store.form(spec)

    def at(self, key: Any, namespace: Any = NO_NAMESPACE) -> Any:
        """The address of a key."""
        if self.spec.namespaces is not None:
            namespace = self.spec.namespaces.canonical(namespace)
        return self.store.address(self.spec, self.spec.keys.canonical(key), namespace)

    def cell(self, value: Any) -> Any:
        """The cell of a value; in a stamped table of a pair of milliseconds and value."""
        if self.spec.stamped:
            stamp, value = value
            return self.form.stamp(stamp, self.form.encode(value))
        return self.form.encode(value)

    def cells(self, values: Iterable[Any]) -> list[Any]:
        """The cell of each value."""
        return list(map(self.cell, values))

    def value(self, cell: Any) -> Any:
        """The value of a cell, or the pair; "absent" of None."""
        if cell is None:
            return "absent"
        if self.spec.stamped:
            stamp, cell = self.form.unstamp(cell)
            return stamp, self.form.decode(cell)
        return self.form.decode(cell)

    def remove(self, key: Any, namespace: Any = NO_NAMESPACE) -> None:
        """Remove everything at a key."""
        self.table.remove(self.at(key, namespace))

    def owners(self) -> list[tuple[Any, Any]]:
        """What `addresses` answers."""
        return list(self.table.addresses())

    def keys(self) -> list[Any]:
        """The keys that `addresses` answers, in order where they have one."""
        found = [key for key, _ in self.owners()]
        return sorted(found) if _is_ordered(found) else found

    def rows(self, frozen: FrozenTables, keep_from_ms: int | None = None) -> list[Row]:
        """Every row of the table in frozen tables."""
        return rows_of(self.spec, frozen.blocks(self.spec, keep_from_ms))

    def read(self, key: Any, namespace: Any = NO_NAMESPACE) -> Any:
        """The content of a key, in a table of any kind."""
        raise NotImplementedError

    def content(self) -> dict[Any, Any]:
        """The content of every address of the table, by key, or by key and namespace."""
        if self.spec.namespaces is None:
            return {key: self.read(key) for key, _ in self.owners()}
        return {owner: self.read(*owner) for owner in self.owners()}

    def fill(self, key: Any, value: Any, namespace: Any = NO_NAMESPACE) -> None:
        """Put a value at a key, in a table of any kind."""
        raise NotImplementedError


class Values(Cells):
    """A value table."""

    def __init__(self, store: TableStore, spec: TableSpec) -> None:
        super().__init__(store, spec)
        self.table: ValueTable = store.value_table(spec)

    def put(self, key: Any, value: Any, namespace: Any = NO_NAMESPACE) -> None:
        """Set the value of a key."""
        self.table.put(self.at(key, namespace), self.cell(value))

    def get(self, key: Any, namespace: Any = NO_NAMESPACE) -> Any:
        """The value of a key, or "absent"."""
        return self.value(self.table.get(self.at(key, namespace)))

    def put_many(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Set many values in one call."""
        addresses = [self.at(key) for key, _ in pairs]
        self.table.put_many(addresses, self.cells(value for _, value in pairs))

    fill = put

    def get_many(self, keys: Iterable[Any]) -> list[Any]:
        """The value of each key, or "absent", from one call."""
        return list(map(self.value, self.table.get_many([self.at(key) for key in keys])))

    def remove_many(self, keys: Iterable[Any]) -> None:
        """Remove many in one call."""
        self.table.remove_many([self.at(key) for key in keys])

    read = get


class Lists(Cells):
    """A list table."""

    def __init__(self, store: TableStore, spec: TableSpec) -> None:
        super().__init__(store, spec)
        self.table: ListTable = store.list_table(spec)

    def put(self, key: Any, values: Iterable[Any], namespace: Any = NO_NAMESPACE) -> None:
        """Replace the list of a key."""
        self.table.put(self.at(key, namespace), self.cells(values))

    def extend(self, key: Any, values: Iterable[Any], namespace: Any = NO_NAMESPACE) -> None:
        """Append to the list of a key."""
        self.table.extend(self.at(key, namespace), self.cells(values))

    def get(self, key: Any, namespace: Any = NO_NAMESPACE) -> list[Any]:
        """The list of a key."""
        return list(map(self.value, self.table.get(self.at(key, namespace))))

    read = get

    def fill(self, key: Any, value: Any, namespace: Any = NO_NAMESPACE) -> None:
        """Append one element."""
        self.extend(key, [value], namespace)


class Maps(Cells):
    """A map table."""

    def __init__(self, store: TableStore, spec: TableSpec) -> None:
        super().__init__(store, spec)
        self.table: MapTable = store.map_table(spec)

    def put(self, key: Any, map_key: Any, value: Any, namespace: Any = NO_NAMESPACE) -> None:
        """Set the value of a map key."""
        self.table.put(self.at(key, namespace), map_key, self.cell(value))

    def put_all(self, key: Any, pairs: Any, namespace: Any = NO_NAMESPACE) -> None:
        """Set the values of many map keys in one call."""
        pairs = pairs.items() if isinstance(pairs, dict) else pairs
        entries = [(map_key, self.cell(value)) for map_key, value in pairs]
        self.table.put_all(self.at(key, namespace), entries)

    def get(self, key: Any, map_key: Any, namespace: Any = NO_NAMESPACE) -> Any:
        """The value of a map key, or "absent"."""
        return self.value(self.table.get(self.at(key, namespace), map_key))

    def remove_entry(self, key: Any, map_key: Any, namespace: Any = NO_NAMESPACE) -> None:
        """Remove a map key."""
        self.table.remove_entry(self.at(key, namespace), map_key)

    def items(self, key: Any, namespace: Any = NO_NAMESPACE) -> list[tuple[Any, Any]]:
        """What `items` answers, in order where the map keys have one."""
        listed = self.table.items(self.at(key, namespace))
        found = [(map_key, self.value(cell)) for map_key, cell in listed]
        if _is_ordered([map_key for map_key, _ in found]):
            found.sort(key=lambda entry: entry[0])
        return found

    read = items

    def fill(self, key: Any, value: Any, namespace: Any = NO_NAMESPACE) -> None:
        """Set the value of the map key "m"."""
        self.put(key, "m", value, namespace)


def rows_of(spec: TableSpec, blocks: Iterable[Block]) -> list[Row]:
    """Every row of some blocks, in order."""
    rows: list[Row] = []
    for block in blocks:
        nothing = [None] * block.count
        columns: list[Sequence[Any]] = [
            block.group_array.tolist(),
            *(
                nothing
                if codec is None or column is None
                else list(map(codec.decode, column.to_list(block.count)))
                for codec, column in (
                    (spec.keys, block.keys),
                    (spec.namespaces, block.namespaces),
                    (spec.map_keys, block.map_keys),
                )
            ),
            decode_values(spec.values, block.values, spec.name),
            nothing if block.stamp_array is None else block.stamp_array.tolist(),
        ]
        rows.extend(map(Row._make, zip(*columns, strict=True)))
    return rows


def _is_ordered(keys: Sequence[Any]) -> bool:
    return all(type(key) in {str, int, bytes} and type(key) is type(keys[0]) for key in keys)
