"""Keys that are strings: of characters, or of bytes.

A `str` stands for its UTF-8, whose order is that of code points. The ordered bytes end with a byte
0, so that what ends sooner is before what goes on; inside, 0 becomes 1 1 and 1 becomes 1 2, which
keeps the order. The hashed bytes are those of the string itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.backends.keys.base import KeyCodec, is_any_of
from holdfast.backends.keys.hashing import Hashes, hash_bytes, hash_variable

__all__ = ["BytesKey", "StrKey"]

_END = b"\x00"
_END_SCALAR = pa.scalar(_END, pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())

_S = TypeVar("_S", str, bytes)


class _TextKey(KeyCodec[_S]):
    """What keys that are strings of bytes have in common."""

    accepted: ClassVar[Callable[[pa.DataType], bool]]
    """The Arrow types of a column of such keys."""

    def encode(self, key: object) -> bytes:
        return _ended(self._data(key))

    def hash(self, key: object) -> int:
        return hash_bytes(self._data(key))

    def hash_and_encode(self, key: object) -> tuple[int, bytes]:
        data = self._data(key)
        return hash_bytes(data), _ended(data)

    def end(self, data: bytes, offset: int) -> int:
        return data.index(0, offset) + 1

    @abstractmethod
    def _data(self, key: object) -> bytes:
        """The bytes of the string."""

    def _read_data(self, data: bytes, offset: int) -> tuple[bytes, int]:
        end = data.index(0, offset)
        found = data[offset:end]
        return _unescaped(found) if 1 in found else found, end + 1

    def _encode_array(self, column: pa.Array) -> pa.Array:
        binary = self._binary(column)
        if _needs_escapes(binary):
            escaped = map(_escaped, binary.to_pylist())
            binary = pa.array(list(escaped), pa.large_binary())
        return pc.binary_join_element_wise(binary, _NOTHING, _END_SCALAR)

    def _hash_array(self, column: pa.Array) -> Hashes:
        return hash_variable(self._binary(column))

    def _binary(self, column: pa.Array) -> pa.Array:
        return self._as_arrow(column, type(self).accepted, pa.large_binary())


class StrKey(_TextKey[str]):
    """`str`."""

    name = kind = "str"
    accepted = is_any_of(pa.types.is_string, pa.types.is_large_string)

    def canonical_column(self, column: pa.Array | pa.ChunkedArray) -> list[str]:
        if type(self).accepted(column.type) and not column.null_count:
            return list(column.to_pylist())
        return super().canonical_column(column)

    def canonical(self, key: object) -> str:
        self._data(key)
        return key if type(key) is str else self._exact(key, str)

    def hash_many(self, keys: Sequence[str]) -> Hashes:
        return hash_variable(pa.array(keys, pa.large_string()).cast(pa.large_binary()))

    def _data(self, key: object) -> bytes:
        try:
            return (key if type(key) is str else self._exact(key, str)).encode()
        except UnicodeEncodeError:
            fix = "Half of a surrogate pair is no character, and UTF-8 cannot hold it"
            raise self._refused(key, fix) from None

    def _read(self, data: bytes, offset: int) -> tuple[str, int]:
        found, end = self._read_data(data, offset)
        return found.decode(), end


class BytesKey(_TextKey[bytes]):
    """`bytes`."""

    name = kind = "bytes"
    accepted = is_any_of(
        pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary
    )

    def canonical(self, key: object) -> bytes:
        return self._data(key)

    def hash_many(self, keys: Sequence[bytes]) -> Hashes:
        return hash_variable(pa.array(keys, pa.large_binary()))

    def _data(self, key: object) -> bytes:
        return key if type(key) is bytes else self._exact(key, bytes)

    def _read(self, data: bytes, offset: int) -> tuple[bytes, int]:
        return self._read_data(data, offset)


def _ended(data: bytes) -> bytes:
    return (_escaped(data) if 0 in data or 1 in data else data) + _END


def _escaped(data: bytes) -> bytes:
    return data.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01")


def _unescaped(data: bytes) -> bytes:
    return data.replace(b"\x01\x01", b"\x00").replace(b"\x01\x02", b"\x01")


def _needs_escapes(column: pa.Array) -> bool:
    if not len(column):
        return False  # Arrow allows an empty array to come without offsets
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(column) + 1, column.offset * 8)
    used = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    return bool((used <= 1).any())
