"""When state is materialized: by time, by the length of the log, and after failures."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.changelog import ChangelogOptions
from holdfast.changelog.materialization_schedule import MaterializationSchedule

MANY = 10**9


def schedule(name: str = "u/0-127", **options: Any) -> MaterializationSchedule:
    return MaterializationSchedule(ChangelogOptions(**options), name, 1000.0)


def first_due(made: MaterializationSchedule) -> float:
    return next(now for now in range(1000, 3000) if made.is_due(float(now), 1, 1))


def test_slots_begin_at_different_times_of_the_first_interval() -> None:
    moments = {first_due(schedule(f"u/{slot}")) for slot in range(50)}
    assert len(moments) > 25
    assert min(moments) >= 1300
    assert max(moments) <= 1600


def test_later_materializations_follow_the_interval() -> None:
    made = schedule(materialization_interval_s=60.0)
    made.ended(2000.0, 100)
    assert not made.is_due(2059.9, 1, 1)
    assert made.is_due(2060.0, 1, 1)


def test_nothing_is_due_without_a_log() -> None:
    made = schedule(materialization_interval_s=60.0)
    assert not made.is_due(1e9, 0, 0)


def test_a_log_longer_than_the_state_is_due() -> None:
    made = schedule(materialization_interval_s=None, least_log_bytes=1000, log_ratio=2.0)
    assert not made.is_due(1e9, 1000, 1)
    assert made.is_due(1e9, 1001, 1)
    made.ended(1e9, 5000)
    assert not made.is_due(2e9, 10_000, 1)
    assert made.is_due(2e9, 10_001, 1)


def test_a_log_of_many_pieces_is_due() -> None:
    made = schedule(materialization_interval_s=None, most_log_pieces=10)
    assert not made.is_due(1e9, 1, 10)
    assert made.is_due(1e9, 1, 11)


def test_failures_are_retried_with_growing_pauses() -> None:
    made, now_s, pauses = schedule(max_materialization_failures=20), 5000.0, []
    for _ in range(6):
        made.ended(now_s, None)
        again_s = now_s
        while not made.is_due(again_s, MANY, 1):
            again_s += 0.5
        pauses.append(again_s - now_s)
        now_s = again_s
    assert pauses == [1, 2, 4, 8, 16, 32]


def test_pauses_are_no_longer_than_the_interval() -> None:
    made = schedule(materialization_interval_s=3.0, max_materialization_failures=20)
    for _ in range(10):
        made.ended(5000.0, None)
    assert made.is_due(5003.0, MANY, 1)


@pytest.mark.parametrize("tolerated", [0, 1, 3])
def test_too_many_failures_are_reported(tolerated: int) -> None:
    made, found = schedule(max_materialization_failures=tolerated), []
    for size_bytes in (*[None] * (tolerated + 1), 1):
        made.ended(0.0, size_bytes)
        found.append(made.has_failed_too_often)
    assert found == [*[False] * tolerated, True, False]
    assert made.failures == 0
