"""Turns by what they cost: each party with work gets its share, whatever the others do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection

from holdfast.runtime.task.fair_turns import Turns


def turn_of(turns: Turns, ready: Collection[int]) -> int:
    """Who is next of these; others that wait from before have no work any more."""
    for party in ready:
        turns.enter(party)
    while True:
        found = turns.next()
        assert found is not None
        if found in ready:
            return found


def test_busy_parties_get_equal_shares_whatever_their_turns_cost() -> None:
    turns, cost = Turns(3), (1.0, 10.0, 0.1)
    got: Counter[int] = Counter()
    for _ in range(10_000):
        party = turn_of(turns, [0, 1, 2])
        turns.charge(party, cost[party])
        got[party] += 1
    spent = [got[party] * cost[party] for party in range(3)]
    assert max(spent) - min(spent) <= max(cost)


def test_turns_that_cost_nothing_go_round() -> None:
    turns, order = Turns(3), []
    for _ in range(6):
        party = turn_of(turns, [0, 1, 2])
        turns.charge(party, 0)
        order.append(party)
    assert order == [0, 1, 2, 0, 1, 2]


def test_an_idle_party_gains_no_credit() -> None:
    turns = Turns(2)
    for _ in range(100):
        turns.charge(turn_of(turns, [0]), 1)
    first = [turn_of(turns, [0, 1])]
    for _ in range(3):
        turns.charge(first[-1], 1)
        first.append(turn_of(turns, [0, 1]))
    assert first == [1, 0, 1, 0], "it is next, and has no more than its share"


def test_between_two_turns_of_one_others_get_a_bounded_amount() -> None:
    chance = random.Random(4)
    turns, since = Turns(4), [0.0] * 4
    for _ in range(20_000):
        ready = sorted({0, *(party for party in (1, 2, 3) if chance.random() < 0.7)})
        party, cost = turn_of(turns, ready), chance.choice((0.1, 1, 5))
        turns.charge(party, cost)
        since = [0.0 if each == party else before + cost for each, before in enumerate(since)]
        assert since[0] <= 3 * (5 + 5)


def test_a_party_waits_once_until_its_turn() -> None:
    turns = Turns(2)
    assert turns.next() is None
    turns.enter(1)
    turns.enter(1)
    assert [turns.next(), turns.next()] == [1, None]
