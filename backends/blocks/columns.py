"""Conversion of keys and values to columns of blocks and back, vectorised where the type allows it.

The values of a column are one MessagePack array. Each item is what the codec writes for one value,
so a column can be split and joined without decoding; pickles are items of type bytes. Bytes that
are no keys or values of the type raise `Corrupt`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.backends.blocks.block import Column
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.scalars import IntKey
from holdfast.backends.keys.strings import StrKey
from holdfast.backends.values.codec import PICKLE, ValueCodec, pack_value
from holdfast.storage.errors import UNREADABLE, Corrupt

__all__ = [
    "FLOATS",
    "WHOLE_NUMBERS",
    "decode_keys",
    "decode_values",
    "encode_keys",
    "encode_values",
    "join_column",
    "join_packed",
    "join_values",
    "packed_numbers",
    "split_column",
    "split_values",
]

_SIGN_64 = np.uint64(1 << 63)
_END, _ESCAPE = b"\x00", b"\x01"
_ARRAY_32 = struct.Struct(">BI")
_ARRAY_32_TAG = 0xDD
_HEADS = {0xDC: struct.Struct(">BH"), _ARRAY_32_TAG: _ARRAY_32}
_NUMBER_BYTES = 9
FLOATS, WHOLE_NUMBERS = b"\xcb", b"\xcf\xd3"
"""The first byte of a float, and of an integer of 8 bytes, unsigned and signed."""
_NUMBERS = FLOATS + WHOLE_NUMBERS
_raw_items = msgspec.msgpack.Decoder(list[msgspec.Raw])
_bytes_items = msgspec.msgpack.Decoder(list[bytes])
_TYPED_ITEMS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "int": msgspec.msgpack.Decoder(list[int]),
    "float": msgspec.msgpack.Decoder(list[float]),
    "str": msgspec.msgpack.Decoder(list[str]),
    "bytes": msgspec.msgpack.Decoder(list[bytes]),
    "bool": msgspec.msgpack.Decoder(list[bool]),
}


def encode_keys(codec: KeyCodec[Any], keys: Sequence[Any] | npt.NDArray[Any] | pa.Array) -> Column:
    """The ordered bytes of canonical keys; ints may be a NumPy array, others an Arrow array."""
    if isinstance(keys, pa.Array):
        return Column.of_arrow(codec.encode_column(keys))
    if isinstance(codec, IntKey):
        return Column.of_arrow(codec.encode_column(pa.array(keys, pa.int64())))
    if isinstance(codec, StrKey):
        return Column.of_arrow(codec.encode_column(pa.array(keys, pa.large_string())))
    return Column.of(codec.encode_many(keys))


def decode_keys(codec: KeyCodec[Any], column: Column, count: int) -> list[Any]:
    """The keys of a column."""
    if isinstance(codec, IntKey) and column.width == struct.calcsize("q"):
        numbers = np.frombuffer(column.data, ">u8").astype(np.uint64) ^ _SIGN_64
        listed: list[Any] = numbers.view(np.int64).tolist()
        return listed
    if isinstance(codec, StrKey) and _ESCAPE not in column.data:
        strings: list[Any] = column.data.decode().split(_END.decode())[:-1]
        if len(strings) == count:
            return strings
    return list(map(codec.decode, column.to_list(count)))


def encode_values(codec: ValueCodec[Any], values: Sequence[Any]) -> bytes:
    """The column of values that the codec has already checked."""
    if _is_pickled(codec):
        return msgspec.msgpack.encode(codec.encode_many(values))
    return pack_value(values)


def decode_values(codec: ValueCodec[Any], data: bytes, where: str) -> list[Any]:
    """The values of a column."""
    typed = _TYPED_ITEMS.get(codec.describe()["type"])
    if typed is None:
        return codec.decode_many(split_values(codec, data, where))
    return _decoded(typed, data, where)


def join_values(codec: ValueCodec[Any], items: Sequence[bytes]) -> bytes:
    """The column of encoded values."""
    if _is_pickled(codec):
        return msgspec.msgpack.encode(items)
    return _headed(len(items), b"".join(items))


def join_column(codec: ValueCodec[Any], items: Column, count: int) -> bytes:
    """The column of `count` encoded values that are concatenated."""
    if _is_pickled(codec):
        return msgspec.msgpack.encode(items.to_list(count))
    return _headed(count, items.data)


def _headed(count: int, items: bytes) -> bytes:
    return _ARRAY_32.pack(_ARRAY_32_TAG, count) + items


def join_packed(items: pa.Array) -> bytes:
    """The column of values that are MessagePack in an Arrow column of binary without nulls."""
    offsets = np.frombuffer(items.buffers()[1], np.int32)[
        items.offset : items.offset + len(items) + 1
    ]
    data = items.buffers()[2]
    raw = b"" if data is None else memoryview(data)[int(offsets[0]) : int(offsets[-1])]
    return _headed(len(items), bytes(raw))


def split_values(codec: ValueCodec[Any], data: bytes, where: str) -> list[bytes]:
    """The bytes of each value of a column."""
    if _is_pickled(codec):
        return _decoded(_bytes_items, data, where)
    numbers = _numbers(data)
    if numbers is not None:
        return Column(numbers.tobytes(), _NUMBER_BYTES).to_list(len(numbers))
    return list(map(bytes, _decoded(_raw_items, data, where)))


def split_column(codec: ValueCodec[Any], data: bytes, count: int, where: str) -> Column:
    """The bytes of each value as a column, of exactly `count` values."""
    if _is_pickled(codec):
        pickled = _decoded(_bytes_items, data, where)
        found, column = len(pickled), Column.of(pickled)
    else:
        found, column = _packed(data, where)
    if found != count:
        raise Corrupt(
            "a column of values is not as long as its keys",
            where=where,
            expected=f"{count} values",
            found=f"{found}",
        )
    return column


def _packed(data: bytes, where: str) -> tuple[int, Column]:
    numbers = _numbers(data)
    if numbers is not None:
        return len(numbers), Column(numbers.tobytes(), _NUMBER_BYTES)
    items = _decoded(_raw_items, data, where)
    lengths = np.fromiter(map(len, items), np.int64, len(items))
    return len(items), Column.of_lengths(data[len(data) - int(lengths.sum()) :], lengths)


def packed_numbers(data: bytes, kinds: bytes) -> npt.NDArray[np.uint64] | None:
    """The bits of each value of a column, if all are numbers of nine bytes of these kinds.

    None otherwise.
    """
    numbers = _numbers(data, kinds)
    if numbers is None:
        return None
    return numbers[:, 1:].copy().view(">u8").ravel().astype(np.uint64)


def _numbers(data: bytes, kinds: bytes = _NUMBERS) -> npt.NDArray[np.uint8] | None:
    """The items of a column as rows, if all are numbers of nine bytes; None otherwise.

    They are if the first item, and every ninth byte from there, is the first byte of such a
    number.
    """
    head = _HEADS.get(data[0]) if data else None
    if head is None or len(data) < head.size:
        return None
    count = head.unpack_from(data)[1]
    if len(data) != head.size + count * _NUMBER_BYTES:
        return None
    if data[head.size :: _NUMBER_BYTES].translate(None, kinds):
        return None
    return np.frombuffer(data, np.uint8, offset=head.size).reshape(count, _NUMBER_BYTES)


def _is_pickled(codec: ValueCodec[Any]) -> bool:
    return bool(codec.describe()["type"] == PICKLE)


def _decoded(decoder: msgspec.msgpack.Decoder[list[Any]], data: bytes, where: str) -> list[Any]:
    try:
        return decoder.decode(data)
    except UNREADABLE as error:
        raise Corrupt(
            "a column of values cannot be read",
            where=where,
            expected="values of the type that the snapshot names",
            found=str(error),
        ) from error
