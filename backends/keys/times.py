"""Keys that are days and times.

| type | ordered bytes | hashed bytes |
|---|---|---|
| date | days since 1970 as 32 bits, big-endian, sign bit flipped | the same days, little-endian |
| datetime | 0 naive or 1 aware; microseconds since 1970, as an int | the microseconds, as an int |

A naive datetime is what its clock showed, without `fold`. An aware one is its instant: the same
instant in several time zones is one key, which comes back in UTC. All naive ones are before all
aware ones.
"""

from __future__ import annotations

import datetime as dt
import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.backends.keys.base import KeyCodec, binary_of_rows
from holdfast.backends.keys.hashing import Hashes, hash_bytes, hash_fixed
from holdfast.backends.keys.scalars import ordered_rows

__all__ = ["DateKey", "DateTimeKey"]

_SIGN_32 = 1 << 31
_SIGN_64 = 1 << 63
_FIRST_DAY = dt.date(1970, 1, 1).toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
_START = {
    False: dt.datetime.fromisoformat("1970-01-01T00:00:00"),
    True: dt.datetime.fromisoformat("1970-01-01T00:00:00+00:00"),
}
_ordered_days = struct.Struct(">I")
_ordered_instant = struct.Struct(">BQ")
_hashed_days = struct.Struct("<i").pack
_hashed_microseconds = struct.Struct("<q").pack


class DateKey(KeyCodec[dt.date]):
    """`datetime.date`."""

    name = kind = "date"

    def canonical(self, key: object) -> dt.date:
        return self._exact(key, dt.date)

    def encode(self, key: object) -> bytes:
        return _ordered_days.pack(self._days(key) + _SIGN_32)

    def hash(self, key: object) -> int:
        return hash_bytes(_hashed_days(self._days(key)))

    def _days(self, key: object) -> int:
        return self.canonical(key).toordinal() - _FIRST_DAY

    def _read(self, data: bytes, offset: int) -> tuple[dt.date, int]:
        (days,) = _ordered_days.unpack_from(data, offset)
        return dt.date.fromordinal(days - _SIGN_32 + _FIRST_DAY), offset + 4

    def _encode_array(self, column: pa.Array) -> pa.Array:
        flipped = self._column_days(column).view(np.uint32) ^ np.uint32(_SIGN_32)
        return binary_of_rows(flipped.astype(">u4").view(np.uint8).reshape(-1, 4))

    def _hash_array(self, column: pa.Array) -> Hashes:
        return hash_fixed(self._column_days(column))

    def _column_days(self, column: pa.Array) -> npt.NDArray[np.int32]:
        column = self._as_arrow(column, pa.types.is_date, pa.date32())
        days: npt.NDArray[np.int32] = column.cast(pa.int32()).to_numpy()
        return days


class DateTimeKey(KeyCodec[dt.datetime]):
    """`datetime.datetime`, naive or aware."""

    name = kind = "datetime"

    def canonical(self, key: object) -> dt.datetime:
        is_aware, microseconds = self._instant(key)
        return _START[is_aware] + microseconds * _MICROSECOND

    def encode(self, key: object) -> bytes:
        is_aware, microseconds = self._instant(key)
        return _ordered_instant.pack(is_aware, microseconds + _SIGN_64)

    def hash(self, key: object) -> int:
        return hash_bytes(_hashed_microseconds(self._instant(key)[1]))

    def _instant(self, key: object) -> tuple[bool, int]:
        """Whether it is aware, and its microseconds since 1970."""
        plain = self._exact(key, dt.datetime)
        is_aware = plain.utcoffset() is not None
        try:
            if is_aware:
                plain = plain.astimezone(dt.UTC)
        except OverflowError:
            raise self._refused(key, "In UTC, its year is not between 1 and 9999") from None
        return is_aware, (plain - _START[is_aware]) // _MICROSECOND

    def _read(self, data: bytes, offset: int) -> tuple[dt.datetime, int]:
        is_aware, microseconds = _ordered_instant.unpack_from(data, offset)
        microseconds -= _SIGN_64
        return _START[(False, True)[is_aware]] + microseconds * _MICROSECOND, offset + 9

    def _encode_array(self, column: pa.Array) -> pa.Array:
        microseconds = self._microseconds(column)
        rows = np.empty((len(microseconds), 9), np.uint8)
        rows[:, 0] = column.type.tz is not None
        rows[:, 1:] = ordered_rows(microseconds)
        return binary_of_rows(rows)

    def _hash_array(self, column: pa.Array) -> Hashes:
        return hash_fixed(self._microseconds(column))

    def _microseconds(self, column: pa.Array) -> npt.NDArray[np.int64]:
        zone = getattr(column.type, "tz", None)
        column = self._as_arrow(column, pa.types.is_timestamp, pa.timestamp("us", zone))
        microseconds: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        return microseconds
