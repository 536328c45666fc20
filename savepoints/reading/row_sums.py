"""Order-independent checksums of the rows of a table.

Each row is hashed to 64 bits from its key, namespace, map key, position in its list, value and
stamp. A checksum is the number of rows and two sums over such hashes, so that checksums of parts
can be added. Key groups are left out: they follow from keys and the max parallelism, which a
conversion may change.

Records of classes are hashed as they come back from Parquet: an older record may lack a field that
its Parquet column has.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from holdfast.backends.arrow.rows import Positions
from holdfast.backends.arrow.values import Unfit, ValueForm
from holdfast.backends.blocks.block import Block, Column
from holdfast.backends.blocks.columns import FLOATS, WHOLE_NUMBERS, packed_numbers
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.storage.errors import UNREADABLE, Corrupt

__all__ = ["RowCounter", "RowSums"]

_Numbers = npt.NDArray[np.uint64]

# Of XXH64 and of the end of MurmurHash3. Each part of a row has one of its own, so that the same
# bytes as a key and as a value, say, give another sum.
_PRIMES = tuple(
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
        0xFF51AFD7ED558CCD,
        0xC4CEB9FE1A85EC53,
    )
)
_MASK = (1 << 64) - 1
_WORD_BYTES = 8
_LONG_BYTES = 96
"""Longer byte strings are hashed one by one; shorter ones all at once, by words."""
_raw_items = msgspec.msgpack.Decoder(list[msgspec.Raw])
_NUMBERS = {"int": WHOLE_NUMBERS, "float": FLOATS}
_INTS = msgspec.msgpack.Decoder(list[int])
_FLOATS = msgspec.msgpack.Decoder(list[float])


class RowSums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of rows, and two sums of 64 bits over their hashes, in hexadecimal digits."""

    rows: int = 0
    first: str = "0"
    second: str = "0"

    def __add__(self, other: RowSums) -> RowSums:
        first = int(self.first, 16) + int(other.first, 16)
        second = int(self.second, 16) + int(other.second, 16)
        return RowSums(self.rows + other.rows, f"{first & _MASK:x}", f"{second & _MASK:x}")


class RowCounter:
    """Sums the rows of a table, block by block in stored order.

    With a `form`, values are first converted to its typed columns and back: a record that was
    written by an earlier version of its class may have other bytes, and is the same record.
    """

    def __init__(self, info: TableInfo, form: ValueForm | None = None) -> None:
        self._info = info
        self._form = form
        self._positions = Positions() if info.kind == "list" else None
        self._rows = self._first = self._second = 0

    @property
    def sums(self) -> RowSums:
        """The sums of all blocks so far."""
        return RowSums(self._rows, f"{self._first:x}", f"{self._second:x}")

    def add(self, block: Block) -> None:
        """Add the rows of a block.

        Raises:
            Corrupt: its values are not of the type in the description of the table.
        """
        if block.count:
            numbers = self._numbers(block)
            self._rows += block.count
            self._first = (self._first + int(numbers.sum(dtype=np.uint64))) & _MASK
            again = _mixed(numbers ^ _PRIMES[6])
            self._second = (self._second + int(again.sum(dtype=np.uint64))) & _MASK

    def _numbers(self, block: Block) -> _Numbers:
        numbers = _of_column(block.keys, block.count) * _PRIMES[0]
        if block.namespaces is not None:
            numbers += _of_column(block.namespaces, block.count) * _PRIMES[1]
        if block.map_keys is not None:
            numbers += _of_column(block.map_keys, block.count) * _PRIMES[2]
        if self._info.kind != "timers":
            numbers += self._of_values(block) * _PRIMES[3]
        if self._positions is not None:
            numbers += _mixed(self._positions.of(block).astype(np.uint64)) * _PRIMES[4]
        stamps = block.stamp_array
        if stamps is not None:
            numbers += _mixed(stamps.view(np.uint64)) * _PRIMES[5]
        return _mixed(numbers)

    def _of_values(self, block: Block) -> _Numbers:
        kind, values = self._info.values["type"], block.values
        try:
            numbers = packed_numbers(values, _NUMBERS.get(kind, b""))
            if numbers is not None and len(numbers) == block.count:
                return _mixed(numbers)
            if kind == "int":
                return _mixed(_bits(_INTS.decode(values)))
            if kind == "float":
                return _mixed(np.array(_FLOATS.decode(values), np.float64).view(np.uint64))
            if self._form is not None:
                values = self._form.from_arrow(self._form.to_arrow(values))
            items = list(map(bytes, _raw_items.decode(values)))
        except (*UNREADABLE, Unfit) as error:
            raise Corrupt(
                "a column of values cannot be read",
                where=f"table {self._info.name!r}",
                expected=f"values of type {kind}",
                found=str(error),
            ) from error
        return _of_strings(b"".join(items), np.fromiter(map(len, items), np.int64, len(items)))


def _bits(numbers: list[int]) -> _Numbers:
    try:
        return np.array(numbers, np.int64).view(np.uint64)
    except OverflowError:
        return np.array([number & _MASK for number in numbers], np.uint64)


def _of_column(column: Column, count: int) -> _Numbers:
    if 0 < column.width <= _LONG_BYTES:
        return _of_rows(np.frombuffer(column.data, np.uint8).reshape(count, column.width))
    return _of_strings(column.data, column.lengths_of(count))


def _of_rows(rows: npt.NDArray[np.uint8]) -> _Numbers:
    """The numbers of `_of_strings` for byte strings of one length, which are the rows."""
    count, width = rows.shape
    padded = np.zeros((count, -(-width // _WORD_BYTES) * _WORD_BYTES), np.uint8)
    padded[:, :width] = rows
    numbers = np.full(count, _mixed(np.array([width], np.uint64))[0])
    for words in padded.view("<u8").T:
        numbers = _mixed(numbers ^ (words * _PRIMES[0]))
    return numbers


def _of_strings(data: bytes, lengths: npt.NDArray[np.int64]) -> _Numbers:
    """A number for each of the byte strings that lie one after the other."""
    numbers = _mixed(lengths.astype(np.uint64))
    if not data:
        return numbers
    starts = np.cumsum(lengths) - lengths
    is_long = lengths > _LONG_BYTES
    if is_long.any():
        view = memoryview(data)
        for row in np.flatnonzero(is_long).tolist():
            start = int(starts[row])
            numbers[row] = xxhash.xxh3_64_intdigest(view[start : start + int(lengths[row])])
        lengths = np.where(is_long, 0, lengths)
    padded = np.frombuffer(data + bytes(_WORD_BYTES), np.uint8)
    windows = np.lib.stride_tricks.as_strided(
        padded[:_WORD_BYTES].view(f"V{_WORD_BYTES}"), (len(data) + 1,), (1,)
    )
    for place in range(0, int(lengths.max()), _WORD_BYTES):
        left = lengths - place
        rows = np.flatnonzero(left > 0)
        is_all = len(rows) == len(lengths)
        its = slice(None) if is_all else rows
        words = windows[starts[its] + place].view("<u8").astype(np.uint64)
        rest = left[its]
        if int(rest.min()) < _WORD_BYTES:
            unused = np.maximum(_WORD_BYTES - rest, 0).astype(np.uint64) * np.uint64(_WORD_BYTES)
            words = (words << unused) >> unused
        numbers[its] = _mixed(numbers[its] ^ (words * _PRIMES[0]))
    return numbers


def _mixed(numbers: _Numbers) -> _Numbers:
    """A bijection of 64 bits in which each bit depends on all (the end of MurmurHash3)."""
    mixed = numbers ^ (numbers >> np.uint64(33))
    mixed = mixed * _PRIMES[5]
    mixed ^= mixed >> np.uint64(33)
    mixed *= _PRIMES[6]
    mixed ^= mixed >> np.uint64(33)
    return mixed
