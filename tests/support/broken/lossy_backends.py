"""Backends that are broken in one way each: what the state machine must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from holdfast.backends import KeyGroupRange, StateBackend, load_backend
from holdfast.backends.blocks.block import Block
from holdfast.backends.tables.contract import (
    FrozenTables,
    ListTable,
    Rows,
    Table,
    TableSpec,
    TableStore,
    ValueTable,
)

__all__ = ["LOSSES", "LossyBackend"]


class _Store(TableStore):
    """All of another store."""

    def __init__(self, inner: TableStore, key_groups: KeyGroupRange) -> None:
        self.inner = inner
        self.key_groups = key_groups
        self._inner: dict[str, Table] = {}
        self._tables: dict[str, Table] = {}

    def form(self, spec: TableSpec) -> Any:
        return self.inner.form(spec)

    def address(self, spec: TableSpec, key: Any, namespace: Any) -> Any:
        return self.inner.address(spec, key, namespace)

    def addresses(self, spec: TableSpec, keys: Sequence[Any], namespace: Any) -> Sequence[Any]:
        return self.inner.addresses(spec, keys, namespace)

    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        return self.inner.blocks(spec, rows)

    def table(self, spec: TableSpec) -> Table:
        inner = self.inner.table(spec)
        if self._inner.get(spec.name) is not inner:  # it is asked for more than once
            self._inner[spec.name] = inner
            self._tables[spec.name] = self.altered(spec, inner)
        return self._tables[spec.name]

    def drop_table(self, spec: TableSpec) -> None:
        self.inner.drop_table(spec)

    def freeze(self) -> FrozenTables:
        return self.inner.freeze()

    def settle(self, stop: Callable[[], bool]) -> None:
        self.inner.settle(stop)

    def close(self) -> None:
        self.inner.close()

    def altered(self, spec: TableSpec, table: Any) -> Any:
        """The table as this store has it; tables are made anew for each store."""
        return table


class _Loading(_Store):
    """Changes blocks while they are loaded."""

    def altered(self, spec: TableSpec, table: Any) -> Any:
        load = table.load
        table.load = lambda block: load(self.loaded(spec, block))
        return table

    def loaded(self, spec: TableSpec, block: Block) -> Block:
        raise NotImplementedError


class _StampsForgotten(_Loading):
    """What is restored lives as if it had been written a moment before the end of time."""

    def loaded(self, spec: TableSpec, block: Block) -> Block:
        if block.stamps is None:
            return block
        stamps = np.full(block.count, 2**62, np.int64).tobytes()
        return msgspec.structs.replace(block, stamps=stamps)


class _RowsReversed(_Store):
    """Lists come back from behind."""

    def altered(self, spec: TableSpec, table: Any) -> Any:
        if isinstance(table, ListTable):
            load = table.load

            def load_reversed(block: Block) -> None:
                for row in reversed(range(block.count)):
                    load(block.rows(row, row + 1))

            table.load = load_reversed  # type: ignore[method-assign]
        return table


class _LastRowLost(_Loading):
    """The last row of a block is not loaded, if there are many."""

    def loaded(self, spec: TableSpec, block: Block) -> Block:
        return block.rows(0, block.count - 1) if block.count > 3 else block


class _TimersLost(_Loading):
    """Timers are loaded only by a slot that had all key groups."""

    def loaded(self, spec: TableSpec, block: Block) -> Block:
        lost = spec.name.startswith("_timers") and self.key_groups.first > 0
        return block.rows(0, 0) if lost else block


class _LiveSnapshot(_Store):
    """What is frozen is read as it is when it is written."""

    def freeze(self) -> FrozenTables:
        return _Late(self.inner)


class _Late(FrozenTables):
    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._frozen: FrozenTables | None = None

    def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
        if self._frozen is None:
            self._frozen = self._store.freeze()
        return self._frozen.blocks(spec, keep_from_ms)

    def release(self) -> None:
        if self._frozen is not None:
            self._frozen.release()


class _EverythingKept(_Store):
    """Entries past their time are in snapshots, though they should be left out."""

    def freeze(self) -> FrozenTables:
        return _Unfiltered(self.inner.freeze())


class _Unfiltered(FrozenTables):
    def __init__(self, inner: FrozenTables) -> None:
        self._inner = inner

    def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
        return self._inner.blocks(spec, None)

    def release(self) -> None:
        self._inner.release()


class _RemovalLost(_Store):
    """What is removed while a snapshot is written comes back."""

    def altered(self, spec: TableSpec, table: Any) -> Any:
        remove = table.remove

        def remove_later(address: Any) -> None:
            if not getattr(self, "has_frozen", False):
                remove(address)

        table.remove = remove_later
        return table

    def freeze(self) -> FrozenTables:
        self.has_frozen = True
        return self.inner.freeze()


class _AddressesTwice(_Store):
    """A scan shows what was written since the last snapshot twice."""

    def altered(self, spec: TableSpec, table: Any) -> Any:
        addresses = table.addresses
        table.addresses = lambda: [*(found := list(addresses())), *found[1:2]]
        return table


class _NamespaceIgnored(_Store):
    """A batch takes the namespace of the batch before."""

    def addresses(self, spec: TableSpec, keys: Sequence[Any], namespace: Any) -> Sequence[Any]:
        before = self.__dict__.setdefault("namespaces", {})
        used = before.get(spec.name, namespace)
        before[spec.name] = namespace
        return self.inner.addresses(spec, keys, used)


class _FirstCounts(_Store):
    """Of several values for one key in a batch the first counts."""

    def altered(self, spec: TableSpec, table: Any) -> Any:
        if isinstance(table, ValueTable):
            put_many = table.put_many
            table.put_many = lambda addresses, cells: put_many(  # type: ignore[method-assign]
                *_reversed(addresses, cells)
            )
        return table


def _reversed(*columns: Iterable[Any]) -> list[list[Any]]:
    return [list(column)[::-1] for column in columns]


LOSSES: dict[str, Callable[[TableStore, KeyGroupRange], TableStore]] = {
    "time to live is forgotten by a restore": _StampsForgotten,
    "lists are restored from behind": _RowsReversed,
    "a row is lost by a restore": _LastRowLost,
    "timers are lost by rescaling": _TimersLost,
    "a snapshot sees what came after it": _LiveSnapshot,
    "a snapshot keeps what is past its time": _EverythingKept,
    "what is removed during a snapshot comes back": _RemovalLost,
    "a scan shows a key twice": _AddressesTwice,
    "a batch goes to another namespace": _NamespaceIgnored,
    "the first of several values counts": _FirstCounts,
}


@dataclass(frozen=True)
class LossyBackend(StateBackend):
    """The hashmap backend with one of the losses."""

    loss: str

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        inner = load_backend("hashmap").open_store(uid, key_groups, max_parallelism)
        return LOSSES[self.loss](inner, key_groups)
