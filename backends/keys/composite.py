"""Keys made of keys: optional ones, tuples, NamedTuples and dataclasses.

| type | ordered bytes | hashed bytes |
|---|---|---|
| T or None | 0 for None; 1 and those of T | none for None, else those of T |
| tuple of fields, NamedTuple, dataclass | those of the fields, one after the other | see below |
| tuple of any number of T | 1 and those of T for each, and 0 | see below |

What is hashed of several is the hash of each, 32 bits, little-endian, one after the other: so a
column of structs is hashed by field.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Sequence
from operator import call
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.backends.keys.base import KeyCodec, binary_of_rows, is_any_of
from holdfast.backends.keys.hashing import Hashes, hash_bytes, hash_fixed
from holdfast.backends.values.normalizing import full_name
from holdfast.storage.errors import Invalid

__all__ = ["OptionalKey", "RecordKey", "SequenceKey", "TupleKey"]

_K = TypeVar("_K")

_NONE, _SOME = b"\x00", b"\x01"
_NONE_SCALAR = pa.scalar(_NONE, pa.large_binary())
_SOME_SCALAR = pa.scalar(_SOME, pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())


class OptionalKey(KeyCodec[_K | None]):
    """`T | None`."""

    def __init__(self, inner: KeyCodec[_K]) -> None:
        self._inner = inner
        self.name = f"{inner.name} or None"

    def canonical(self, key: object) -> _K | None:
        return None if _is_none(key) else self._inner.canonical(key)

    def encode(self, key: object) -> bytes:
        return _NONE if _is_none(key) else _SOME + self._inner.encode(key)

    def hash(self, key: object) -> int:
        return hash_bytes(b"") if _is_none(key) else self._inner.hash(key)

    def describe(self) -> dict[str, Any]:
        return {"type": "union", "members": [self._inner.describe(), {"type": "none"}]}

    def _read(self, data: bytes, offset: int) -> tuple[_K | None, int]:
        if (None, _SOME)[data[offset]] is None:
            return None, offset + 1
        return self._inner.read(data, offset + 1)

    def _encode_array(self, column: pa.Array) -> pa.Array:
        if pa.types.is_null(column.type):
            return pa.array([_NONE] * len(column), pa.large_binary())
        encoded = self._inner.encode_column(column.drop_null())
        if column.null_count:
            is_there = column.is_valid().to_numpy(zero_copy_only=False)
            encoded = encoded.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))
        some = pc.binary_join_element_wise(_SOME_SCALAR, encoded, _NOTHING)
        return some.fill_null(_NONE_SCALAR)

    def _hash_array(self, column: pa.Array) -> Hashes:
        if not column.null_count:
            return self._inner.hash_column(column)
        hashes = np.full(len(column), hash_bytes(b""), np.uint32)
        if not pa.types.is_null(column.type):
            is_there = column.is_valid().to_numpy(zero_copy_only=False)
            hashes[is_there] = self._inner.hash_column(column.drop_null())
        return hashes


def _is_none(key: object) -> bool:
    return key is None or (isinstance(key, pa.Scalar) and not key.is_valid)


class _FieldsKey(KeyCodec[_K]):
    """What keys of a fixed number of fields have in common."""

    def __init__(self, name: str, fields: Sequence[KeyCodec[Any]]) -> None:
        self.name = name
        self._fields = tuple(fields)
        self._canonicals = [field.canonical for field in fields]
        self._encodes = [field.encode for field in fields]
        self._hashes = [field.hash for field in fields]
        self._pack = struct.Struct(f"<{len(self._fields)}I").pack

    def canonical(self, key: object) -> _K:
        return self._built(tuple(map(call, self._canonicals, self._values(key))))

    def encode(self, key: object) -> bytes:
        return b"".join(map(call, self._encodes, self._values(key)))

    def hash(self, key: object) -> int:
        return hash_bytes(self._pack(*map(call, self._hashes, self._values(key))))

    def hash_many(self, keys: Sequence[_K]) -> Hashes:
        columns = list(zip(*map(self._values, keys), strict=True)) or [()] * len(self._fields)
        return _combined(
            [field.hash_many(column) for field, column in zip(self._fields, columns, strict=True)],
            len(keys),
        )

    @abstractmethod
    def _values(self, key: object) -> tuple[Any, ...]:
        """The values of the fields, not yet checked."""

    @abstractmethod
    def _built(self, values: Sequence[Any]) -> _K:
        """The key with these values."""

    @abstractmethod
    def _child(self, column: pa.StructArray, place: int) -> pa.Array:
        """The column of one field."""

    def _read(self, data: bytes, offset: int) -> tuple[_K, int]:
        values = []
        for field in self._fields:
            value, offset = field.read(data, offset)
            values.append(value)
        return self._built(values), offset

    def _encode_array(self, column: pa.Array) -> pa.Array:
        children = self._children(column)
        if not children:
            return binary_of_rows(np.empty((len(column), 0), np.uint8))
        encoded = [field.encode_column(child) for field, child in children]
        return pc.binary_join_element_wise(*encoded, _NOTHING)

    def _hash_array(self, column: pa.Array) -> Hashes:
        hashes = [field.hash_column(child) for field, child in self._children(column)]
        return _combined(hashes, len(column))

    def _children(self, column: pa.Array) -> list[tuple[KeyCodec[Any], pa.Array]]:
        column = self._as_arrow(column, pa.types.is_struct, column.type)
        if column.type.num_fields != len(self._fields):
            raise self._misfit(column)
        return [(field, self._child(column, place)) for place, field in enumerate(self._fields)]

    def _misfit(self, column: pa.Array) -> Invalid:
        return Invalid(
            "a column of keys does not have the fields of their type",
            expected=self.name,
            found=str(column.type),
        )


def _combined(hashes: list[Hashes], count: int) -> Hashes:
    """The hashes of keys from those of their fields."""
    return hash_fixed(np.stack(hashes, 1)) if hashes else np.full(count, hash_bytes(b""), np.uint32)


class TupleKey(_FieldsKey[tuple[Any, ...]]):
    """`tuple[A, B, …]`; a column has a struct of the same number of fields, by place."""

    def __init__(self, fields: Sequence[KeyCodec[Any]]) -> None:
        super().__init__(f"tuple[{', '.join(field.name for field in fields) or '()'}]", fields)

    def describe(self) -> dict[str, Any]:
        return {"type": "tuple", "items": [field.describe() for field in self._fields]}

    def _values(self, key: object) -> tuple[Any, ...]:
        values = key
        if type(key) is not tuple and isinstance(key, pa.StructScalar):
            values = tuple(key.values())
        if isinstance(values, tuple) and len(values) == len(self._fields):
            return values
        raise self._refused(key)

    def _built(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values)

    def canonical_column(self, column: pa.Array | pa.ChunkedArray) -> list[tuple[Any, ...]]:
        if not isinstance(column, pa.StructArray) or not self._fields:
            return super().canonical_column(column)
        columns = [field.canonical_column(child) for field, child in self._children(column)]
        return list(zip(*columns, strict=True))

    def _child(self, column: pa.StructArray, place: int) -> pa.Array:
        return column.flatten()[place]


class RecordKey(_FieldsKey[_K]):
    """A NamedTuple or a frozen dataclass; a column has a struct of fields of the same names."""

    def __init__(self, cls: type[_K], fields: dict[str, KeyCodec[Any]]) -> None:
        parts = ", ".join(f"{name}: {field.name}" for name, field in fields.items())
        super().__init__(f"{full_name(cls)}({parts})", list(fields.values()))
        self._cls = cls
        self._names = tuple(fields)
        self._is_tuple = issubclass(cls, tuple)

    def describe(self) -> dict[str, Any]:
        fields = [
            {"name": name, "schema": field.describe()}
            for name, field in zip(self._names, self._fields, strict=True)
        ]
        return {"type": "record", "name": full_name(self._cls), "fields": fields}

    def _values(self, key: object) -> tuple[Any, ...]:
        if type(key) is self._cls:
            return tuple([getattr(key, name) for name in self._names])
        if isinstance(key, pa.StructScalar) and sorted(key) == sorted(self._names):
            return tuple([key[name] for name in self._names])
        if self._is_tuple and isinstance(key, tuple) and len(key) == len(self._names):
            return key
        raise self._refused(key)

    def _built(self, values: Sequence[Any]) -> _K:
        return self._cls(**dict(zip(self._names, values, strict=True)))

    def _child(self, column: pa.StructArray, place: int) -> pa.Array:
        index = column.type.get_field_index(self._names[place])
        if index < 0:
            raise self._misfit(column)
        return column.flatten()[index]


class SequenceKey(KeyCodec[tuple[Any, ...]]):
    """`tuple[T, ...]`; a column has lists."""

    def __init__(self, item: KeyCodec[Any]) -> None:
        self._item = item
        self.name = f"tuple[{item.name}, ...]"

    def canonical(self, key: object) -> tuple[Any, ...]:
        return tuple(map(self._item.canonical, self._values(key)))

    def encode(self, key: object) -> bytes:
        return b"".join([_SOME + self._item.encode(each) for each in self._values(key)]) + _NONE

    def hash(self, key: object) -> int:
        hashes = list(map(self._item.hash, self._values(key)))
        return hash_bytes(struct.pack(f"<{len(hashes)}I", *hashes))

    def describe(self) -> dict[str, Any]:
        return {"type": "sequence", "items": self._item.describe()}

    def _values(self, key: object) -> tuple[Any, ...]:
        values = tuple(key) if isinstance(key, pa.ListScalar) and key.is_valid else key
        if not isinstance(values, tuple):
            raise self._refused(key)
        return values

    def _read(self, data: bytes, offset: int) -> tuple[tuple[Any, ...], int]:
        items = []
        while (False, True)[data[offset]]:
            item, offset = self._item.read(data, offset + 1)
            items.append(item)
        return tuple(items), offset + 1

    def _encode_array(self, column: pa.Array) -> pa.Array:
        return pa.array(self.encode_many(self._lists(column)), pa.large_binary())

    def _hash_array(self, column: pa.Array) -> Hashes:
        return self.hash_many(self._lists(column))

    def _lists(self, column: pa.Array) -> list[tuple[Any, ...]]:
        return list(map(tuple, self._as_arrow(column, _is_list, column.type)))


_is_list = is_any_of(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
