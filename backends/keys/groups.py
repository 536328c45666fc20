"""Key groups: the unit in which keyed state is assigned to slots, and moved on a rescale.

A key's group depends only on its hash and the job's max parallelism; the slot of a group depends on
the parallelism. The formulas are Flink's (`KeyGroupRangeAssignment`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from holdfast.backends.keys.hashing import BLOCK_ROWS, Hashes
from holdfast.storage.errors import Invalid

__all__ = [
    "MAX_PARALLELISM_LIMIT",
    "KeyGroupRange",
    "check_max_parallelism",
    "check_parallelism",
    "default_max_parallelism",
    "key_group",
    "key_groups",
    "key_groups_of_slot",
    "key_groups_of_slots",
    "murmur",
    "slot_of_key_group",
]

MAX_PARALLELISM_LIMIT = 32768
# As in Flink: room to raise the parallelism of small jobs, since existing state keeps this number.
_LEAST_DEFAULT = 128
_NO_SIGN = 0x7FFFFFFF
_32_BITS = 0xFFFFFFFF
_TWICE = 0x1_0000_0001
"""Multiplied by this, a 32-bit number is in both halves of 64 bits: a right shift rotates it."""


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """The key groups from `first` to `last`, both inclusive.

    There is one empty range, 0 to -1, so that equal sets of key groups are equal ranges.

    Raises:
        Invalid: the bounds are no whole numbers, out of bounds, or in the wrong order.
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if (self.first, self.last) == (0, -1):
            return
        whole = type(self.first) is int and type(self.last) is int
        if not (whole and 0 <= self.first <= self.last < MAX_PARALLELISM_LIMIT):
            raise Invalid(
                "a range of key groups is not legal",
                expected=f"0 ≤ first ≤ last < {MAX_PARALLELISM_LIMIT}, or 0 to -1 for no key group",
                found=f"{self.first!r} to {self.last!r}",
            )

    @classmethod
    def empty(cls) -> KeyGroupRange:
        """The range without a key group."""
        return cls(0, -1)

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __contains__(self, group: object) -> bool:
        return isinstance(group, int) and self.first <= group <= self.last

    def __str__(self) -> str:
        return f"{self.first} to {self.last}" if self else "none"

    def meets(self, first: int, last: int) -> bool:
        """Whether it has some of the key groups from `first` to `last`."""
        return first <= self.last and last >= self.first

    def covers(self, other: KeyGroupRange) -> bool:
        """Whether every key group of `other` is in this range."""
        return self.intersection(other) == other

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        first, last = max(self.first, other.first), min(self.last, other.last)
        return KeyGroupRange(first, last) if first <= last else KeyGroupRange.empty()


def check_max_parallelism(max_parallelism: int) -> None:
    """Refuse what cannot be a number of key groups.

    Raises:
        Invalid: not a whole number from 1 to 32768.
    """
    if type(max_parallelism) is not int or not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise Invalid(
            "the max parallelism is not legal",
            expected=f"a whole number from 1 to {MAX_PARALLELISM_LIMIT}",
            found=repr(max_parallelism),
        )


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Refuse a parallelism that would leave slots without a key group.

    Raises:
        Invalid: the parallelism is below 1 or above the max parallelism, or that is not legal.
    """
    check_max_parallelism(max_parallelism)
    if type(parallelism) is not int or not 1 <= parallelism <= max_parallelism:
        raise Invalid(
            "the parallelism is not legal",
            expected=f"a whole number from 1 to the max parallelism, {max_parallelism}",
            found=repr(parallelism),
            fix="Lower the parallelism; the max parallelism of existing state cannot be raised"
            if type(parallelism) is int and parallelism > max_parallelism
            else "",
        )


def default_max_parallelism(parallelism: int) -> int:
    """The max parallelism of a job whose user set none: room to grow, within 128 and 32768.

    Raises:
        Invalid: the parallelism is not from 1 to 32768.
    """
    check_parallelism(parallelism, MAX_PARALLELISM_LIMIT)
    wanted = parallelism + parallelism // 2
    power_of_two = 1 << (wanted - 1).bit_length()
    return min(max(power_of_two, _LEAST_DEFAULT), MAX_PARALLELISM_LIMIT)


def murmur(key_hash: int) -> int:
    """Flink's `MathUtils.murmurHash` of 32 bits, signed or not: 31 well-mixed bits, never negative.

    High bits that a step leaves behind are cut by the next mask, where they cannot have done harm.
    """
    mixed = ((key_hash * 0xCC9E2D51 & _32_BITS) * _TWICE) >> 17
    mixed = ((mixed * 0x1B873593 & _32_BITS) * _TWICE) >> 19
    mixed = (mixed * 5 + 0xE6546B64 & _32_BITS) ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _32_BITS
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _32_BITS
    mixed ^= mixed >> 16
    return mixed if mixed <= _NO_SIGN else -mixed & _NO_SIGN


def key_group(key_hash: int, max_parallelism: int) -> int:
    """The key group of a 32-bit hash. A hot path: the max parallelism is not checked here."""
    return murmur(key_hash) % max_parallelism


def key_groups(key_hashes: Hashes, max_parallelism: int) -> Hashes:
    """The key group of each hash: `key_group` for a whole column."""
    groups = np.empty_like(key_hashes)
    for start in range(0, len(key_hashes), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        mixed = _murmur_of_many(key_hashes[block])
        # NumPy divides by one number with SIMD, and takes remainders without.
        groups[block] = mixed - mixed // np.uint32(max_parallelism) * np.uint32(max_parallelism)
    return groups


def _murmur_of_many(key_hashes: Hashes) -> Hashes:
    mixed = key_hashes * np.uint32(0xCC9E2D51)
    mixed = (mixed << np.uint32(15)) | (mixed >> np.uint32(17))
    mixed *= np.uint32(0x1B873593)
    mixed = (mixed << np.uint32(13)) | (mixed >> np.uint32(19))
    mixed *= np.uint32(5)
    mixed += np.uint32(0xE6546B64)
    mixed ^= np.uint32(4)
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    without_sign: Hashes = np.abs(mixed.view(np.int32)).view(np.uint32)
    without_sign &= np.uint32(_NO_SIGN)
    return without_sign


def slot_of_key_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """The index of the slot that has a key group.

    Raises:
        Invalid: the numbers do not fit together.
    """
    check_parallelism(parallelism, max_parallelism)
    _check_below(group, max_parallelism, "key group", "max parallelism")
    return group * parallelism // max_parallelism


def key_groups_of_slot(slot: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """The key groups of one slot; never empty.

    Raises:
        Invalid: the numbers do not fit together.
    """
    check_parallelism(parallelism, max_parallelism)
    _check_below(slot, parallelism, "slot", "parallelism")
    return _range_of(slot, parallelism, max_parallelism)


def key_groups_of_slots(parallelism: int, max_parallelism: int) -> list[KeyGroupRange]:
    """The key groups of every slot, by slot: together all of them, each once, in order.

    Raises:
        Invalid: the parallelism or the max parallelism is not legal.
    """
    check_parallelism(parallelism, max_parallelism)
    return [_range_of(slot, parallelism, max_parallelism) for slot in range(parallelism)]


def _check_below(number: int, limit: int, what: str, limited_by: str) -> None:
    if not 0 <= number < limit:
        raise Invalid(
            f"there is no such {what}",
            expected=f"0 to {limit - 1}, below the {limited_by}",
            found=repr(number),
        )


def _range_of(slot: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    first = (slot * max_parallelism + parallelism - 1) // parallelism
    last = ((slot + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(first, last)
