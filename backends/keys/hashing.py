"""The stable 32-bit hash of keys: XXH32 (seed 0) of a few bytes that represent the key.

The hash is part of every format that distributes state by key, so it never changes. The codec of a
type defines the bytes of its keys; equal keys have equal bytes. XXH32 was chosen because it is
specified, mixes well, has a C implementation for one key, and consists of 32-bit steps that NumPy
can do for a whole column. The functions for columns compute the same numbers as `hash_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

__all__ = ["BLOCK_ROWS", "Hashes", "hash_bytes", "hash_fixed", "hash_variable"]

Hashes = npt.NDArray[np.uint32]

BLOCK_ROWS = 16384
"""Rows that pass through all steps together: intermediate results stay in the processor's cache."""

hash_bytes: Callable[[bytes], int] = xxhash.xxh32_intdigest
"""The hash of the bytes of one key."""

_P1, _P2, _P3, _P4, _P5 = (
    np.uint32(prime) for prime in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
)
_STRIPE_BYTES = 16
_STRIPE_WORDS = 4
_WORD_BYTES = 4
_MOST_WORDS = 32
_WORTH_A_BLOCK = 512
"""Below this number of rows, one call for each row costs less than NumPy's overhead."""


def hash_fixed(rows: npt.NDArray[Any]) -> Hashes:
    """The hash of each row of a contiguous array, of its bytes in little-endian order.

    A row is one number of four or eight bytes; in two dimensions, all numbers of a line.
    """
    count, row_bytes = len(rows), rows.nbytes // max(len(rows), 1)
    hashes = np.empty(count, np.uint32)
    words = rows.astype(rows.dtype.newbyteorder("<"), copy=False).view("<u4")
    words = words.reshape(count, row_bytes // 4)
    for start in range(0, count, BLOCK_ROWS):
        columns = words[start : start + BLOCK_ROWS].T.astype(np.uint32, order="C")
        hashes[start : start + BLOCK_ROWS] = _hash_words(columns, row_bytes)
    return hashes


def hash_variable(column: pa.Array) -> Hashes:
    """The hash of each value of a `large_binary` array without nulls."""
    hashes = np.empty(len(column), np.uint32)
    for start in range(0, len(column), BLOCK_ROWS):
        block = column[start : start + BLOCK_ROWS]
        hashes[start : start + BLOCK_ROWS] = _hash_block(block)
    return hashes


def _hash_block(column: pa.Array) -> Hashes:
    """NumPy for short values, and for whole words of one length, such as 16 characters.

    One by one the long ones, and short ones at the end of the data.
    """
    if len(column) < _WORTH_A_BLOCK:
        return _hash_each(column)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(column) + 1, column.offset * 8)
    data = np.frombuffer(data or b"", np.uint8)
    starts, lengths = bounds[:-1], np.diff(bounds)
    words, rest = divmod(int(lengths[0]), _WORD_BYTES)
    if 0 < words <= _MOST_WORDS and not rest and (lengths == lengths[0]).all():
        rows = data[bounds[0] : bounds[-1]].view("<u4").reshape(len(column), words)
        return _hash_words(rows.T.astype(np.uint32, order="C"), int(lengths[0]))
    is_short = (lengths < _STRIPE_BYTES) & (starts <= len(data) - _STRIPE_BYTES)
    if np.count_nonzero(is_short) < _WORTH_A_BLOCK:
        return _hash_each(column)
    if is_short.all():
        return _hash_short(data, starts, lengths)
    hashes = np.empty(len(column), np.uint32)
    hashes[is_short] = _hash_short(data, starts[is_short], lengths[is_short])
    hashes[~is_short] = _hash_each(column.filter(pa.array(~is_short)))
    return hashes


def _hash_each(column: pa.Array) -> Hashes:
    return np.fromiter(map(hash_bytes, column.to_pylist()), np.uint32, len(column))


def _hash_short(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Hashes:
    """XXH32 of slices below 16 bytes, each with 16 bytes of data from its start on.

    Every slice takes every step; the steps beyond its length leave its hash as it was.
    """
    windows = np.lib.stride_tricks.as_strided(
        data[:_STRIPE_BYTES].view(f"V{_STRIPE_BYTES}"), (len(data) - _STRIPE_BYTES + 1,), (1,)
    )
    words = windows[starts].view("<u4").reshape(len(starts), _STRIPE_WORDS)
    columns = words.T.astype(np.uint32, order="C")
    hashes: Hashes = lengths.astype(np.uint32)
    whole_words = hashes >> np.uint32(2)
    rest_bytes = hashes & np.uint32(3)
    hashes += _P5
    rest = columns[0]
    for place in range(1, _STRIPE_WORDS):
        is_whole = whole_words >= place
        np.copyto(hashes, _with_word(hashes, columns[place - 1]), where=is_whole)
        rest = np.where(is_whole, columns[place], rest)
    for place in range(1, 4):
        np.copyto(hashes, _with_byte(hashes, rest & np.uint32(0xFF)), where=rest_bytes >= place)
        rest = rest >> np.uint32(8)
    return _avalanche(hashes)


def _hash_words(columns: Hashes, row_bytes: int) -> Hashes:
    """XXH32 of rows of equal length; `columns[i]` holds word i of every row."""
    count, rows = columns.shape
    striped = count // _STRIPE_WORDS * _STRIPE_WORDS
    hashes = np.full(rows, _P5, np.uint32)
    if striped:
        hashes = _hash_stripes(columns[:striped])
    hashes += np.uint32(row_bytes)
    for column in columns[striped:]:
        hashes = _with_word(hashes, column)
    return _avalanche(hashes)


def _hash_stripes(columns: Hashes) -> Hashes:
    lanes = [np.full(columns.shape[1], seed, np.uint32) for seed in _LANE_SEEDS]
    for place, column in enumerate(columns):
        lane = place % _STRIPE_WORDS
        lanes[lane] = _rotated(lanes[lane] + column * _P2, 13) * _P1
    first, second, third, fourth = lanes
    return _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)


_LANE_SEEDS = [
    np.uint32(seed & 0xFFFFFFFF) for seed in (int(_P1) + int(_P2), int(_P2), 0, -int(_P1))
]


def _with_word(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotated(hashes + words * _P3, 17) * _P4


def _with_byte(hashes: Hashes, values: Hashes) -> Hashes:
    return _rotated(hashes + values * _P5, 11) * _P1


def _avalanche(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> np.uint32(15)
    hashes *= _P2
    hashes ^= hashes >> np.uint32(13)
    hashes *= _P3
    hashes ^= hashes >> np.uint32(16)
    return hashes


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
