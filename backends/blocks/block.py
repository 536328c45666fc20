"""Blocks: the backend-neutral form of rows, which every backend reads and writes.

A block is some rows of one table, in columns, in ascending order of key group: the ordered bytes of
keys, namespaces and map keys, the values as one MessagePack array, and stamps for time to live. A
backend of objects decodes whole columns; a backend of bytes splits them without decoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.storage.errors import UNREADABLE, Corrupt

__all__ = [
    "NO_VALUES",
    "Block",
    "BlockRows",
    "Column",
    "decode_blocks",
    "encode_block",
    "frame",
    "frames",
    "listed",
]


class Column(msgspec.Struct, frozen=True, array_like=True):
    """Concatenated byte strings.

    `lengths` has 1, 2, 4 or 8 bytes for each, little-endian; it is empty if all have `width`.
    """

    data: bytes
    width: int = 0
    lengths: bytes = b""

    @staticmethod
    def of(items: Sequence[bytes]) -> Column:
        """The column of these byte strings."""
        lengths = np.fromiter(map(len, items), np.int64, len(items))
        return Column.of_lengths(b"".join(items), lengths)

    @staticmethod
    def of_arrow(items: pa.LargeBinaryArray) -> Column:
        """The column of an Arrow array without nulls."""
        offsets = _offsets(items)
        data = items.buffers()[2]
        start, end = (int(offsets[0]), int(offsets[-1])) if len(items) else (0, 0)
        raw = b"" if data is None else memoryview(data)[start:end].tobytes()
        return Column.of_lengths(raw, np.diff(offsets))

    @staticmethod
    def beside(parts: Sequence[Column], count: int) -> Column:
        """The parts joined row by row; each has `count` rows."""
        if all(part.width for part in parts):
            rows = [np.frombuffer(each.data, np.uint8).reshape(count, each.width) for each in parts]
            whole = np.concatenate(rows, axis=1)
            return Column(whole.tobytes(), whole.shape[1])
        columns = [part.to_arrow(count) for part in parts]
        return Column.of_arrow(pc.binary_join_element_wise(*columns, _NOTHING))

    @staticmethod
    def cut(items: pa.LargeBinaryArray, size: int) -> tuple[npt.NDArray[np.uint8], Column]:
        """The first `size` bytes of each item as rows of an array, and the column of the rest."""
        offsets = _offsets(items)
        data = items.buffers()[2]
        raw = np.frombuffer(b"" if data is None else data, np.uint8)[: offsets[-1]]
        lengths = np.diff(offsets)
        if len(items) and (lengths == lengths[0]).all():
            rows = raw[offsets[0] :].reshape(len(items), lengths[0])
            return rows[:, :size].copy(), Column.of_lengths(
                rows[:, size:].tobytes(), lengths - size
            )
        places = offsets[:-1, None] + np.arange(size)
        first = raw[places]
        is_rest = np.ones(len(raw), np.bool_)
        is_rest[: offsets[0]] = False
        is_rest[places] = False
        return first, Column.of_lengths(raw[is_rest].tobytes(), lengths - size)

    @staticmethod
    def of_lengths(data: bytes, lengths: npt.NDArray[np.int64]) -> Column:
        """The column of concatenated byte strings of these lengths."""
        if len(lengths) == 0:
            return Column(data)
        longest = int(lengths.max())
        if longest == int(lengths.min()):
            return Column(data, longest)
        kind = next(kind for kind in _LENGTHS if longest <= np.iinfo(kind).max)
        return Column(data, 0, lengths.astype(kind).tobytes())

    def to_arrow(self, count: int) -> pa.LargeBinaryArray:
        """The column as an Arrow array; `count` is the number of rows."""
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(self.lengths_of(count), out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), count, buffers)

    def to_list(self, count: int) -> list[bytes]:
        """The byte strings; `count` is the number of rows."""
        data, width = self.data, self.width
        if width:
            listed: list[bytes] = np.frombuffer(data, f"V{width}").tolist()
            return listed
        offsets = accumulate(self.lengths_of(count).tolist(), initial=0)
        return [data[start:end] for start, end in pairwise(offsets)]

    def rows(self, first: int, end: int, count: int) -> Column:
        """The byte strings from number `first` to before `end`, of `count`."""
        lengths = self.lengths_of(count)
        start = int(lengths[:first].sum(dtype=np.int64))
        stop = start + int(lengths[first:end].sum(dtype=np.int64))
        return Column.of_lengths(self.data[start:stop], lengths[first:end])

    def lengths_of(self, count: int) -> npt.NDArray[np.int64]:
        """The length of each of the `count` byte strings."""
        if self.lengths:
            kind = f"<u{len(self.lengths) // count}"
            return np.frombuffer(self.lengths, kind).astype(np.int64)
        return np.full(count, self.width, np.int64)


def listed(items: pa.LargeBinaryArray) -> list[bytes]:
    """The byte strings of an Arrow array without nulls."""
    return Column.of_arrow(items).to_list(len(items))


def _offsets(items: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    """The start of each item in the data, and the end of the last one."""
    raw = items.buffers()[1]
    found = np.zeros(1, np.int64) if raw is None else np.frombuffer(raw, np.int64)
    return found[items.offset : items.offset + len(items) + 1]


_NOTHING = pa.scalar(b"", pa.large_binary())
_LENGTHS = ("<u1", "<u2", "<u4", "<u8")
NO_VALUES = b""
"""The values of a block whose rows have none."""
_raw_items = msgspec.msgpack.Decoder(list[msgspec.Raw])


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one table. `groups` has the key group of each row, 16 bits, ascending."""

    count: int
    groups: bytes
    keys: Column
    namespaces: Column | None
    map_keys: Column | None
    values: bytes
    stamps: bytes | None

    @property
    def group_array(self) -> npt.NDArray[np.uint16]:
        """The key group of each row."""
        return np.frombuffer(self.groups, np.uint16)

    def rows(self, first: int, end: int) -> Block:
        """The rows from number `first` to before `end`."""
        return self._picked(
            slice(first, end), end - first, lambda column: column.rows(first, end, self.count)
        )

    def taken(self, places: npt.NDArray[np.int64]) -> Block:
        """The rows at these indexes, in that order."""
        picked = pa.array(places)
        return self._picked(
            places,
            len(places),
            lambda column: Column.of_arrow(column.to_arrow(self.count).take(picked)),
        )

    def _picked(
        self, places: slice | npt.NDArray[np.int64], count: int, picked: Callable[[Column], Column]
    ) -> Block:
        """`count` rows at some places; `picked` answers what a column has there."""
        values = self.values
        if values:
            items = _raw_items.decode(values)
            if isinstance(places, slice):
                items = items[places]
            else:
                items = [items[place] for place in places.tolist()]
            values = msgspec.msgpack.encode(items)
        stamps = self.stamp_array
        return Block(
            count=count,
            groups=self.group_array[places].tobytes(),
            keys=picked(self.keys),
            namespaces=None if self.namespaces is None else picked(self.namespaces),
            map_keys=None if self.map_keys is None else picked(self.map_keys),
            values=values,
            stamps=None if stamps is None else stamps[places].tobytes(),
        )

    @staticmethod
    def joined(blocks: Sequence[Block]) -> Block:
        """The concatenated rows of some blocks of one table."""
        first = blocks[0]
        keys = _joined([(each.keys, each.count) for each in blocks])
        assert keys is not None
        values = first.values
        if values:
            items = [item for each in blocks for item in _raw_items.decode(each.values)]
            values = msgspec.msgpack.encode(items)
        stamps = [each.stamps for each in blocks if each.stamps is not None]
        return Block(
            count=sum(each.count for each in blocks),
            groups=b"".join([each.groups for each in blocks]),
            keys=keys,
            namespaces=_joined([(each.namespaces, each.count) for each in blocks]),
            map_keys=_joined([(each.map_keys, each.count) for each in blocks]),
            values=values,
            stamps=None if first.stamps is None else b"".join(stamps),
        )

    def within(self, first_group: int, last_group: int) -> Iterator[Block]:
        """The rows of these key groups, if any."""
        groups = self.group_array
        first = int(np.searchsorted(groups, first_group, "left"))
        end = int(np.searchsorted(groups, last_group, "right"))
        if (first, end) == (0, self.count):
            yield self
        elif first < end:
            yield self.rows(first, end)

    @property
    def stamp_array(self) -> npt.NDArray[np.int64] | None:
        """The stamp of each row, if there are stamps."""
        return None if self.stamps is None else np.frombuffer(self.stamps, np.int64)


def _joined(columns: Sequence[tuple[Column | None, int]]) -> Column | None:
    there = [column.to_arrow(count) for column, count in columns if column is not None]
    return Column.of_arrow(pa.concat_arrays(there)) if there else None


class BlockRows:
    """The number of rows for blocks of about equal size in bytes, from the blocks so far."""

    def __init__(self, first: int = 256) -> None:
        self.count = first

    def learn(self, rows: int, size_bytes: int) -> None:
        """Adapt to a block's size; blocks grow slowly, since later rows may be longer."""
        fitting = rows * _BLOCK_BYTES // size_bytes
        self.count = max(1, min(fitting, self.count * 4, _MOST_BLOCK_ROWS))


_MOST_BLOCK_ROWS = 8 * 1024
_BLOCK_BYTES = 256 * 1024
_FRAME = struct.Struct("<I")
_block_decoder = msgspec.msgpack.Decoder(Block)


def encode_block(block: Block) -> bytes:
    """The block as one frame: its length, then its bytes."""
    return frame(msgspec.msgpack.encode(block))


def decode_blocks(pieces: Iterable[bytes], *, where: str) -> Iterator[Block]:
    """The blocks of a segment that comes in pieces of any size.

    Raises:
        Corrupt: the bytes are not whole blocks; `where` names the segment.
    """
    for data in frames(pieces, where=where):
        yield _decode_block(data, where)


def frame(data: bytes) -> bytes:
    """The bytes with their length before them."""
    return _FRAME.pack(len(data)) + data


def frames(pieces: Iterable[bytes], *, where: str) -> Iterator[bytes]:
    """The content of each frame of a segment that comes in pieces of any size.

    Raises:
        Corrupt: the bytes are not whole frames; `where` names the segment.
    """
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        start = 0
        while len(buffer) - start >= _FRAME.size:
            (length,) = _FRAME.unpack_from(buffer, start)
            end = start + _FRAME.size + length
            if end > len(buffer):
                break
            yield bytes(memoryview(buffer)[start + _FRAME.size : end])
            start = end
        del buffer[:start]
    if buffer:
        raise Corrupt(
            "a segment of state ends in the middle of a block",
            where=where,
            expected="whole blocks",
            found=f"{len(buffer)} bytes more",
        )


def _decode_block(data: bytes, where: str) -> Block:
    try:
        return _block_decoder.decode(data)
    except UNREADABLE as error:
        raise Corrupt(
            "a block of state cannot be read",
            where=where,
            expected="rows in columns",
            found=f"{len(data)} bytes ({error})",
        ) from error
