"""Keys as typed Arrow columns that any tool can read, and back to the same bytes.

| description | Arrow |
|---|---|
| bool, int, float, str, bytes | bool, int64, double, string, binary |
| date | date32 |
| datetime | string: ISO 8601, with a Z at its end where there is a zone |
| decimal | string |
| tuple, record | struct of `_1`, `_2`, …; of its fields |
| sequence | list |
| union with none | that type, with nulls |
| none, and a tuple of no items | bool, always null; always true |

Namespaces and map keys are keys, too. A key has exactly one encoding, so its bytes can be computed
from the column.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.backends.blocks.block import Column
from holdfast.backends.blocks.columns import decode_keys
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_described
from holdfast.backends.keys.hashing import Hashes
from holdfast.backends.keys.scalars import FloatKey, IntKey
from holdfast.backends.keys.strings import BytesKey, StrKey
from holdfast.backends.values.type_descriptions import Schema

__all__ = ["KeyForm"]

_Convert = Callable[[Any], Any]
_SIGN_64 = np.uint64(1 << 63)
_ESCAPE = b"\x01"
_WIDTH = struct.calcsize("q")


class KeyForm:
    """Keys of one type as an Arrow column. Raises `Corrupt` for an unknown description of keys."""

    def __init__(self, schema: Schema) -> None:
        self.codec: KeyCodec[Any] = key_codec_described(schema)
        self._node = _node(schema)
        self.type: pa.DataType = self._node.type
        """The type of the column."""
        self._is_of_arrow = self.type in _OF_ARROW and schema["type"] in _OF_ARROW[self.type]

    def to_arrow(self, keys: Column, count: int) -> pa.Array:
        """The column of `count` keys.

        Raises:
            Corrupt: the bytes are not those of keys of this type.
        """
        column = _quick(self.codec, keys, count)
        if column is not None:
            return column
        found = decode_keys(self.codec, keys, count)
        show = self._node.show
        return pa.array(found if show is None else list(map(show, found)), self.type)

    def from_arrow(self, column: pa.Array) -> Column:
        """Their ordered bytes.

        Raises:
            Invalid, ValueError, TypeError, ArithmeticError: a value is not of this type of keys.
        """
        if self._is_of_arrow:
            return Column.of_arrow(self.codec.encode_column(column))
        listed = column.to_pylist()
        take = self._node.take
        return Column.of(self.codec.encode_many(listed if take is None else map(take, listed)))

    def encoded(self, given: Any) -> bytes:
        """The ordered bytes of one key, given as in its column or in JSON.

        Tuples and records may be lists, and dates strings. Nothing else is converted, so a value
        that is not exactly a key is not mistaken for a similar one.

        Raises:
            Invalid, ValueError, TypeError, LookupError, ArithmeticError: it is not of this type.
        """
        column = pa.array([self._node.fit(given)], self.type)
        return self.from_arrow(column).to_list(1)[0]

    def hashes(self, keys: Column, count: int) -> Hashes:
        """The hash of each of these keys, from which its key group follows."""
        column = _quick(self.codec, keys, count)
        if column is not None:
            return self.codec.hash_column(column)
        return self.codec.hash_many(decode_keys(self.codec, keys, count))


_OF_ARROW: dict[pa.DataType, frozenset[str]] = {
    pa.bool_(): frozenset({"bool"}),
    pa.int64(): frozenset({"int"}),
    pa.float64(): frozenset({"float"}),
    pa.string(): frozenset({"str"}),
    pa.binary(): frozenset({"bytes"}),
    pa.date32(): frozenset({"date"}),
}
"""The types whose codecs accept such an Arrow column directly."""


def _quick(codec: KeyCodec[Any], keys: Column, count: int) -> pa.Array | None:
    """The column, where it can be made without an object for each key; else None."""
    if isinstance(codec, StrKey | BytesKey):
        return _text(codec, keys, count)
    return _numbers(codec, keys, count)


def _numbers(codec: KeyCodec[Any], keys: Column, count: int) -> pa.Array | None:
    if keys.width != _WIDTH or len(keys.data) != count * _WIDTH:
        return None
    if isinstance(codec, IntKey):
        bits = np.frombuffer(keys.data, ">u8").astype(np.uint64) ^ _SIGN_64
        return pa.array(bits.view(np.int64))
    if isinstance(codec, FloatKey):
        bits = np.frombuffer(keys.data, ">u8").astype(np.uint64)
        is_positive = (bits & _SIGN_64) != 0
        return pa.array(np.where(is_positive, bits ^ _SIGN_64, ~bits).view(np.float64))
    return None


def _text(codec: KeyCodec[Any], keys: Column, count: int) -> pa.Array | None:
    """Strings without their end bytes; None if other bytes were escaped, too."""
    if _ESCAPE in keys.data:
        return None
    ended = keys.to_arrow(count)
    offsets = np.frombuffer(ended.buffers()[1], np.int64, count + 1)
    data = keys.data.replace(b"\x00", b"")
    if len(data) != len(keys.data) - count or len(data) >= np.iinfo(np.int32).max:
        return None
    offsets = (offsets - np.arange(count + 1)).astype(np.int32)
    kind = pa.string() if isinstance(codec, StrKey) else pa.binary()
    column = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    column.validate(full=True)
    return column


@dataclass(frozen=True, slots=True)
class _Node:
    """An Arrow type; `show` converts keys to its values, `take` back. None means unchanged.

    `fit` converts a given value, as from JSON, to the Arrow value, or raises.
    """

    type: pa.DataType
    fit: _Convert
    show: _Convert | None = None
    take: _Convert | None = None


def _of(*types: type) -> _Convert:
    """Accepts values of exactly these types, so True is no number."""

    def fit(given: Any) -> Any:
        if type(given) not in types:
            raise TypeError(type(given).__name__)
        return given

    return fit


def _fit_float(given: Any) -> float:
    if type(given) not in (int, float):
        raise TypeError(type(given).__name__)
    number = float(given)
    if type(given) is int and int(number) != given:
        raise ValueError(given)
    return number


def _fit_bytes(given: Any) -> bytes:
    return given.encode() if isinstance(given, str) else bytes(_of(bytes, bytearray)(given))


def _fit_date(given: Any) -> dt.date:
    return dt.date.fromisoformat(given) if isinstance(given, str) else _of(dt.date)(given)


def _fit_empty(given: Any) -> bool:
    if given is not True and given not in ([], ()):
        raise ValueError(given)
    return True


def _same(key: Any) -> Any:
    return key


def _show_instant(key: dt.datetime) -> str:
    return key.isoformat() if key.tzinfo is None else key.replace(tzinfo=None).isoformat() + "Z"


_SCALARS = {
    "none": _Node(pa.bool_(), _of(type(None))),
    "bool": _Node(pa.bool_(), _of(bool)),
    "int": _Node(pa.int64(), _of(int)),
    "float": _Node(pa.float64(), _fit_float),
    "str": _Node(pa.string(), _of(str)),
    "bytes": _Node(pa.binary(), _fit_bytes),
    "date": _Node(pa.date32(), _fit_date),
    "datetime": _Node(pa.string(), _of(str), _show_instant, dt.datetime.fromisoformat),
    "decimal": _Node(pa.string(), _of(str), str, Decimal),
}
_EMPTY = _Node(pa.bool_(), _fit_empty, lambda _: True, lambda _: ())


def _node(schema: Schema) -> _Node:
    """The node of a description that `key_codec_described` knows."""
    match schema:
        case {"type": "tuple", "items": items}:
            return _struct([f"_{place + 1}" for place in range(len(items))], items)
        case {"type": "record", "fields": fields}:
            return _struct([each["name"] for each in fields], [each["schema"] for each in fields])
        case {"type": "sequence", "items": item}:
            return _sequence(_node(item))
        case {"type": "union", "members": [member, _]}:
            its = _node(member)
            fit = _if_there(its.fit) or its.fit
            return _Node(its.type, fit, _if_there(its.show), _if_there(its.take))
    return _SCALARS[schema["type"]]


def _struct(names: list[str], schemas: list[Schema]) -> _Node:
    if not names:
        return _EMPTY
    nodes = list(map(_node, schemas))
    shows = [node.show or _same for node in nodes]
    takes = [node.take or _same for node in nodes]

    def show(key: tuple[Any, ...]) -> dict[str, Any]:
        return {name: each(part) for name, each, part in zip(names, shows, key, strict=True)}

    def take(fields: dict[str, Any]) -> tuple[Any, ...]:
        return tuple([each(fields[name]) for name, each in zip(names, takes, strict=True)])

    def fit(given: Any) -> dict[str, Any]:
        parts = _of(dict, list, tuple)(given)
        if not isinstance(parts, dict):
            parts = dict(zip(names, parts, strict=True))
        if parts.keys() != set(names):
            raise KeyError(*parts.keys() ^ set(names))
        return {name: node.fit(parts[name]) for name, node in zip(names, nodes, strict=True)}

    fields = [pa.field(name, node.type) for name, node in zip(names, nodes, strict=True)]
    return _Node(pa.struct(fields), fit, show, take)


def _sequence(item: _Node) -> _Node:
    show, take = item.show or _same, item.take or _same
    return _Node(
        pa.list_(item.type),
        lambda given: list(map(item.fit, _of(list, tuple)(given))),
        lambda key: list(map(show, key)),
        lambda items: tuple(map(take, items)),
    )


def _if_there(convert: _Convert | None) -> _Convert | None:
    return None if convert is None else lambda key: None if key is None else convert(key)
