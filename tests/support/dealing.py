"""Which combinations of a test run each time, and which only in `make soak`.

What multiplies is dealt out: `@pytest.mark.dealt("backend_name")` says over which parameters. A
test that is dealt over one of them runs with one of its values, and the next test of the file with
the next one, so that a run tries each value, and each test. One that is dealt over two runs with
each value of both, one that is dealt over more with each pair of values. `take=3` takes three
combinations, of however many parameters. `"class"` is a parameter too: the class that inherits the
test.

All other combinations get the mark `soak`. Quick and slow ones are dealt apart, so that `make
check` keeps a hand of its own. A test that is named with its parameters is alone in its group, and
always runs.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pytest

CLASS = "class"
_MARK = "dealt"
_Hand = tuple[Hashable, ...]


def deal(items: Iterable[pytest.Item]) -> None:
    """Mark as `soak` what was dealt to no run."""
    groups: dict[_Hand, list[pytest.Item]] = {}
    for item in items:
        if (mark := item.get_closest_marker(_MARK)) and not item.get_closest_marker("soak"):
            groups.setdefault(_group(item, mark), []).append(item)
    turns: Counter[str] = Counter()
    for group in groups.values():
        mark = group[0].get_closest_marker(_MARK)
        assert mark is not None
        hands = [_hand(each, mark.args) for each in group]
        file = group[0].path.name
        kept = dealt(hands, turn=turns[file] + zlib.crc32(file.encode()), **mark.kwargs)
        turns[file] += 1
        for item, hand in zip(group, hands, strict=True):
            if hand not in kept:
                item.add_marker(pytest.mark.soak)


def dealt(hands: Sequence[_Hand], *, turn: int, take: int | None = None) -> set[_Hand]:
    """Those of these combinations that are tried when it is this test's turn."""
    distinct = list(dict.fromkeys(hands))
    at = turn % len(distinct)
    order = [*distinct[at:], *distinct[:at]]
    if take is None and len(order[0]) > 1:
        return _cover(order, together=min(2, len(order[0]) - 1))
    count = min(take or 1, len(order))
    return {order[place * len(order) // count] for place in range(count)}


def _cover(order: Sequence[_Hand], together: int) -> set[_Hand]:
    """Few that have what all have of values, alone or in pairs; greedily, the best comes next."""
    met = {hand: {*itertools.combinations(enumerate(hand), together)} for hand in order}
    left = set[Any]().union(*met.values())
    kept: set[_Hand] = set()
    while left:
        best = max(order, key=lambda hand: len(left & met[hand]))
        kept.add(best)
        left -= met[best]
    return kept


def _hand(item: pytest.Item, axes: Sequence[str]) -> _Hand:
    """The values of an item, in the order of the parameters."""
    return tuple(_value(item, axis) for axis in axes)


def _value(item: pytest.Item, axis: str) -> Hashable:
    if axis == CLASS:
        return str(getattr(item, "cls", None))
    parameters = _parameters(item)
    if axis not in parameters:
        raise pytest.UsageError(f"{item.nodeid} is dealt over {axis!r}, which it does not have")
    return parameters[axis]


def _parameters(item: pytest.Item) -> dict[str, Hashable]:
    """What an item is called with, so that it can be compared: True is not 1."""
    callspec = getattr(item, "callspec", None)
    found: dict[str, Any] = {} if callspec is None else callspec.params
    return {name: _comparable(value) for name, value in found.items()}


def _comparable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return (type(value), value)


def _group(item: pytest.Item, mark: pytest.Mark) -> _Hand:
    """What items have in common that differ in what they are dealt over only."""
    if not mark.args:
        raise pytest.UsageError(f"{item.nodeid} is dealt over nothing: name its parameters")
    return (
        item.path,
        None if CLASS in mark.args else str(getattr(item, "cls", None)),
        getattr(item, "originalname", item.name),
        item.get_closest_marker("slow") is not None,
        *(each for each in _parameters(item).items() if each[0] not in mark.args),
    )
