import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.keys.groups import (
    MAX_PARALLELISM_LIMIT,
    KeyGroupRange,
    check_max_parallelism,
    check_parallelism,
    default_max_parallelism,
    key_group,
    key_groups,
    key_groups_of_slot,
    key_groups_of_slots,
    murmur,
    slot_of_key_group,
)
from holdfast.storage.errors import Invalid

HASHES = st.integers(0, 2**32 - 1)
MAX_PARALLELISMS = st.integers(1, MAX_PARALLELISM_LIMIT)
RANGES = st.builds(
    lambda one, other: KeyGroupRange(min(one, other), max(one, other)),
    st.integers(0, 40),
    st.integers(0, 40),
) | st.just(KeyGroupRange.empty())


@st.composite
def parallelisms(draw: st.DrawFn, limit: int = 600) -> tuple[int, int]:
    max_parallelism = draw(st.integers(1, limit))
    return draw(st.integers(1, max_parallelism)), max_parallelism


def murmur_of_flink(code: int) -> int:
    """`MathUtils.murmurHash`, word for word, with Java's 32-bit arithmetic spelled out."""

    def int32(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    def rotated(value: int, bits: int) -> int:
        return int32(value << bits | (value & 0xFFFFFFFF) >> (32 - bits))

    code = int32(int32(code) * 0xCC9E2D51)
    code = rotated(code, 15)
    code = int32(code * 0x1B873593)
    code = rotated(code, 13)
    code = int32(code * 5 + 0xE6546B64)
    code ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        code ^= (code & 0xFFFFFFFF) >> shift
        code = int32(int32(code) * factor)
    if code >= 0:
        return code
    return -code if code != -(2**31) else 0


@given(HASHES)
def test_murmur_is_that_of_flink(key_hash: int) -> None:
    assert murmur(key_hash) == murmur_of_flink(key_hash)
    assert murmur(key_hash - 2**32) == murmur(key_hash)


def test_murmur_hashes_do_not_change_between_versions() -> None:
    frozen = {
        0: 593689054,
        1: 68075478,
        2: 1085422463,
        127: 1931274395,
        2**31: 1718298732,
        2**32 - 1: 1982413648,
    }
    assert {number: murmur(number) for number in frozen} == frozen


@given(st.lists(HASHES), MAX_PARALLELISMS)
def test_a_column_of_hashes_has_the_groups_of_its_rows(
    hashes: list[int], max_parallelism: int
) -> None:
    column = np.array(hashes, np.uint32)
    expected = [key_group(each, max_parallelism) for each in hashes]
    assert key_groups(column, max_parallelism).tolist() == expected
    assert column.tolist() == hashes


def test_a_column_longer_than_a_block_has_the_groups_of_its_rows() -> None:
    hashes = np.random.default_rng(5).integers(0, 2**32, 40_000, dtype=np.uint32)
    assert key_groups(hashes, 1000).tolist() == [key_group(int(each), 1000) for each in hashes]


@given(parallelisms())
def test_every_key_group_has_one_slot(numbers: tuple[int, int]) -> None:
    parallelism, max_parallelism = numbers
    ranges = key_groups_of_slots(parallelism, max_parallelism)
    assert [group for each in ranges for group in each] == list(range(max_parallelism))
    sizes = {len(each) for each in ranges}
    assert max(sizes) - min(sizes) <= 1
    for slot, each in enumerate(ranges):
        assert each == key_groups_of_slot(slot, parallelism, max_parallelism)
        assert {slot_of_key_group(group, *numbers) for group in each} == {slot}


def test_ranges_are_those_of_flink() -> None:
    assert list(map(str, key_groups_of_slots(3, 128))) == ["0 to 42", "43 to 85", "86 to 127"]
    assert list(map(str, key_groups_of_slots(2, 128))) == ["0 to 63", "64 to 127"]
    assert list(map(str, key_groups_of_slots(3, 4))) == ["0 to 1", "2 to 2", "3 to 3"]
    assert len(key_groups_of_slots(MAX_PARALLELISM_LIMIT, MAX_PARALLELISM_LIMIT)) == 32768


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        (1, 128),
        (85, 128),
        (86, 256),
        (100, 256),
        (171, 256),
        (172, 512),
        (30000, 32768),
        (32768, 32768),
    ],
)
def test_the_default_max_parallelism_leaves_room(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


@given(st.integers(1, MAX_PARALLELISM_LIMIT - 1))
def test_the_default_max_parallelism_is_always_legal(parallelism: int) -> None:
    check_parallelism(parallelism, default_max_parallelism(parallelism))
    assert default_max_parallelism(parallelism) <= default_max_parallelism(parallelism + 1)


@pytest.mark.parametrize("number", [0, -1, 32769, 1.0, True, None, "128"])
def test_bad_numbers_are_refused(number: int) -> None:
    with pytest.raises(Invalid, match="1 to 32768"):
        check_max_parallelism(number)
    with pytest.raises(Invalid):
        check_parallelism(number, 128)
    with pytest.raises(Invalid):
        check_parallelism(1, number)
    with pytest.raises(Invalid):
        default_max_parallelism(number)


def test_too_much_parallelism_says_what_can_be_done() -> None:
    with pytest.raises(Invalid, match=r"max parallelism, 128.*found 129.*Lower the parallelism"):
        key_groups_of_slots(129, 128)
    for slot in (-1, 2):
        with pytest.raises(Invalid, match="no such slot"):
            key_groups_of_slot(slot, 2, 128)
    for group in (-1, 128):
        with pytest.raises(Invalid, match="no such key group"):
            slot_of_key_group(group, 2, 128)


@pytest.mark.parametrize(
    "bounds", [(1, 0), (-1, 3), (0, 32768), (5, 3), (0, -2), (1, 1.5), (True, 3), ("0", "1")]
)
def test_bad_ranges_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(Invalid, match="range of key groups"):
        KeyGroupRange(*bounds)


@given(RANGES, RANGES)
def test_ranges_are_sets(one: KeyGroupRange, other: KeyGroupRange) -> None:
    both = one.intersection(other)
    assert set(both) == set(one) & set(other)
    assert both == other.intersection(one)
    assert one.covers(other) == (set(other) <= set(one))
    assert len(one) == len(list(one))
    assert (one == other) == (set(one) == set(other))
    assert [group in one for group in range(-1, 42)] == [
        group in set(one) for group in range(-1, 42)
    ]
    assert list(one) == sorted(one)


def test_the_empty_range_has_no_key_group() -> None:
    empty = KeyGroupRange.empty()
    assert not empty
    assert empty == KeyGroupRange(0, -1)
    assert str(empty) == "none"
    assert 0 not in empty
    assert "0" not in KeyGroupRange(0, 3)
    assert KeyGroupRange(3, 4).covers(empty)


def test_a_range_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(KeyGroupRange(2, 5))) == KeyGroupRange(2, 5)
    assert len({KeyGroupRange(2, 5), KeyGroupRange(2, 5)}) == 1
