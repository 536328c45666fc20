"""A store of tables over a store of ordered bytes: what key-value backends keep their state in."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from operator import add
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.backends.blocks.block import Block, BlockRows, Column
from holdfast.backends.blocks.columns import join_column
from holdfast.backends.byte_tables.contract import ByteStore, FrozenBytes, in_columns
from holdfast.backends.byte_tables.keys import (
    WORTH_SORTING,
    KeyLayout,
    group_prefixes,
    order_of,
)
from holdfast.backends.byte_tables.tables import KINDS, EncodedListTable, EncodedTable
from holdfast.backends.byte_tables.timers import ByteTimerQueue, TimeLayout, TimerPages
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.tables.contract import (
    CellForm,
    FrozenTables,
    Rows,
    Table,
    TableFiles,
    TableSpec,
    TableStore,
)
from holdfast.backends.tables.files import ByteFiles, KeptTable, SourceFiles, TablesInFiles
from holdfast.backends.tables.metrics import StateMetrics
from holdfast.backends.tables.timer_queues import TimerQueue
from holdfast.storage import Invalid

__all__ = ["ByteTableFiles", "ByteTableStore"]

_FIRST_WALKED = 16
"""How many entries a walk takes first: they might be long."""
_USUAL = TimerPages()
_stamp = struct.Struct(">q")


class ByteTableStore(TableStore):
    """All tables of one operator in one slot, in a store of bytes, which `close` closes.

    Timers are ordered keys, of which `timers` says how many are in memory; with None all are, in an
    index on the heap.
    """

    def __init__(
        self,
        store: ByteStore,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        *,
        timers: TimerPages | None = _USUAL,
    ) -> None:
        self._store = store
        self._timers = timers
        self._queues: dict[str, ByteTimerQueue] = {}
        self._groups = group_prefixes(max_parallelism)
        self._tables: dict[str, EncodedTable] = {}
        self._layouts: dict[str, KeyLayout] = {}
        self.restored: dict[str, KeptTable] = {}
        """How tables of restored files are kept, by the names that they have now."""
        if store.files is not None:
            self.files = ByteTableFiles(self, store.files, key_groups, self._groups)

    def form(self, spec: TableSpec) -> CellForm:
        codec = spec.values
        return CellForm(
            encode=codec.encode,
            decode=codec.decode,
            encode_many=codec.encode_many,
            decode_many=codec.decode_many,
            exact=None,
            stamp=_stamped,
            unstamp=_unstamped,
        )

    def address(self, spec: TableSpec, key: Any, namespace: Any) -> Any:
        return self._layout(spec).address(key, namespace)

    def addresses(self, spec: TableSpec, keys: Sequence[Any], namespace: Any) -> Sequence[Any]:
        return self._layout(spec).addresses(keys, namespace)

    def order(self, addresses: Sequence[Any]) -> npt.NDArray[np.uint64] | None:
        return order_of(addresses) if len(addresses) >= WORTH_SORTING else None

    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        # Addresses are by key in every layout. This may run in any thread, so it must not cache a
        # layout of the store.
        layout = KeyLayout(spec, self._groups)
        stored = rows.addresses
        if rows.map_keys is not None:
            assert spec.map_keys is not None
            stored = list(map(add, stored, map(spec.map_keys.encode, rows.map_keys)))
        column = pa.array(stored, pa.large_binary())
        order = pa.array(order_of(column))
        column = column.take(order)
        cells = None
        if rows.cells is not None:
            cells = pa.array(rows.cells, pa.large_binary()).take(order)
        sizes, start = BlockRows(), 0
        while start < len(column):
            keys = column.slice(start, sizes.count)
            if cells is None:
                block = layout.block(keys)
                if rows.map_keys is None:  # the rows name whole addresses
                    block = msgspec.structs.replace(block, map_keys=None)
            else:
                block = _block(spec, layout, keys, cells.slice(start, sizes.count), None)
            yield block
            start += block.count
            sizes.learn(block.count, _size_bytes(keys) + len(block.values))

    def table(self, spec: TableSpec) -> Table:
        table = self._tables.get(spec.name)
        if table is None:
            entries = self._store.table(spec.name)
            table = KINDS[spec.kind](spec, self._layout(spec), entries)
            if spec.name in self.restored and isinstance(table, EncodedListTable):
                table.next_number = self.restored[spec.name].next_number
            self._tables[spec.name] = table
        return table

    def timer_queue(self, spec: TableSpec) -> TimerQueue | None:
        layout = self._layout(spec)
        if self._timers is None or not isinstance(layout, TimeLayout):
            return None
        queue = self._queues.get(spec.name)
        if queue is None:
            self.table(spec)
            queue = ByteTimerQueue(layout, self._tables[spec.name].entries, self._timers)
            self._queues[spec.name] = queue
        return queue

    def layout_of(self, spec: TableSpec) -> str:
        """The layout in which a new table of this spec is kept."""
        is_by_time = spec.is_timers and self._timers is not None
        return TimeLayout.name if is_by_time else KeyLayout.name

    def kept(self, name: str) -> KeptTable:
        """How the table of this name is kept, which is open or restored; its place may be old."""
        table = self._tables.get(name)
        if table is None:
            return self.restored[name]
        number = table.next_number if isinstance(table, EncodedListTable) else 0
        return KeptTable(place="", layout=table.layout.name, next_number=number)

    def drop_table(self, spec: TableSpec) -> None:
        self._queues.pop(spec.name, None)
        self._tables.pop(spec.name, None)
        self._store.drop(spec.name)
        self.restored.pop(spec.name, None)

    def write_out(self) -> None:
        """Write buffered changes of timer queues, before tables are frozen."""
        for queue in self._queues.values():
            queue.flush()

    def freeze(self) -> FrozenTables:
        self.write_out()
        return _FrozenTables(self._store.freeze(), dict(self._layouts))

    def settle(self, stop: Callable[[], bool]) -> None:
        """Nothing to do: the store of bytes maintains itself."""

    def walk(self, spec: TableSpec) -> Iterator[Block]:
        self.write_out()
        rows, layout = BlockRows(_FIRST_WALKED), self._layout(spec)
        for keys, cells in self._store.table(spec.name).walk(lambda: rows.count):
            block = _block(spec, layout, keys, cells, None)
            rows.learn(len(keys), _size_bytes(keys) + len(block.values))
            yield block

    def metrics(self) -> StateMetrics:
        return self._store.metrics()

    def close(self) -> None:
        self._tables.clear()
        self._store.close()

    def _layout(self, spec: TableSpec) -> KeyLayout:
        layout = self._layouts.get(spec.name)
        if layout is None or layout.spec is not spec:
            kept = self.restored.get(spec.name)
            kind = _layout_named(kept.layout if kept else self.layout_of(spec), spec)
            layout = self._layouts[spec.name] = kind(spec, self._groups)
        return layout


class ByteTableFiles(TableFiles):
    """`TableFiles` over the `ByteFiles` of the store of bytes."""

    def __init__(
        self,
        store: ByteTableStore,
        files: ByteFiles,
        key_groups: KeyGroupRange,
        prefixes: Sequence[bytes],
    ) -> None:
        self._store = store
        self._files = files
        self.format, self.is_preferred = files.format, files.is_preferred
        self._key_groups = key_groups
        self._prefixes = prefixes

    def freeze(self) -> TablesInFiles:
        self._store.write_out()
        frozen = self._files.freeze()
        tables = {
            name: msgspec.structs.replace(self._store.kept(name), place=place)
            for name, place in frozen.places.items()
        }
        return TablesInFiles(frozen, tables)

    def directory(self) -> Path:
        return self._files.directory()

    def restore(self, sources: Sequence[SourceFiles]) -> SourceFiles | None:
        taken_over = self._files.restore(sources, self._key_groups, self._prefixes)
        for source in sources:
            for name, kept in source.tables.items():
                before = self._store.restored.get(name, kept)
                number = max(before.next_number, kept.next_number)
                self._store.restored[name] = msgspec.structs.replace(kept, next_number=number)
        return taken_over

    def claim(self, name: str, spec: TableSpec) -> bool:
        kept = self._store.kept(name)
        if kept.layout != self._store.layout_of(spec):
            return False
        self._files.rename(name, spec.name)
        self._store.restored.pop(name, None)
        self._store.restored[spec.name] = kept
        return True


class _FrozenTables(FrozenTables):
    def __init__(self, frozen: FrozenBytes, layouts: dict[str, KeyLayout]) -> None:
        self._frozen = frozen
        self._layouts = layouts

    def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
        rows, first = BlockRows(), b""
        while page := self._frozen.page(spec.name, first, None, rows.count):
            keys, cells = in_columns(page)
            block = _block(spec, self._layouts[spec.name], keys, cells, keep_from_ms)
            if block.count:
                yield block
            first = page[-1][0] + b"\x00"
            rows.learn(len(page), _size_bytes(keys) + len(block.values))

    def release(self) -> None:
        self._frozen.release()


def _block(
    spec: TableSpec,
    layout: KeyLayout,
    stored: pa.LargeBinaryArray,
    cells: pa.LargeBinaryArray,
    keep_from_ms: int | None,
) -> Block:
    stamps = None
    if not spec.stamped:
        values = Column.of_arrow(cells)
    else:
        numbers, values = _unstamped_many(cells)
        if keep_from_ms is not None and (numbers < keep_from_ms).any():
            kept = pa.array(numbers >= keep_from_ms)
            stored, cells = stored.filter(kept), cells.filter(kept)
            numbers, values = _unstamped_many(cells)
        stamps = numbers.tobytes()
    joined = join_column(spec.values, values, len(stored))
    return msgspec.structs.replace(layout.block(stored), values=joined, stamps=stamps)


def _size_bytes(column: pa.LargeBinaryArray) -> int:
    """The total length of the byte strings."""
    total: int = pc.sum(pc.binary_length(column)).as_py()
    return total


def _layout_named(word: str, spec: TableSpec) -> type[KeyLayout]:
    for layout in (KeyLayout, TimeLayout):
        if layout.name == word:
            return layout
    raise Invalid(
        "a table in files is laid out in a way that is not known",
        where=f"table {spec.name!r}",
        expected=f"{KeyLayout.name} or {TimeLayout.name}",
        found=word,
        fix="Restore it with the version of Holdfast that has written it",
    )


def _stamped(milliseconds: int, cell: bytes) -> bytes:
    return _stamp.pack(milliseconds) + cell


def _unstamped(cell: bytes) -> tuple[int, bytes]:
    return _stamp.unpack_from(cell)[0], cell[_stamp.size :]


def _unstamped_many(cells: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], Column]:
    stamps, values = Column.cut(cells, _stamp.size)
    return stamps.view(">i8").ravel().astype(np.int64), values
