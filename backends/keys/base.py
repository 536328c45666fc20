"""The contract of key types: order-preserving bytes and the stable hash, of one key or a column.

Each type is a subclass of `KeyCodec`, which defines its keys, their ordered bytes, and the bytes
that are hashed. `holdfast.backends.keys.codec` finds the class for a Python type.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.backends.keys.hashing import Hashes, hash_bytes
from holdfast.backends.values.normalizing import shown, to_plain
from holdfast.storage.errors import Corrupt, Invalid

__all__ = ["KeyCodec", "binary_of_rows", "is_any_of"]

_K = TypeVar("_K")
_T = TypeVar("_T")

_READ_ERRORS = (struct.error, LookupError, ValueError, ArithmeticError)
"""Python's errors for bytes that are no key."""


class KeyCodec(ABC, Generic[_K]):
    """One type of key.

    Guarantees, for keys of one codec:

    - `encode(a) < encode(b)` exactly if `a < b`; None is before all, NaN after all numbers.
    - The bytes are equal exactly if the keys are equal; then the hashes are equal, too.
    - No key's bytes are a prefix of another's, so bytes can be concatenated and scanned by prefix;
      `read` finds where a key ends.
    - Bytes and hash are the same in every process, version and machine.
    - Column methods give the results of the row methods for each value.

    A codec has no state beside its type, so threads may share it. What is no key of the type is
    refused with `Invalid`, which names the type expected and the one found; in a column that may be
    the type of the column, a value, or a null. Bytes that are no key are `Corrupt`.
    """

    name: str
    """The type, as errors name it."""
    kind: ClassVar[str]
    """The type, as descriptions name it."""
    width: ClassVar[int | None] = None
    """The number of bytes of every key, if it is constant."""

    @abstractmethod
    def canonical(self, key: object) -> _K:
        """The canonical one of all keys that equal this one, of the exact type.

        Converts scalars of NumPy and Arrow, and subclasses of builtins.
        """

    @abstractmethod
    def encode(self, key: object) -> bytes:
        """The ordered bytes of a key."""

    def hash(self, key: object) -> int:
        """The stable hash, from 0 to 2^32 - 1: by default that of the ordered bytes."""
        return hash_bytes(self.encode(key))

    def hash_and_encode(self, key: object) -> tuple[int, bytes]:
        """Both at once. Override it where they share work."""
        return self.hash(key), self.encode(key)

    def describe(self) -> dict[str, Any]:
        """The type as JSON, for a snapshot's metadata."""
        return {"type": self.kind}

    def decode(self, data: bytes) -> _K:
        """The canonical key of these bytes, which are exactly one key."""
        try:
            key, end = self._read(data, 0)
        except _READ_ERRORS as error:
            raise self._unreadable(data, 0, error) from error
        if end != len(data):
            raise Corrupt(
                "the bytes of a key continue after its end",
                expected=f"{end} bytes for a key of type {self.name}",
                found=f"{len(data)} bytes",
            )
        return key

    def read(self, data: bytes, offset: int) -> tuple[_K, int]:
        """The key whose bytes begin at `offset`, and the offset after them."""
        try:
            return self._read(data, offset)
        except _READ_ERRORS as error:
            raise self._unreadable(data, offset, error) from error

    def end(self, data: bytes, offset: int) -> int:
        """Where the key ends whose bytes begin at `offset`; they are valid."""
        return self.read(data, offset)[1] if self.width is None else offset + self.width

    def encode_many(self, keys: Iterable[object]) -> list[bytes]:
        """`encode` for each key."""
        return list(map(self.encode, keys))

    def hash_many(self, keys: Sequence[_K]) -> Hashes:
        """The hash of each of many canonical keys, which are not checked."""
        return np.fromiter(map(self.hash, keys), np.uint32, len(keys))

    def encode_column(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The ordered bytes of each value of an Arrow column, as a `large_binary` array."""
        parts = [
            self._encode_array(part) if places is None else self._encode_array(part).take(places)
            for part, places in _parts(column)
        ]
        return parts[0] if len(parts) == 1 else pa.concat_arrays([_NO_KEYS, *parts])

    def canonical_column(self, column: pa.Array | pa.ChunkedArray) -> list[_K]:
        """`canonical` of each value of an Arrow column."""
        try:
            return [self.decode(data) for data in self.encode_column(column).to_pylist()]
        except Corrupt as error:
            raise Invalid(
                "a column of keys has a value that does not fit their type",
                expected=f"keys of type {self.name}",
                found=f"an Arrow column of type {column.type}: {error.found}",
            ) from error

    def hash_column(self, column: pa.Array | pa.ChunkedArray) -> Hashes:
        """The hash of each value of an Arrow column."""
        parts = [
            self._hash_array(part) if places is None else self._hash_array(part)[places.to_numpy()]
            for part, places in _parts(column)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([_NO_HASHES, *parts])

    @abstractmethod
    def _read(self, data: bytes, offset: int) -> tuple[_K, int]:
        """`read`; errors that Python raises for bad bytes may pass."""

    @abstractmethod
    def _encode_array(self, column: pa.Array) -> pa.Array:
        """`encode_column` of an array that is not dictionary-encoded."""

    @abstractmethod
    def _hash_array(self, column: pa.Array) -> Hashes:
        """`hash_column` of an array that is not dictionary-encoded."""

    def _exact(self, key: object, wanted: type[_T]) -> _T:
        """The key as this builtin type, if it is one of that kind."""
        plain = to_plain(key)
        if type(plain) is not wanted:
            raise self._refused(key)
        return plain

    def _unreadable(self, data: bytes, offset: int, error: Exception) -> Corrupt:
        found = data[offset : offset + 32].hex(" ") or "the end"
        return Corrupt(
            "the bytes of a key cannot be read",
            expected=f"a key of type {self.name} at byte {offset}",
            found=f"{found} ({error})",
        )

    def _refused(self, key: object, fix: str = "") -> Invalid:
        return Invalid("a key does not fit its type", expected=self.name, found=shown(key), fix=fix)

    def _as_arrow(
        self, column: pa.Array, accepted: Callable[[pa.DataType], bool], wanted: pa.DataType
    ) -> pa.Array:
        """The column, cast to the wanted type; refuses nulls and types that are not accepted."""
        if not accepted(column.type):
            raise Invalid(
                "a column of keys does not fit their type",
                expected=f"keys of type {self.name}",
                found=f"an Arrow column of type {column.type}",
            )
        if column.null_count:
            raise Invalid(
                "a column of keys has nulls",
                expected=f"keys of type {self.name}",
                found=f"{column.null_count} nulls in {len(column)} rows",
                fix="Drop those rows, or declare the key type Optional",
            )
        try:
            return column if column.type == wanted else column.cast(wanted)
        except pa.ArrowInvalid as error:
            raise Invalid(
                "a column of keys has a value that does not fit their type",
                expected=f"keys of type {self.name}",
                found=f"an Arrow column of type {column.type}: {error}",
            ) from error


def is_any_of(*tests: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    """A test of Arrow types that passes if one of the tests passes."""
    return lambda kind: any(test(kind) for test in tests)


def binary_of_rows(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """A `large_binary` array of the rows of a two-dimensional array of bytes."""
    count, width = rows.shape
    offsets = (
        np.arange(0, (count + 1) * width, width, dtype=np.int64)
        if width
        else np.zeros(count + 1, np.int64)
    )
    data = np.ascontiguousarray(rows)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


_NO_KEYS = pa.array([], pa.large_binary())
_NO_HASHES = np.empty(0, np.uint32)
_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Layouts that most of Arrow's kernels refuse, and those that replace them."""


def _parts(column: pa.Array | pa.ChunkedArray) -> Iterator[tuple[pa.Array, pa.Array | None]]:
    """The column as plain arrays: its chunks, and the dictionary of a dictionary-encoded one.

    With a dictionary come the places in it, so that work is done only once for each entry.
    """
    for part in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
        plain = part.storage if isinstance(part, pa.ExtensionArray) else part
        if plain.type in _VIEWS:
            plain = plain.cast(_VIEWS[plain.type])
        if not isinstance(plain, pa.DictionaryArray):
            yield plain, None
        elif plain.null_count or plain.dictionary.null_count or len(plain.dictionary) > len(plain):
            yield plain.dictionary_decode(), None
        else:
            yield plain.dictionary, plain.indices
