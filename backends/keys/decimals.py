"""Keys that are decimal numbers of any length.

Ordered bytes: one that says negative (0), zero (1) or positive (2). A number that is not zero goes
on: the exponent of its first digit as an int of 64 bits (as for int keys), its digits without
trailing zeros in pairs, each pair one byte from 1 to 100, and a byte 0. All that is inverted if the
number is negative. These bytes are hashed too.

`Decimal("1.0")` and `Decimal("1.00")` are equal in Python, so they are one key. It comes back with
as few digits as it has, whole numbers of up to 38 digits without an exponent.
"""

from __future__ import annotations

import struct
from decimal import Decimal

import pyarrow as pa

from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.hashing import Hashes
from holdfast.backends.values.normalizing import to_plain

__all__ = ["DecimalKey"]

_NEGATIVE, _ZERO, _POSITIVE = b"\x00", b"\x01", b"\x02"
_INVERTED = bytes(255 - byte for byte in range(256))
_SIGN_64 = 1 << 63
_exponent = struct.Struct(">Q")
_WHOLE_DIGITS = 38
"""What Spark's widest decimal holds."""


class DecimalKey(KeyCodec[Decimal]):
    """`decimal.Decimal`, of finite value."""

    name = "Decimal"
    kind = "decimal"

    def canonical(self, key: object) -> Decimal:
        return self.decode(self.encode(key))

    def encode(self, key: object) -> bytes:
        plain = to_plain(key)
        if not isinstance(plain, Decimal):
            raise self._refused(key)
        if not plain.is_finite():
            raise self._refused(key, "Infinity and NaN are not keys")
        if not plain:
            return _ZERO
        is_negative, digits, exponent = plain.as_tuple()
        text = "".join(map(str, digits)).lstrip("0")
        first = int(exponent) + len(text) - 1
        text = text.rstrip("0")
        text += "0" * (len(text) % 2)
        pairs = bytes(int(text[place : place + 2]) + 1 for place in range(0, len(text), 2))
        size = _exponent.pack(first + _SIGN_64) + pairs + b"\x00"
        return _NEGATIVE + size.translate(_INVERTED) if is_negative else _POSITIVE + size

    def _read(self, data: bytes, offset: int) -> tuple[Decimal, int]:
        sign = data[offset : offset + 1]
        if sign == _ZERO:
            return Decimal(0), offset + 1
        if sign not in {_NEGATIVE, _POSITIVE}:
            raise ValueError(sign)
        is_negative = sign == _NEGATIVE
        end = data.index(b"\xff" if is_negative else b"\x00", offset + 9)
        size = data[offset + 1 : end]
        if is_negative:
            size = size.translate(_INVERTED)
        first = _exponent.unpack_from(size)[0] - _SIGN_64
        text = "".join(f"{pair - 1:02}" for pair in size[8:]).rstrip("0")
        exponent = first - len(text) + 1
        if 0 < exponent <= _WHOLE_DIGITS - len(text):
            text, exponent = text + "0" * exponent, 0
        return Decimal((int(is_negative), tuple(map(int, text)), exponent)), end + 1

    def _encode_array(self, column: pa.Array) -> pa.Array:
        column = self._as_arrow(column, pa.types.is_decimal, column.type)
        return pa.array(self.encode_many(column.to_pylist()), pa.large_binary())

    def _hash_array(self, column: pa.Array) -> Hashes:
        column = self._as_arrow(column, pa.types.is_decimal, column.type)
        return self.hash_many(column.to_pylist())
