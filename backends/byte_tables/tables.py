"""Tables over a store of ordered bytes: what key-value backends keep their state in.

Cells are the bytes that the codec of values writes, after 8 bytes of milliseconds where cells are
stamped. An append to a list writes new keys and reads nothing; a map is read as a range.

Scans read pages of plain entries and keep no cursors, so the owner may change a table in the middle
of a scan, even if the store below does not allow that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add, itemgetter
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.backends.blocks.block import Block, BlockRows, Column
from holdfast.backends.blocks.columns import join_column, split_column
from holdfast.backends.byte_tables.contract import (
    ByteEntry,
    ByteStore,
    ByteTable,
    FrozenBytes,
    in_columns,
)
from holdfast.backends.byte_tables.files import ByteTableFiles
from holdfast.backends.byte_tables.keys import (
    WORTH_SORTING,
    KeyLayout,
    group_prefixes,
    order_of,
    past,
)
from holdfast.backends.byte_tables.timers import ByteTimerQueue, TimeLayout, TimerPages
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.tables.contract import (
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
from holdfast.backends.tables.files import KeptTable
from holdfast.backends.tables.metrics import StateMetrics
from holdfast.backends.tables.timer_queues import TimerQueue
from holdfast.storage import Invalid

__all__ = ["ByteTableStore"]

_PAGE_ENTRIES = 1024
_FIRST_WALKED = 16
"""How many entries a walk takes first: they might be long."""
_element = struct.Struct(">Q").pack
_USUAL = TimerPages()
_stamp = struct.Struct(">q")
_T = TypeVar("_T")


class _BytesTable(Table):
    """Base of tables of all kinds: an ordered map, and the layout of its keys."""

    def __init__(self, spec: TableSpec, layout: KeyLayout, entries: ByteTable) -> None:
        self.spec = spec
        self.layout = layout
        self.entries = entries
        self._round = b""

    def remove(self, address: Any) -> None:
        self.entries.remove_range(address, past(address))

    def addresses(self) -> Iterator[tuple[Any, Any]]:
        before: bytes | None = None
        for key in _pages(self.entries.key_page, b"", None, bytes):
            if before is None or not key.startswith(before):
                found, namespace, end = self.layout.read(key)
                before = key[:end]
                yield found, namespace

    def sweep(self, limit: int) -> Iterable[Any]:
        found: list[bytes] = []
        while len(found) < limit:
            keys = self.entries.key_page(self._round, None, 1)
            if not keys:
                self._round = b""
                break
            (key,) = keys
            address = key[: self.layout.read(key)[2]]
            self._round = past(address)
            found.append(address)
        return found

    def load(self, block: Block) -> None:
        self.load_together((block,))

    def load_together(self, blocks: Sequence[Block]) -> None:
        columns = [(self._keys(each), self._cells(each), each.count) for each in blocks]
        self.entries.load_many(
            pa.concat_arrays([keys.to_arrow(count) for keys, _, count in columns]),
            pa.concat_arrays([cells.to_arrow(count) for _, cells, count in columns]),
        )

    def unload(self, block: Block) -> None:
        for address in self.layout.of_block(block).to_list(block.count):
            self.remove(address)

    def _entries(self, address: bytes) -> Iterator[ByteEntry]:
        return _pages(self.entries.page, address, past(address), itemgetter(0))

    def _keys(self, block: Block) -> Column:
        """The key under which each row of the block is kept."""
        return self.layout.of_block(block)

    def _cells(self, block: Block) -> Column:
        codec, where = self.spec.values, f"state {self.spec.name!r}"
        cells = split_column(codec, block.values, block.count, where)
        stamps = block.stamp_array
        if stamps is None:
            return cells
        return Column.beside((_in_big_endian(stamps), cells), block.count)


class _BytesValueTable(_BytesTable, ValueTable):
    """A key for each address."""

    def get(self, address: Any) -> Any:
        return self.entries.get(address)

    def put(self, address: Any, cell: Any) -> None:
        self.entries.put(address, cell)

    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        return self.entries.get_many(addresses)

    def put_many(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        self.entries.put_many(addresses, cells)

    def remove(self, address: Any) -> None:
        self.entries.remove_many((address,))

    def remove_many(self, addresses: Sequence[Any]) -> None:
        self.entries.remove_many(addresses)

    def unload(self, block: Block) -> None:
        self.entries.remove_many(self.layout.of_block(block).to_list(block.count))


class _BytesListTable(_BytesTable, ListTable):
    """A key for each element, numbered over all appends to the table."""

    def __init__(self, spec: TableSpec, layout: KeyLayout, entries: ByteTable) -> None:
        super().__init__(spec, layout, entries)
        self.next_number = 0

    def get(self, address: Any) -> list[Any]:
        return [cell for _, cell in self._entries(address)]

    def put(self, address: Any, cells: Sequence[Any]) -> None:
        self.remove(address)
        self.extend(address, cells)

    def extend(self, address: Any, cells: Sequence[Any]) -> None:
        numbers = self._numbers(len(cells))
        self.entries.put_many([address + number for number in map(_element, numbers)], cells)

    def _keys(self, block: Block) -> Column:
        numbers = self._numbers(block.count)
        places = _in_big_endian(np.arange(numbers.start, numbers.stop))
        return Column.beside((self.layout.of_block(block), places), block.count)

    def _numbers(self, count: int) -> range:
        first = self.next_number
        self.next_number += count
        return range(first, self.next_number)


class _BytesMapTable(_BytesTable, MapTable):
    """A key for each map key."""

    def get(self, address: Any, map_key: Any) -> Any:
        return self.entries.get(address + self._encode(map_key))

    def put(self, address: Any, map_key: Any, cell: Any) -> None:
        self.entries.put(address + self._encode(map_key), cell)

    def put_all(self, address: Any, cells: Iterable[tuple[Any, Any]]) -> None:
        listed = list(cells)
        keys = [address + self._encode(map_key) for map_key, _ in listed]
        self.entries.put_many(keys, [cell for _, cell in listed])

    def remove_entry(self, address: Any, map_key: Any) -> None:
        self.entries.remove_many((address + self._encode(map_key),))

    def items(self, address: Any) -> list[tuple[Any, Any]]:
        codec, start = self.spec.map_keys, len(address)
        assert codec is not None
        return [(codec.decode(key[start:]), cell) for key, cell in self._entries(address)]

    def unload(self, block: Block) -> None:
        if block.map_keys is None:
            super().unload(block)
        else:
            self.entries.remove_many(self.layout.of_block(block).to_list(block.count))

    def _encode(self, map_key: Any) -> bytes:
        assert self.spec.map_keys is not None
        return self.spec.map_keys.encode(map_key)


_TABLES: dict[StateKind, type[_BytesTable]] = {
    StateKind.VALUE: _BytesValueTable,
    StateKind.LIST: _BytesListTable,
    StateKind.MAP: _BytesMapTable,
}


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
        self._tables: dict[str, _BytesTable] = {}
        self._layouts: dict[str, KeyLayout] = {}
        self._files = None
        if store.files is not None:
            self._files = ByteTableFiles(self, store.files, key_groups, self._groups)
        self.files = self._files

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
            table = _TABLES[spec.kind](spec, self._layout(spec), entries)
            if self._files is not None and isinstance(table, _BytesListTable):
                table.next_number = self._files.next_number(spec.name)
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
        is_by_time = spec.is_timers and self._timers is not None
        return TimeLayout.name if is_by_time else KeyLayout.name

    def kept(self, name: str) -> KeptTable | None:
        table = self._tables.get(name)
        if table is None:
            return None
        number = table.next_number if isinstance(table, _BytesListTable) else 0
        return KeptTable(place="", layout=table.layout.name, next_number=number)

    def drop_table(self, spec: TableSpec) -> None:
        self._queues.pop(spec.name, None)
        self._tables.pop(spec.name, None)
        self._store.drop(spec.name)
        if self._files is not None:
            self._files.forget(spec.name)

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
            word = None if self._files is None else self._files.layout(spec.name)
            kind = _layout_named(word or self.layout_of(spec), spec)
            layout = self._layouts[spec.name] = kind(spec, self._groups)
        return layout


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


def _pages(
    page: Callable[[bytes, bytes | None, int], Sequence[_T]],
    first: bytes,
    end: bytes | None,
    key_of: Callable[[_T], bytes],
) -> Iterator[_T]:
    """The content of a range, page by page; the table may change between two pages."""
    while found := page(first, end, _PAGE_ENTRIES):
        yield from found
        if len(found) < _PAGE_ENTRIES:
            return
        first = key_of(found[-1]) + b"\x00"


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


def _in_big_endian(numbers: npt.NDArray[np.int64]) -> Column:
    return Column(numbers.astype(">i8").tobytes(), numbers.itemsize)


def _unstamped_many(cells: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], Column]:
    stamps, values = Column.cut(cells, _stamp.size)
    return stamps.view(">i8").ravel().astype(np.int64), values
