"""Keys of a fixed number of bytes: none, truth and numbers.

| type | ordered bytes | hashed bytes |
|---|---|---|
| None | none: there is one key | none |
| bool | one, 0 or 1 | the same |
| int | 64 bits, big-endian, sign bit flipped | 64 bits, little-endian |
| float | IEEE 754, big-endian, sign bit flipped; all bits if negative | IEEE 754, little-endian |

As for Spark, -0.0 is the key 0.0, and all NaNs are one key. A float key may be given as an int that
it can hold, as Python's typing has it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.backends.keys.base import KeyCodec, binary_of_rows, is_any_of
from holdfast.backends.keys.hashing import Hashes, hash_bytes, hash_fixed
from holdfast.backends.values.normalizing import INT64_MAX, INT64_MIN, to_plain

__all__ = ["BoolKey", "FloatKey", "IntKey", "NoneKey", "ordered_rows"]

_SIGN_64 = 1 << 63
_64_BITS = (1 << 64) - 1
_ordered_int = struct.Struct(">Q")
_float = struct.Struct(">d")
_hashed_int = struct.Struct("<q").pack
_hashed_float = struct.Struct("<d").pack


class NoneKey(KeyCodec[None]):
    """The key type of which there is one key: for state without a namespace."""

    name = "None"
    kind = "none"

    def canonical(self, key: object) -> None:
        if to_plain(key) is not None:
            raise self._refused(key)

    def encode(self, key: object) -> bytes:
        self.canonical(key)
        return b""

    def _read(self, data: bytes, offset: int) -> tuple[None, int]:
        return None, offset

    def _encode_array(self, column: pa.Array) -> pa.Array:
        return binary_of_rows(np.empty((self._rows(column), 0), np.uint8))

    def _hash_array(self, column: pa.Array) -> Hashes:
        return np.full(self._rows(column), hash_bytes(b""), np.uint32)

    def _rows(self, column: pa.Array) -> int:
        if not pa.types.is_null(column.type):
            raise self._refused(column)
        return len(column)


class BoolKey(KeyCodec[bool]):
    """`bool`."""

    name = kind = "bool"

    def canonical(self, key: object) -> bool:
        return self._exact(key, bool)

    def encode(self, key: object) -> bytes:
        return b"\x01" if self.canonical(key) else b"\x00"

    def _read(self, data: bytes, offset: int) -> tuple[bool, int]:
        return (False, True)[data[offset]], offset + 1

    def _encode_array(self, column: pa.Array) -> pa.Array:
        return binary_of_rows(self._bytes(column).reshape(-1, 1))

    def _hash_array(self, column: pa.Array) -> Hashes:
        both = np.array([self.hash(False), self.hash(True)], np.uint32)
        return both[self._bytes(column)]

    def _bytes(self, column: pa.Array) -> npt.NDArray[np.uint8]:
        column = self._as_arrow(column, pa.types.is_boolean, pa.bool_())
        bytes_: npt.NDArray[np.uint8] = column.cast(pa.uint8()).to_numpy()
        return bytes_


class IntKey(KeyCodec[int]):
    """`int` of 64 bits with sign, as Arrow, Parquet and Spark have it."""

    name = "int of 64 bits"
    kind = "int"
    width = 8

    def canonical(self, key: object) -> int:
        plain = key if type(key) is int else self._exact(key, int)
        if INT64_MIN <= plain <= INT64_MAX:
            return plain
        raise self._refused(key)

    def encode(self, key: object) -> bytes:
        if type(key) is not int:
            key = self._exact(key, int)
        try:
            return _ordered_int.pack(key + _SIGN_64)
        except struct.error:
            raise self._refused(key) from None

    def hash(self, key: object) -> int:
        if type(key) is not int:
            key = self._exact(key, int)
        try:
            return hash_bytes(_hashed_int(key))
        except struct.error:
            raise self._refused(key) from None

    def hash_many(self, keys: Sequence[int]) -> Hashes:
        return hash_fixed(np.fromiter(keys, np.int64, len(keys)))

    def canonical_column(self, column: pa.Array | pa.ChunkedArray) -> list[int]:
        if pa.types.is_signed_integer(column.type) and not column.null_count:
            return list(column.to_numpy().tolist())
        return super().canonical_column(column)

    def _read(self, data: bytes, offset: int) -> tuple[int, int]:
        return _ordered_int.unpack_from(data, offset)[0] - _SIGN_64, offset + 8

    def _encode_array(self, column: pa.Array) -> pa.Array:
        return binary_of_rows(ordered_rows(self._numbers(column)))

    def _hash_array(self, column: pa.Array) -> Hashes:
        return hash_fixed(self._numbers(column))

    def _numbers(self, column: pa.Array) -> npt.NDArray[np.int64]:
        column = self._as_arrow(column, pa.types.is_integer, pa.int64())
        numbers: npt.NDArray[np.int64] = column.to_numpy()
        return numbers


class FloatKey(KeyCodec[float]):
    """`float`."""

    name = kind = "float"
    width = 8

    def canonical(self, key: object) -> float:
        plain = key if type(key) is float else self._converted(key)
        # The one NaN: a dict finds it by identity. The sum makes 0.0 of -0.0.
        return plain + 0.0 if plain == plain else math.nan  # noqa: PLR0124

    def encode(self, key: object) -> bytes:
        bits: int = _ordered_int.unpack(_float.pack(self.canonical(key)))[0]
        return _ordered_int.pack(bits ^ _64_BITS if bits & _SIGN_64 else bits ^ _SIGN_64)

    def hash(self, key: object) -> int:
        return hash_bytes(_hashed_float(self.canonical(key)))

    def hash_many(self, keys: Sequence[float]) -> Hashes:
        return hash_fixed(np.fromiter(keys, np.float64, len(keys)))

    def canonical_column(self, column: pa.Array | pa.ChunkedArray) -> list[float]:
        if column.type != pa.float64() or column.null_count:
            return super().canonical_column(column)
        numbers = column.to_numpy() + 0.0
        if np.isnan(numbers).any():
            return list(map(self.canonical, numbers.tolist()))
        return list(numbers.tolist())

    def _converted(self, key: object) -> float:
        plain = to_plain(key)
        if type(plain) is float:
            return plain
        try:
            if type(plain) is int and float(plain) == plain:
                return float(plain)
        except OverflowError:
            pass
        raise self._refused(key)

    def _read(self, data: bytes, offset: int) -> tuple[float, int]:
        (bits,) = _ordered_int.unpack_from(data, offset)
        bits = bits ^ _SIGN_64 if bits & _SIGN_64 else bits ^ _64_BITS
        return self.canonical(*_float.unpack(_ordered_int.pack(bits))), offset + 8

    def _encode_array(self, column: pa.Array) -> pa.Array:
        bits = self._numbers(column).view(np.int64)
        # Seen as integers, floats are in order, but the negative ones in reverse.
        return binary_of_rows(ordered_rows(np.where(bits < 0, bits ^ _ALL_BUT_SIGN, bits)))

    def _hash_array(self, column: pa.Array) -> Hashes:
        return hash_fixed(self._numbers(column))

    def _numbers(self, column: pa.Array) -> npt.NDArray[np.float64]:
        accepted = is_any_of(pa.types.is_floating, pa.types.is_integer)
        numbers = self._as_arrow(column, accepted, pa.float64()).to_numpy()
        canonical: npt.NDArray[np.float64] = np.where(np.isnan(numbers), math.nan, numbers + 0.0)
        return canonical


_ALL_BUT_SIGN = np.int64(2**63 - 1)


def ordered_rows(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The eight ordered bytes of each number, one line a number."""
    flipped = numbers.view(np.uint64) ^ np.uint64(_SIGN_64)
    return flipped.astype(">u8").view(np.uint8).reshape(-1, 8)
