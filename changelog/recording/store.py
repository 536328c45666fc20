"""A store whose tables record what changes in them, over the store of any backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.backends.blocks.block import Block
from holdfast.backends.tables.contract import (
    CellForm,
    FrozenTables,
    ListTable,
    MapTable,
    Rows,
    Table,
    TableFiles,
    TableSpec,
    TableStore,
    ValueTable,
)
from holdfast.backends.tables.metrics import StateMetrics
from holdfast.backends.tables.timer_queues import TimerQueue
from holdfast.changelog.recording.recorders import Recorded, TimerChanges
from holdfast.changelog.recording.tables import (
    LoggedListTable,
    LoggedMapTable,
    LoggedTable,
    LoggedTimerQueue,
    LoggedValueTable,
    WrittenThroughTable,
)

__all__ = ["LoggedStore", "TakenChanges"]


@dataclass(frozen=True, slots=True)
class TakenChanges:
    """The changes taken from one table."""

    spec: TableSpec
    recorded: Recorded
    rows: int
    """The number of changed rows, about."""


class LoggedStore(TableStore):
    """The tables of `inner` with recorders. `inner` has all changes only after `apply`."""

    def __init__(self, inner: TableStore) -> None:
        self.inner = inner
        self._tables: dict[str, tuple[TableSpec, LoggedTable[Any]]] = {}
        self._queues: dict[str, tuple[TableSpec, LoggedTimerQueue]] = {}

    @property
    def rows(self) -> int:
        """The number of changed rows that were not taken yet, about."""
        return sum(each.changes.rows for _, each in self._recording())

    def rows_by_table(self) -> Iterator[tuple[str, int]]:
        """The same by table."""
        for spec, each in self._recording():
            yield spec.name, each.changes.rows

    def take(self) -> list[TakenChanges]:
        """Take the changes since the last call, of each table that has some."""
        return [
            TakenChanges(spec, each.take(), rows)
            for spec, each in self._recording()
            if (rows := each.changes.rows)
        ]

    def apply(self) -> None:
        """Write all changes to the inner tables."""
        for _, table in self._tables.values():
            table.apply()

    def apply_some(self, share: float) -> None:
        """Write a share of the changes taken last to the inner tables."""
        for _, table in self._tables.values():
            table.apply_some(share)

    @property
    def files(self) -> TableFiles | None:  # type: ignore[override]
        """The files of the inner store. Call `apply` before freezing them."""
        return self.inner.files

    def form(self, spec: TableSpec) -> CellForm:
        return self.inner.form(spec)

    def address(self, spec: TableSpec, key: Any, namespace: Any) -> Any:
        return self.inner.address(spec, key, namespace)

    def addresses(self, spec: TableSpec, keys: Sequence[Any], namespace: Any) -> Sequence[Any]:
        return self.inner.addresses(spec, keys, namespace)

    def order(self, addresses: Sequence[Any]) -> npt.NDArray[np.uint64] | None:
        return self.inner.order(addresses)

    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        return self.inner.blocks(spec, rows)

    def table(self, spec: TableSpec) -> Table:
        inner = self.inner.table(spec)
        if spec.name not in self._tables:
            self._tables[spec.name] = spec, _logged(spec, inner)
        return self._tables[spec.name][1]

    def timer_queue(self, spec: TableSpec) -> TimerQueue | None:
        inner = self.inner.timer_queue(spec)
        if inner is None:
            return None
        if spec.name not in self._queues:
            changes = TimerChanges(self.inner, spec)
            self._queues[spec.name] = spec, LoggedTimerQueue(inner, changes)
        return self._queues[spec.name][1]

    def drop_table(self, spec: TableSpec) -> None:
        self._tables.pop(spec.name, None)
        self._queues.pop(spec.name, None)
        self.inner.drop_table(spec)

    def freeze(self) -> FrozenTables:
        self.apply()
        return self.inner.freeze()

    def settle(self, stop: Callable[[], bool]) -> None:
        self.inner.settle(stop)

    def metrics(self) -> StateMetrics:
        return self.inner.metrics()

    def close(self) -> None:
        self._tables.clear()
        self._queues.clear()
        self.inner.close()

    def _recording(self) -> Iterator[tuple[TableSpec, LoggedTable[Any] | LoggedTimerQueue]]:
        yield from self._tables.values()
        yield from self._queues.values()


def _logged(spec: TableSpec, inner: Table) -> LoggedTable[Any]:
    match inner:
        case ValueTable():
            is_written_through = spec.stamped or inner.direct is not None
            return WrittenThroughTable(inner) if is_written_through else LoggedValueTable(inner)
        case ListTable():
            return LoggedListTable(inner)
        case MapTable():
            return LoggedMapTable(inner)
    raise AssertionError(f"{inner} is of no kind")
