"""Sorting byte strings: the fast ways give the same order."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from holdfast.backends.byte_tables.keys import in_places, is_in_order, order_of

MANY = 3000
MAKERS: dict[str, Callable[[random.Random], bytes]] = {
    "few bytes differ": lambda chance: b"prefix" + chance.randbytes(3) + b"suffix",
    "eight bytes differ": lambda chance: chance.randbytes(8),
    "nine bytes differ": lambda chance: chance.randbytes(9),
    "lengths differ": lambda chance: chance.randbytes(chance.randrange(1, 6)),
    "many are equal": lambda chance: b"key-%d" % chance.randrange(10),
    "all are equal": lambda _: b"the same",
    "all are empty": lambda _: b"",
    "zeros at the end": lambda chance: chance.choice((b"a\x00\x00", b"a\x00\x01", b"\x00\x00\x00")),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("count", [0, 1, 2, MANY])
def test_keys_are_sorted_and_equal_keys_keep_their_order(kind: str, count: int) -> None:
    chance = random.Random(kind)
    keys = [MAKERS[kind](chance) for _ in range(count)]
    order = order_of(keys)
    assert order.tolist() == sorted(range(count), key=keys.__getitem__)
    ordered = in_places(keys, order)
    assert ordered == sorted(keys)
    assert is_in_order(ordered)
