"""Blocks: the backend-neutral form of entries, which every backend writes and reads.

A block is some rows of one table, in columns, in ascending order of key group: the ordered bytes of
keys, namespaces and map keys, the values as one MessagePack array, and stamps where there is time
to live. A backend of objects decodes columns at once; a backend of bytes splits them and decodes
nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.storage.errors import Corrupt

__all__ = [
    "NO_VALUES",
    "Block",
    "BlockRows",
    "Column",
    "decode_blocks",
    "encode_block",
    "frame",
    "frames",
]


class Column(msgspec.Struct, frozen=True, array_like=True):
    """Byte strings one after the other.

    `lengths` are of 1, 2, 4 or 8 bytes each, little-endian; or empty where all are `width`.
    """

    data: bytes
    width: int = 0
    lengths: bytes = b""

    @staticmethod
    def of(items: Sequence[bytes]) -> Column:
        """The column of these byte strings."""
        lengths = np.fromiter(map(len, items), np.int64, len(items))
        return Column._make(b"".join(items), lengths)

    @staticmethod
    def of_arrow(items: pa.LargeBinaryArray) -> Column:
        """The column of an Arrow array without nulls."""
        offsets = _offsets(items)
        data = items.buffers()[2]
        start, end = (int(offsets[0]), int(offsets[-1])) if len(items) else (0, 0)
        raw = b"" if data is None else memoryview(data)[start:end].tobytes()
        return Column._make(raw, np.diff(offsets))

    @staticmethod
    def cut(items: pa.LargeBinaryArray, size: int) -> tuple[npt.NDArray[np.uint8], Column]:
        """The first bytes of each, so many, as rows of an array; and the column of the rest."""
        offsets = _offsets(items)
        data = items.buffers()[2]
        raw = np.frombuffer(b"" if data is None else data, np.uint8)[: offsets[-1]]
        places = offsets[:-1, None] + np.arange(size)
        first = raw[places]
        is_rest = np.ones(len(raw), np.bool_)
        is_rest[: offsets[0]] = False
        is_rest[places] = False
        return first, Column._make(raw[is_rest].tobytes(), np.diff(offsets) - size)

    @staticmethod
    def _make(data: bytes, lengths: npt.NDArray[np.int64]) -> Column:
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
        np.cumsum(self._lengths(count), out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), count, buffers)

    def to_list(self, count: int) -> list[bytes]:
        """The byte strings; `count` is the number of rows."""
        data, width = self.data, self.width
        if width:
            listed: list[bytes] = np.frombuffer(data, f"V{width}").tolist()
            return listed
        offsets = accumulate(self._lengths(count).tolist(), initial=0)
        return [data[start:end] for start, end in pairwise(offsets)]

    def rows(self, first: int, end: int, count: int) -> Column:
        """The byte strings from number `first` to before `end`, of `count`."""
        lengths = self._lengths(count)
        start = int(lengths[:first].sum(dtype=np.int64))
        stop = start + int(lengths[first:end].sum(dtype=np.int64))
        return Column._make(self.data[start:stop], lengths[first:end])

    def _lengths(self, count: int) -> npt.NDArray[np.int64]:
        if self.lengths:
            kind = f"<u{len(self.lengths) // count}"
            return np.frombuffer(self.lengths, kind).astype(np.int64)
        return np.full(count, self.width, np.int64)


def _offsets(items: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    """Where each begins in the data, and where the last one ends."""
    raw = items.buffers()[1]
    found = np.zeros(1, np.int64) if raw is None else np.frombuffer(raw, np.int64)
    return found[items.offset : items.offset + len(items) + 1]


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
        part = [
            None if each is None else each.rows(first, end, self.count)
            for each in (self.keys, self.namespaces, self.map_keys)
        ]
        keys = part[0]
        assert keys is not None
        stamps = self.stamp_array
        return Block(
            count=end - first,
            groups=self.group_array[first:end].tobytes(),
            keys=keys,
            namespaces=part[1],
            map_keys=part[2],
            values=self.values
            and msgspec.msgpack.encode(_raw_items.decode(self.values)[first:end]),
            stamps=None if stamps is None else stamps[first:end].tobytes(),
        )

    def within(self, first_group: int, last_group: int) -> Iterator[Block]:
        """The rows of these key groups, if there are some."""
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


class BlockRows:
    """How many rows make a block of about the same number of bytes, learned from those before."""

    def __init__(self, first: int = 256) -> None:
        self.count = first

    def learn(self, rows: int, size_bytes: int) -> None:
        """So many rows have made so many bytes; blocks grow slowly, in case later rows are long."""
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
        Corrupt: the bytes are not those of whole blocks; `where` names the place.
    """
    for data in frames(pieces, where=where):
        yield _decode_block(data, where)


def frame(data: bytes) -> bytes:
    """Bytes after their length, so that they can be told from those that follow."""
    return _FRAME.pack(len(data)) + data


def frames(pieces: Iterable[bytes], *, where: str) -> Iterator[bytes]:
    """What was framed, of a segment that comes in pieces of any size.

    Raises:
        Corrupt: the bytes are not whole frames; `where` names the place.
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
    except msgspec.DecodeError as error:
        raise Corrupt(
            "a block of state cannot be read",
            where=where,
            expected="rows in columns",
            found=f"{len(data)} bytes ({error})",
        ) from error
