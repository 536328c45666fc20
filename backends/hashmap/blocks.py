"""From dicts of objects to blocks and back.

Rows are written in order of key group. For that the background thread lists addresses and cells,
hashes the keys by the column and sorts row numbers by group; blocks are then gathered in that
order. The work is done in pieces of a few thousand rows, so that the processing thread gets the
interpreter in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import chain, compress, repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.backends.blocks.block import NO_VALUES, Block, BlockRows
from holdfast.backends.blocks.columns import (
    decode_keys,
    decode_values,
    encode_keys,
    encode_values,
    join_values,
    split_values,
)
from holdfast.backends.hashmap.layered import FrozenDict
from holdfast.backends.keys.groups import key_groups
from holdfast.backends.keys.scalars import IntKey
from holdfast.backends.keys.strings import BytesKey, StrKey
from holdfast.backends.tables.contract import Rows, StateKind, TableSpec
from holdfast.backends.values.normalizing import has_none

__all__ = ["NULL", "blocks_of", "blocks_of_rows", "rows_of"]


class _Null(Enum):
    NULL = "null"


NULL = _Null.NULL
"""The cell of a map's entry whose value is None: a None in a table means absent."""

# Calls for a piece are made in C and hold the interpreter: the processing thread waits that long.
_PIECE_ROWS = 16 * 1024


class _OneLength:
    """Strings of one length, such as ids, as rows of an array: reordered as fast as numbers."""

    def __init__(self, kind: pa.DataType, rows: npt.NDArray[Any]) -> None:
        self._kind = kind
        self._rows = rows

    @classmethod
    def of(cls, column: pa.Array) -> _OneLength | None:
        """The column, if all lengths are equal; its offsets must begin with 0."""
        _, offsets, data = column.buffers()
        lengths = np.diff(np.frombuffer(offsets, np.int64, len(column) + 1))
        length = int(lengths[0]) if len(lengths) else 0
        if not length or (lengths != length).any():
            return None
        return cls(column.type, np.frombuffer(data, f"V{length}", len(column)))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, places: slice | npt.NDArray[Any]) -> pa.Array:
        found = self._rows[places]
        offsets = np.arange(len(found) + 1, dtype=np.int64) * self._rows.itemsize
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(found.tobytes())]
        return pa.Array.from_buffers(self._kind, len(found), buffers)


_Objects: TypeAlias = Sequence[Any] | npt.NDArray[Any] | pa.Array
"""An array for plain numbers, an Arrow array for keys that are strings, else a list."""
_Gathered: TypeAlias = _Objects | _OneLength


def blocks_of(
    view: FrozenDict, spec: TableSpec, *, max_parallelism: int, keep_from_ms: int | None
) -> Iterator[Block]:
    """The entries of a frozen table as blocks; see `FrozenTables.blocks`."""
    addresses, values = _gather(view, spec)
    groups = _groups(spec, addresses, max_parallelism)
    order = np.argsort(groups, kind="stable").astype(np.uint32)
    writer = _BlockWriter(spec, keep_from_ms)
    start = 0
    while start < len(order):
        piece = order[start : start + writer.addresses]
        rows = _FLAT[spec.kind](_at(addresses, piece), _at(values, piece))
        yield from writer.write(groups[piece], *rows)
        start += len(piece)


def blocks_of_rows(spec: TableSpec, rows: Rows, *, max_parallelism: int) -> Iterator[Block]:
    """Rows as blocks; see `TableStore.blocks`. Stamped cells are pairs of stamp and cell."""
    addresses: _Objects = rows.addresses
    if not len(addresses):
        return
    if spec.namespaces is None and isinstance(spec.keys, IntKey):
        addresses = np.fromiter(addresses, np.int64, len(addresses))
    groups = _groups(spec, addresses, max_parallelism)
    order = np.argsort(groups, kind="stable").astype(np.uint32)
    cells: _Objects | None = rows.cells
    kind = _number_of(spec)
    if cells is not None and kind is not None:
        cells = np.fromiter(cells, kind, len(cells))
    writer = _BlockWriter(spec, None)
    for start in range(0, len(order), _PIECE_ROWS):
        piece = order[start : start + _PIECE_ROWS]
        map_keys = None if rows.map_keys is None else list(_at(rows.map_keys, piece))
        some = None if cells is None else _at(cells, piece)
        yield from writer.write(groups[piece], None, _at(addresses, piece), map_keys, some)


def rows_of(spec: TableSpec, block: Block) -> Rows:
    """The rows of a block, as the table of objects keeps them."""
    addresses: Sequence[Any] = decode_keys(spec.keys, block.keys, block.count)
    if spec.namespaces is not None and block.namespaces is not None:
        namespaces = decode_keys(spec.namespaces, block.namespaces, block.count)
        addresses = list(zip(addresses, namespaces, strict=True))
    map_keys = None
    if spec.map_keys is not None and block.map_keys is not None:
        map_keys = decode_keys(spec.map_keys, block.map_keys, block.count)
    return Rows(addresses, map_keys, _cells_of(spec, block) if block.values else None)


def _cells_of(spec: TableSpec, block: Block) -> Sequence[Any]:
    where = f"state {spec.name!r}"
    cells: Sequence[Any]
    if spec.values.is_immutable:
        cells = decode_values(spec.values, block.values, where)
        # Of a list None is an element like others; only in a map it would mean absent
        if spec.map_keys is not None and has_none(cells):
            cells = [NULL if cell is None else cell for cell in cells]
    else:
        cells = split_values(spec.values, block.values, where)
    stamps = block.stamp_array
    if stamps is not None:
        cells = list(zip(stamps.tolist(), cells, strict=True))
    return cells


def _gather(view: FrozenDict, spec: TableSpec) -> tuple[_Gathered, _Gathered]:
    """All addresses and all values, in pieces: one call for all would block the interpreter.

    Plain numbers, and keys that are strings, become arrays at once. They are reordered later, and
    fetching objects all over the memory a second time would be slow.
    """
    pieces = view.pieces(_PIECE_ROWS)
    first = next(pieces, None)
    if first is None:
        return [], []  # the type of keys may not be known yet
    addresses, values = _Column(None), _Column(_number_of(spec))
    if spec.kind is StateKind.VALUE and not spec.stamped and spec.namespaces is None:
        addresses = _Column(_KEYS.get(type(spec.keys)))
    for piece in chain((first,), pieces):
        addresses.extend(piece[0])
        values.extend(piece[1])
    return addresses.all(), values.all()


def _number_of(spec: TableSpec) -> type[np.generic] | None:
    """The type of array for the cells of a table, if they are plain numbers."""
    if spec.kind is not StateKind.VALUE or spec.stamped or not spec.values.is_immutable:
        return None  # cells of values that are not immutable are bytes, also of raw numbers
    return _NUMBERS.get(spec.values.describe()["type"])


_Kind: TypeAlias = type[np.generic] | pa.DataType
_NUMBERS: dict[str, type[np.generic]] = {"int": np.int64, "float": np.float64}
_KEYS: dict[type, _Kind] = {
    IntKey: np.int64,
    StrKey: pa.large_string(),
    BytesKey: pa.large_binary(),
}


class _Column:
    """Collects objects in a list, or in an array where all are of one plain type."""

    def __init__(self, kind: _Kind | None) -> None:
        self._kind = kind
        self._objects: list[Any] = []
        self._arrays: list[Any] = []

    def extend(self, piece: list[Any]) -> None:
        kind = self._kind
        if kind is None:
            self._objects.extend(piece)
        elif isinstance(kind, pa.DataType):
            self._arrays.append(pa.array(piece, kind))
        else:
            self._arrays.append(np.fromiter(piece, kind, len(piece)))

    def all(self) -> _Gathered:
        if self._kind is None:
            return self._objects
        if isinstance(self._kind, pa.DataType):
            column = pa.concat_arrays(self._arrays)
            return _OneLength.of(column) or column
        numbers: npt.NDArray[Any] = np.concatenate(self._arrays)
        return numbers


def _at(column: _Gathered, places: npt.NDArray[np.uint32]) -> _Objects:
    if isinstance(column, np.ndarray | _OneLength):
        return column[places]
    if isinstance(column, pa.Array):
        return column.take(pa.array(places))
    return list(map(column.__getitem__, places.tolist()))


def _groups(spec: TableSpec, addresses: _Gathered, max_parallelism: int) -> npt.NDArray[np.uint16]:
    groups = np.empty(len(addresses), np.uint16)
    for start in range(0, len(addresses), _PIECE_ROWS):
        keys = addresses[start : start + _PIECE_ROWS]
        if isinstance(keys, np.ndarray | pa.Array):
            hashes = spec.keys.hash_column(pa.array(keys) if isinstance(keys, np.ndarray) else keys)
        else:
            if spec.namespaces is not None:
                keys = [address[0] for address in keys]
            hashes = spec.keys.hash_many(keys)
        groups[start : start + len(keys)] = key_groups(hashes, max_parallelism)
    return groups


_Flat = tuple[list[int] | None, _Objects, list[Any] | None, _Objects]


def _flat_values(addresses: _Objects, values: _Objects) -> _Flat:
    return None, addresses, None, values


def _flat_lists(addresses: _Objects, values: _Objects) -> _Flat:
    lengths = list(map(len, values))
    rows = list(chain.from_iterable(map(repeat, addresses, lengths)))
    return lengths, rows, None, list(chain.from_iterable(values))


def _flat_maps(addresses: _Objects, values: _Objects) -> _Flat:
    lengths = list(map(len, values))
    rows = list(chain.from_iterable(map(repeat, addresses, lengths)))
    map_keys = list(chain.from_iterable(values))
    return lengths, rows, map_keys, list(chain.from_iterable(map(dict.values, values)))


_FLAT: dict[StateKind, Callable[[_Objects, _Objects], _Flat]] = {
    StateKind.VALUE: _flat_values,
    StateKind.LIST: _flat_lists,
    StateKind.MAP: _flat_maps,
}


class _BlockWriter:
    """Makes blocks of about equal size in bytes, by the length of the rows so far."""

    def __init__(self, spec: TableSpec, keep_from_ms: int | None) -> None:
        self._spec = spec
        self._keep_from_ms = keep_from_ms
        self._rows = BlockRows()
        self._rows_of_an_address = 1

    @property
    def addresses(self) -> int:
        """How many addresses make about a block."""
        return max(1, self._rows.count // self._rows_of_an_address)

    def write(
        self,
        groups: npt.NDArray[np.uint16],
        lengths: list[int] | None,
        addresses: _Objects,
        map_keys: list[Any] | None,
        cells: _Objects | None,
    ) -> Iterator[Block]:
        if lengths is not None:
            groups = np.repeat(groups, lengths)
            self._rows_of_an_address = max(1, len(groups) // len(lengths))
        if self._spec.stamped and self._keep_from_ms is not None and cells is not None:
            kept = [cell[0] >= self._keep_from_ms for cell in cells]
            groups = groups[kept]
            addresses, cells = list(compress(addresses, kept)), list(compress(cells, kept))
            map_keys = None if map_keys is None else list(compress(map_keys, kept))
        start = 0
        while start < len(addresses):
            part = slice(start, start + self._rows.count)
            block = self._block(
                groups[part],
                addresses[part],
                None if map_keys is None else map_keys[part],
                None if cells is None else cells[part],
            )
            start += block.count
            yield block
            self._rows.learn(block.count, len(block.values) + len(block.keys.data) + 1)

    def _block(
        self,
        groups: npt.NDArray[np.uint16],
        addresses: _Objects,
        map_keys: list[Any] | None,
        cells: _Objects | None,
    ) -> Block:
        spec = self._spec
        keys, namespaces = addresses, None
        if spec.namespaces is not None:
            keys = [address[0] for address in addresses]
            namespaces = encode_keys(spec.namespaces, [address[1] for address in addresses])
        stamps = None
        if spec.stamped and cells is not None:
            stamps = np.array([stamp for stamp, _ in cells], np.int64).tobytes()
            cells = [cell for _, cell in cells]
        map_key_column = None
        if spec.map_keys is not None and map_keys is not None:
            map_key_column = encode_keys(spec.map_keys, map_keys)
        return Block(
            count=len(keys),
            groups=groups.tobytes(),
            keys=encode_keys(spec.keys, keys),
            namespaces=namespaces,
            map_keys=map_key_column,
            values=NO_VALUES if cells is None else _values_of(spec, cells),
            stamps=stamps,
        )


def _values_of(spec: TableSpec, cells: _Objects) -> bytes:
    if isinstance(cells, np.ndarray):
        return encode_values(spec.values, cells.tolist())
    if not spec.values.is_immutable:
        return join_values(spec.values, cells)
    if _Null in set(map(type, cells)):
        cells = [None if cell is NULL else cell for cell in cells]
    return encode_values(spec.values, cells)
