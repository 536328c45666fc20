"""The three kinds of table over a store of ordered bytes.

Cells are the bytes that the codec of values writes, after 8 bytes of milliseconds where cells are
stamped. An append to a list writes new keys and reads nothing; a map is read as a range.

Scans read pages of plain entries and keep no cursors, so the owner may change a table in the middle
of a scan, even if the store below does not allow that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.backends.blocks.block import Block, Column
from holdfast.backends.blocks.columns import split_column
from holdfast.backends.byte_tables.contract import ByteEntry, ByteTable
from holdfast.backends.byte_tables.keys import KeyLayout, past
from holdfast.backends.tables.contract import (
    ListTable,
    MapTable,
    StateKind,
    Table,
    TableSpec,
    ValueTable,
)

__all__ = ["KINDS", "EncodedListTable", "EncodedTable"]

_PAGE_ENTRIES = 1024
_element = struct.Struct(">Q").pack
_T = TypeVar("_T")


class EncodedTable(Table):
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


class _EncodedValueTable(EncodedTable, ValueTable):
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


class EncodedListTable(EncodedTable, ListTable):
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


class _EncodedMapTable(EncodedTable, MapTable):
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


KINDS: dict[StateKind, type[EncodedTable]] = {
    StateKind.VALUE: _EncodedValueTable,
    StateKind.LIST: EncodedListTable,
    StateKind.MAP: _EncodedMapTable,
}


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


def _in_big_endian(numbers: npt.NDArray[np.int64]) -> Column:
    return Column(numbers.astype(">i8").tobytes(), numbers.itemsize)
