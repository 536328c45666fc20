"""Event time where channels meet: the least of those that are waited for, never back."""

from __future__ import annotations

import random

import pytest

from holdfast.runtime.protocol.elements import MAX_WATERMARK, MIN_WATERMARK
from holdfast.runtime.task.gate import WatermarkMerge


def test_the_least_of_all_channels_counts() -> None:
    merge = WatermarkMerge(3)
    assert [merge.advance(0, 5), merge.advance(1, 9)] == [None, None]
    assert merge.advance(2, 7) == 5
    assert merge.advance(0, 8) == 7
    assert merge.current == 7


def test_a_channel_that_goes_back_changes_nothing() -> None:
    merge = WatermarkMerge(1)
    assert merge.advance(0, 5) == 5
    assert merge.advance(0, 3) is None
    assert merge.advance(0, 5) is None
    assert merge.advance(0, 6) == 6


def test_an_idle_channel_is_not_waited_for_until_it_is_active_again() -> None:
    merge = WatermarkMerge(2)
    merge.advance(0, 10)
    assert merge.idle(1) == 10
    merge.active(1)
    assert merge.advance(0, 20) is None
    assert merge.advance(1, 15) == 15


def test_the_watermark_of_an_idle_channel_counts_again_when_it_is_active() -> None:
    merge = WatermarkMerge(2)
    merge.advance(0, 10)
    merge.advance(1, 10)
    merge.idle(1)
    assert merge.advance(0, 30) == 30
    assert merge.advance(1, 12) is None, "event time does not go back"
    assert merge.current == 30


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_when_all_are_idle_time_is_where_the_furthest_was_in_whatever_order(
    order: tuple[int, int],
) -> None:
    merge = WatermarkMerge(2)
    merge.advance(0, 10)
    merge.advance(1, 5)
    found = []
    for channel in order:
        merge.idle(channel)
        found.append(merge.all_idle)
    assert found == [False, True]
    assert merge.current == 10


def test_a_channel_that_ends_beside_an_idle_one_leaves_time_where_both_orders_do() -> None:
    found = []
    for ends_first in (True, False):
        merge = WatermarkMerge(2)
        merge.advance(0, 10)
        merge.advance(1, 8)
        for act in (merge.end, merge.idle) if ends_first else (merge.idle, merge.end):
            act(0 if act == merge.end else 1)
        assert merge.all_idle
        found.append(merge.current)
    assert found == [10, 10]


def test_a_channel_that_is_at_the_end_of_time_does_not_take_an_idle_one_there() -> None:
    """The chains before it say so in a mark, before the end itself: rows of others may follow."""
    merge = WatermarkMerge(2)
    merge.advance(0, 10)
    merge.advance(1, 8)
    merge.idle(1)
    assert merge.advance(0, MAX_WATERMARK) is None
    assert merge.all_idle
    assert merge.end(0) is None
    assert merge.advance(1, 12) == 12
    assert merge.advance(1, MAX_WATERMARK) == MAX_WATERMARK


def test_a_channel_that_has_ended_is_not_waited_for() -> None:
    merge = WatermarkMerge(2)
    merge.advance(0, 10)
    assert merge.end(1) == 10
    assert merge.advance(0, 11) == 11
    assert merge.end(0) == MAX_WATERMARK


def test_an_end_beside_idle_channels_is_not_the_end_of_time() -> None:
    merge = WatermarkMerge(3)
    merge.advance(0, 10)
    merge.advance(1, 8)
    merge.end(2)
    assert merge.current == 8
    assert merge.idle(1) == 10
    assert merge.end(0) is None, "the idle one may bring rows of any time after 10"
    assert merge.all_idle
    assert merge.advance(1, 12) == 12
    assert merge.end(1) == MAX_WATERMARK
    assert not merge.all_idle, "there is none that could be idle"


@pytest.mark.parametrize("seed", range(30))
def test_time_never_goes_back_and_never_passes_a_channel_that_counts(seed: int) -> None:
    chance = random.Random(seed)
    channels = chance.randint(1, 4)
    merge = WatermarkMerge(channels)
    reached = [MIN_WATERMARK] * channels
    idle, ended = set[int](), set[int]()
    for _ in range(200):
        channel = chance.randrange(channels)
        before = merge.current
        if channel in ended:
            continue
        action = chance.choice(("advance", "advance", "idle", "active", "end"))
        answer = None
        if action == "advance":
            timestamp = chance.randrange(1_000)
            reached[channel] = max(reached[channel], timestamp)
            idle.discard(channel)
            answer = merge.advance(channel, timestamp)
        elif action == "idle":
            idle.add(channel)
            answer = merge.idle(channel)
        elif action == "active":
            idle.discard(channel)
            merge.active(channel)
        elif chance.random() < 0.1:
            ended.add(channel)
            idle.discard(channel)
            answer = merge.end(channel)
        counting = [reached[each] for each in range(channels) if each not in idle | ended]
        assert (merge.current != before) == (answer is not None)
        assert merge.current >= before
        if answer is not None:
            everything = MAX_WATERMARK if len(ended) == channels else max(reached)
            assert answer == min(counting, default=everything)
