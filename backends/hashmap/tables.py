"""Tables of Python objects in dicts: the state of the hashmap backend.

Values of immutable types are kept as objects; values of other types as their bytes. So an object
that was passed in or handed out cannot change state, or a snapshot that is being written, and the
garbage collector does not have to walk millions of containers. Lists and maps of state are Python
lists and dicts that only the table holds.

The address of state without namespaces is the key, of other state the pair of key and namespace.

Flink keeps objects, and copies them on write while a snapshot runs. Bytes need no such protection,
and all elements are checked when they are written. The price is that each read of such a value
decodes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from typing import Any, ClassVar

from holdfast.backends.blocks.block import Block
from holdfast.backends.hashmap.blocks import NULL, blocks_of, blocks_of_rows, rows_of
from holdfast.backends.hashmap.layered import LayeredDict
from holdfast.backends.tables.contract import (
    NO_NAMESPACE,
    CellForm,
    FrozenTables,
    ListTable,
    MapTable,
    Rows,
    StateKind,
    Table,
    TableSpec,
    TableStore,
    ValueTable,
)
from holdfast.backends.tables.metrics import StateMetrics

__all__ = [
    "ObjectListTable",
    "ObjectMapTable",
    "ObjectTable",
    "ObjectTableStore",
    "ObjectValueTable",
]

_EXACT: dict[str, type] = {"int": int, "float": float, "bool": bool, "bytes": bytes, "str": str}


class ObjectTable(Table):
    """Base of tables of all kinds: one layered dict."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.entries = LayeredDict()
        self._round: Iterator[Any] = iter(())

    def remove(self, address: Any) -> None:
        self.entries.remove(address)

    def addresses(self) -> Iterator[tuple[Any, Any]]:
        found = self.entries.addresses()
        if self.spec.namespaces is None:
            return zip(found, repeat(NO_NAMESPACE), strict=False)
        return iter(found)

    def sweep(self, limit: int) -> Iterable[Any]:
        batch = list(islice(self._round, limit))
        if len(batch) < limit:
            self._round = iter(self.entries.addresses())
        return batch

    def unload(self, block: Block) -> None:
        for address in rows_of(self.spec, block).addresses:
            self.entries.remove(address)


class ObjectValueTable(ObjectTable, ValueTable):
    """A dict of cells."""

    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec)
        self.direct = self.entries

    def get(self, address: Any) -> Any:
        return self.entries.get(address)

    def put(self, address: Any, cell: Any) -> None:
        self.entries.hot[address] = cell

    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        return self.entries.get_many(addresses)

    def put_many(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        self.entries.put_many(zip(addresses, cells, strict=True))

    def remove_many(self, addresses: Sequence[Any]) -> None:
        for address in addresses:
            self.entries.remove(address)

    def load(self, block: Block) -> None:
        rows = rows_of(self.spec, block)
        self.entries.put_many(zip(rows.addresses, rows.cells or (), strict=True))


class ObjectListTable(ObjectTable, ListTable):
    """A dict of lists of cells."""

    def get(self, address: Any) -> list[Any]:
        return list(self.entries.get(address) or ())

    def put(self, address: Any, cells: Sequence[Any]) -> None:
        if cells:
            self.entries.put(address, list(cells))
        else:
            self.entries.remove(address)

    def extend(self, address: Any, cells: Sequence[Any]) -> None:
        there = self.entries.own(address, list.copy)
        if there is None:
            self.put(address, cells)
        else:
            there.extend(cells)

    def load(self, block: Block) -> None:
        rows = rows_of(self.spec, block)
        for address, cell in zip(rows.addresses, rows.cells or (), strict=True):
            self.extend(address, (cell,))


class ObjectMapTable(ObjectTable, MapTable):
    """A dict of dicts of cells."""

    def get(self, address: Any, map_key: Any) -> Any:
        there = self.entries.get(address)
        return None if there is None else there.get(map_key)

    def put(self, address: Any, map_key: Any, cell: Any) -> None:
        there = self.entries.own(address, dict.copy)
        if there is None:
            self.entries.put(address, {map_key: cell})
        else:
            there[map_key] = cell

    def put_all(self, address: Any, cells: Iterable[tuple[Any, Any]]) -> None:
        added = dict(cells)
        if not added:
            return
        there = self.entries.own(address, dict.copy)
        if there is None:
            self.entries.put(address, added)
        else:
            there.update(added)

    def remove_entry(self, address: Any, map_key: Any) -> None:
        there = self.entries.own(address, dict.copy)
        if there is not None and there.pop(map_key, None) is not None and not there:
            self.entries.remove(address)

    def items(self, address: Any) -> list[tuple[Any, Any]]:
        return list((self.entries.get(address) or {}).items())

    def load(self, block: Block) -> None:
        rows = rows_of(self.spec, block)
        for address, map_key, cell in zip(
            rows.addresses, rows.map_keys or (), rows.cells or (), strict=True
        ):
            self.put(address, map_key, cell)

    def unload(self, block: Block) -> None:
        rows = rows_of(self.spec, block)
        if rows.map_keys is None:
            super().unload(block)
            return
        for address, map_key in zip(rows.addresses, rows.map_keys, strict=True):
            self.remove_entry(address, map_key)


class ObjectTableStore(TableStore):
    """All tables of one operator in one slot, in this process's memory."""

    kinds: ClassVar[Mapping[StateKind, type[ObjectTable]]] = {
        StateKind.VALUE: ObjectValueTable,
        StateKind.LIST: ObjectListTable,
        StateKind.MAP: ObjectMapTable,
    }
    """The table of each kind of state."""

    def __init__(self, max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._tables: dict[str, ObjectTable] = {}

    def form(self, spec: TableSpec) -> CellForm:
        codec = spec.values
        if not codec.is_immutable:
            return CellForm(
                encode=codec.encode,
                decode=codec.decode,
                encode_many=codec.encode_many,
                decode_many=codec.decode_many,
                exact=None,
                stamp=_stamp,
                unstamp=_same,
            )
        is_map = spec.kind is StateKind.MAP
        return CellForm(
            encode=partial(_checked, codec.check) if is_map else codec.check,
            decode=_not_null if is_map else _same,
            encode_many=partial(_all_checked, codec.check_many) if is_map else codec.check_many,
            decode_many=_all_not_null if is_map else _same,
            exact=None if is_map or spec.stamped else _EXACT.get(codec.describe()["type"]),
            stamp=_stamp,
            unstamp=_same,
        )

    def address(self, spec: TableSpec, key: Any, namespace: Any) -> Any:
        return key if spec.namespaces is None else (key, namespace)

    def addresses(self, spec: TableSpec, keys: Sequence[Any], namespace: Any) -> Sequence[Any]:
        return keys if spec.namespaces is None else list(zip(keys, repeat(namespace), strict=False))

    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        return blocks_of_rows(spec, rows, max_parallelism=self._max_parallelism)

    def table(self, spec: TableSpec) -> Table:
        return self._tables.setdefault(spec.name, self.kinds[spec.kind](spec))

    def drop_table(self, spec: TableSpec) -> None:
        self._tables.pop(spec.name, None)

    def freeze(self) -> FrozenTables:
        return _FrozenObjects(self._tables, self._max_parallelism)

    def settle(self, stop: Callable[[], bool]) -> None:
        for table in list(self._tables.values()):
            table.entries.fold(stop)

    def metrics(self) -> StateMetrics:
        return StateMetrics(
            states={
                name: {"entries": float(len(table.entries))} for name, table in self._tables.items()
            }
        )

    def close(self) -> None:
        self._tables.clear()


class _FrozenObjects(FrozenTables):
    def __init__(self, tables: dict[str, ObjectTable], max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._views = {name: table.entries.freeze() for name, table in tables.items()}

    def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
        return blocks_of(
            self._views[spec.name],
            spec,
            max_parallelism=self._max_parallelism,
            keep_from_ms=keep_from_ms,
        )

    def release(self) -> None:
        for view in self._views.values():
            view.release()


def _same(value: Any) -> Any:
    return value


def _not_null(cell: Any) -> Any:
    return None if cell is NULL else cell


def _all_not_null(cells: Sequence[Any]) -> list[Any]:
    return list(map(_not_null, cells))


def _checked(check: Callable[[Any], Any], value: Any) -> Any:
    checked = check(value)
    return NULL if checked is None else checked


def _all_checked(check_many: Callable[[Any], list[Any]], values: Sequence[Any]) -> list[Any]:
    return [NULL if value is None else value for value in check_many(values)]


def _stamp(milliseconds: int, cell: Any) -> tuple[int, Any]:
    return milliseconds, cell
