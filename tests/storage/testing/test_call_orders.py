"""Every order that callers can tell apart is run, and hardly any twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb

import pytest

from holdfast.storage.testing.call_orders import Caller, orders
from holdfast.storage.testing.watched_storage import Call, Hook


def caller(*calls: Call) -> Caller:
    def run(pause: Hook) -> int:
        for call in calls:
            pause(call)
        return len(calls)

    return run


def orders_of(*callers: Caller) -> list[str]:
    tried = []
    for order in orders():
        order.run(*callers)
        tried.append(str(order))
    return tried


Scripts = Sequence[Sequence[Call]]
VERBS = ("create", "delete", "list", "read_range")


def shuffles(left: Scripts, before: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Every order of turns, told apart or not."""
    if not any(left):
        yield before
    for index, calls in enumerate(left):
        if calls:
            rest = [*left[:index], calls[1:], *left[index + 1 :]]
            yield from shuffles(rest, (*before, index))


def what_is_told(scripts: Scripts, turns: Sequence[int]) -> frozenset[tuple[int, int, int, int]]:
    """Which call came before which, of those that can notice each other."""
    places = []
    done = [0] * len(scripts)
    for index in turns:
        places.append((index, done[index]))
        done[index] += 1
    return frozenset(
        (*one, *other)
        for one, other in combinations(places, 2)
        if one[0] != other[0]
        if not {scripts[i][at].verb for i, at in (one, other)} <= {"list", "read_range"}
        if len({scripts[i][at].name for i, at in (one, other)}) == 1
    )


@pytest.mark.parametrize("seed", range(30))
def test_every_order_that_can_be_told_apart_is_run(seed: int) -> None:
    chance = random.Random(seed)
    lengths = [2, 2, 1] if seed % 2 else [3, 4]
    scripts = [
        [Call(chance.choice(VERBS), chance.choice("ab")) for _ in range(length)]
        for length in lengths
    ]
    every = {what_is_told(scripts, turns) for turns in shuffles(scripts)}
    run = []
    for order in orders():
        order.run(*(caller(*calls) for calls in scripts))
        run.append(what_is_told(scripts, order.turns))
    assert set(run) == every
    assert len(run) <= 2 * len(every)


def test_every_order_is_tried_once() -> None:
    change = Call("create", "object")
    tried = orders_of(caller(*[change] * 3), caller(*[change] * 4))
    assert len(tried) == len(set(tried)) == comb(7, 3)


def test_of_orders_that_no_caller_can_tell_apart_one_is_tried() -> None:
    looks = [Call("list", ""), Call("read_range", "object"), Call("unfinished", "")]
    assert len(orders_of(caller(*looks), caller(*looks), caller(*looks))) == 1
    changes = [caller(Call(verb, verb)) for verb in ("create", "delete", "commit")]
    assert len(orders_of(*changes)) == 1


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Call("create", "a/b"), Call("list", "a/"), 2),
        (Call("create", "a/b"), Call("unfinished", ""), 2),
        (Call("create", "a/b"), Call("list", "b"), 1),
        (Call("delete", "a/b"), Call("read_range", "a/b"), 2),
        (Call("delete", "a/b"), Call("read_range", "a"), 1),
        (Call("write", "a/b"), Call("write", "a/b"), 2),
        (Call("create", "a"), Call("create", "b"), 1),
    ],
)
def test_calls_that_can_notice_each_other_are_tried_both_ways(
    one: Call, other: Call, expected: int
) -> None:
    assert len(orders_of(caller(one), caller(other))) == expected
    assert len(orders_of(caller(other), caller(one))) == expected


def test_an_error_that_is_not_of_the_house_gets_out_of_an_order() -> None:
    def fails(pause: Hook) -> None:
        pause(Call("verb", ""))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        next(orders()).run(caller(Call("verb", "")), fails)
