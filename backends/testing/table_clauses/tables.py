"""A store of the backend under test, and its tables by keys and values.

Keys and values of a clause are converted here to addresses and cells, and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from holdfast.backends.blocks.block import Block
from holdfast.backends.blocks.columns import decode_values
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.tables.contract import (
    NO_NAMESPACE,
    CellForm,
    FrozenTables,
    StateKind,
    TableSpec,
    TableStore,
)
from holdfast.backends.testing.place import Place
from holdfast.backends.values.codec import value_codec_for

__all__ = [
    "GROUPS",
    "Cells",
    "Lists",
    "Maps",
    "Row",
    "Tables",
    "Values",
    "blocks_of",
    "rows_of",
    "tables",
]

GROUPS = 128
"""The max parallelism of the stores that are tried."""


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

    def __init__(self, store: TableStore, spec: TableSpec) -> None:
        self.store = store
        self.spec = spec
        self.table: Any = store.table(spec)
        self.form: CellForm = store.form(spec)

    @property
    def kind(self) -> str:
        """What it holds, for messages: `values`, `lists` or `maps`."""
        return f"{self.spec.kind.value}s"

    def at(self, key: Any, namespace: Any = NO_NAMESPACE) -> Any:
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

    def load(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self.table.load(block)

    def unload(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self.table.unload(block)


class Values(Cells):
    """A value table."""

    def put(self, key: Any, value: Any, namespace: Any = NO_NAMESPACE) -> None:
        self.table.put(self.at(key, namespace), self.cell(value))

    def get(self, key: Any, namespace: Any = NO_NAMESPACE) -> Any:
        """The value of a key, or "absent"."""
        return self.value(self.table.get(self.at(key, namespace)))

    def put_many(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        addresses = [self.at(key) for key, _ in pairs]
        self.table.put_many(addresses, self.cells(value for _, value in pairs))

    fill = put

    def get_many(self, keys: Iterable[Any]) -> list[Any]:
        """The value of each key, or "absent", from one call."""
        return list(map(self.value, self.table.get_many([self.at(key) for key in keys])))

    def remove_many(self, keys: Iterable[Any]) -> None:
        self.table.remove_many([self.at(key) for key in keys])

    read = get


class Lists(Cells):
    """A list table."""

    def put(self, key: Any, values: Iterable[Any], namespace: Any = NO_NAMESPACE) -> None:
        self.table.put(self.at(key, namespace), self.cells(values))

    def extend(self, key: Any, values: Iterable[Any], namespace: Any = NO_NAMESPACE) -> None:
        self.table.extend(self.at(key, namespace), self.cells(values))

    def get(self, key: Any, namespace: Any = NO_NAMESPACE) -> list[Any]:
        return list(map(self.value, self.table.get(self.at(key, namespace))))

    read = get

    def fill(self, key: Any, value: Any, namespace: Any = NO_NAMESPACE) -> None:
        """Append one element."""
        self.extend(key, [value], namespace)


class Maps(Cells):
    """A map table."""

    def put(self, key: Any, map_key: Any, value: Any, namespace: Any = NO_NAMESPACE) -> None:
        self.table.put(self.at(key, namespace), map_key, self.cell(value))

    def put_all(self, key: Any, pairs: Any, namespace: Any = NO_NAMESPACE) -> None:
        pairs = pairs.items() if isinstance(pairs, dict) else pairs
        entries = [(map_key, self.cell(value)) for map_key, value in pairs]
        self.table.put_all(self.at(key, namespace), entries)

    def get(self, key: Any, map_key: Any, namespace: Any = NO_NAMESPACE) -> Any:
        """The value of a map key, or "absent"."""
        return self.value(self.table.get(self.at(key, namespace), map_key))

    def remove_entry(self, key: Any, map_key: Any, namespace: Any = NO_NAMESPACE) -> None:
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


class Tables:
    """A store, and tables in it."""

    def __init__(self, store: TableStore) -> None:
        self.store = store

    def values(self, name: str = "values", **spec: Any) -> Values:
        """A value table; without more said, of ints by str."""
        return Values(self.store, self.spec(name, StateKind.VALUE, **spec))

    def lists(self, name: str = "lists", **spec: Any) -> Lists:
        """A list table; without more said, of ints by str."""
        return Lists(self.store, self.spec(name, StateKind.LIST, **spec))

    def maps(self, name: str = "maps", *, map_keys: Any = str, **spec: Any) -> Maps:
        """A map table; without more said, of ints or None by str, by str."""
        spec = {"values": int | None, **spec}
        return Maps(self.store, self.spec(name, StateKind.MAP, map_keys=map_keys, **spec))

    def every(self, name: str = "", **spec: Any) -> tuple[Values, Lists, Maps]:
        """A table of each kind, with names that begin so; else as the methods before."""
        return (
            self.values(f"{name} values".lstrip(), **spec),
            self.lists(f"{name} lists".lstrip(), **spec),
            self.maps(f"{name} maps".lstrip(), **spec),
        )

    @staticmethod
    def spec(
        name: str,
        kind: StateKind,
        *,
        keys: Any = str,
        namespaces: Any = NO_NAMESPACE,
        map_keys: Any = NO_NAMESPACE,
        values: Any = int,
        stamped: bool = False,
    ) -> TableSpec:
        """A spec by types; NO_NAMESPACE stands for the parts that there are not."""

        def codec(annotation: Any) -> KeyCodec[Any] | None:
            return None if annotation is NO_NAMESPACE else key_codec_for(annotation)

        known = key_codec_for(keys)
        return TableSpec(
            name=name,
            kind=kind,
            key_type=lambda: known,
            namespaces=codec(namespaces),
            map_keys=codec(map_keys),
            values=value_codec_for(values),
            stamped=stamped,
        )

    @contextmanager
    def frozen(self) -> Iterator[FrozenTables]:
        """The tables as they are now, released in the end."""
        frozen = self.store.freeze()
        try:
            yield frozen
        finally:
            frozen.release()


@contextmanager
def tables(place: Place) -> Iterator[Tables]:
    """A store of the backend under test, with all key groups, closed in the end."""
    store = place.open().open_store("tables", KeyGroupRange(0, GROUPS - 1), GROUPS)
    try:
        yield Tables(store)
    finally:
        store.close()


def blocks_of(cells: Cells) -> list[Block]:
    """The blocks of a table as it is now."""
    with Tables(cells.store).frozen() as frozen:
        return list(frozen.blocks(cells.spec, None))


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
