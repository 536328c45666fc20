"""What a checkpoint may build on, and what is kept because of it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.runtime.checkpoint.commands import AbortReason, Begin, Command, Notify, Retain
from support.simulations.coordinator_driver import Driver, abort, brief


def bases(commands: Sequence[Command]) -> list[tuple[int, int | None]]:
    """What began, and on what it builds."""
    return [(each.checkpoint_id, each.base) for each in commands if isinstance(each, Begin)]


def kept_since(commands: Sequence[Command]) -> list[int]:
    return [each.since for each in commands if isinstance(each, Retain)]


def test_a_checkpoint_builds_on_the_newest_complete_one() -> None:
    driver = Driver(interval=None)
    assert bases(driver.request()) == [(1, None)]
    driver.complete(1)
    assert bases(driver.request()) == [(2, 1)]
    driver.complete(2)
    assert bases(driver.request()) == [(3, 2)]


def test_the_first_builds_on_the_one_that_was_restored() -> None:
    driver = Driver(interval=None, next_id=9, restored=7)
    assert bases(driver.request()) == [(9, 7)]
    assert kept_since(driver.complete(9)) == [9]
    assert bases(driver.request()) == [(10, 9)]


def test_no_checkpoint_builds_on_an_aborted_one() -> None:
    driver = Driver(interval=None, tolerable_failures=9, restored=3, next_id=4)
    driver.request()
    driver.decline(4)
    assert bases(driver.request()) == [(5, 3)]
    driver.acknowledge(5)
    driver.store_failed(5)
    assert bases(driver.request()) == [(6, 3)]


def test_bases_of_pending_checkpoints_are_retained() -> None:
    driver = Driver(interval=None, max_concurrent=3, restored=3, next_id=4)
    for number in (4, 5, 6):
        assert bases(driver.request()) == [(number, 3)]
    assert kept_since(driver.complete(4)) == [3]
    assert bases(driver.request()) == [(7, 4)]
    assert kept_since(driver.complete(5)) == [3], "6 builds on 3"
    assert bases(driver.request()) == [(8, 5)]
    assert kept_since(driver.complete(6)) == [4], "7 builds on 4"
    assert kept_since(driver.complete(8)) == [8], "7 was subsumed"


def test_where_there_was_none_all_are_kept_that_a_slot_may_have_come_to_know() -> None:
    """A slot that learns of 1 before the barrier of 3 builds on it, though 3 began before that."""
    driver = Driver(interval=None, max_concurrent=3, next_id=1)
    for _ in range(3):
        driver.request()
    assert kept_since(driver.complete(1)) == [1]
    assert kept_since(driver.complete(2)) == [1]
    assert kept_since(driver.complete(3)) == [3]


def test_retention_is_commanded_after_aborts() -> None:
    driver = Driver(interval=None, max_concurrent=2)
    for _ in range(2):
        driver.request()
    subsumed = abort(1, AbortReason.SUBSUMED)
    assert brief(driver.complete(2)) == [(Notify, 2), subsumed, (Retain, 2)]


def test_nothing_is_deleted_for_a_job_that_has_ended() -> None:
    driver = Driver(interval=None)
    driver.request()
    driver.acknowledge(1)
    driver.shutdown()
    assert driver.stored(1) == ()
