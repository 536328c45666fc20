"""Transfers of files: several run in parallel, and all stop when one fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial

import pytest

from holdfast.backends.snapshots.transfers import Check, side_by_side
from holdfast.storage import Unavailable


def test_answers_are_in_the_order_of_the_tasks() -> None:
    tasks = [partial(lambda number, _: number, number) for number in range(20)]
    assert side_by_side(tasks) == list(range(20))
    assert side_by_side([]) == []


def test_the_first_error_is_raised_after_all_tasks_have_ended() -> None:
    begun, ended = threading.Semaphore(0), []

    def go_on(number: int, check: Check) -> None:
        begun.release()
        try:
            for _ in range(3_000):
                check()
                threading.Event().wait(0.01)
        except CancelledError:
            ended.append(number)
            raise

    def fail(_: Check) -> None:
        for _each in range(3):
            assert begun.acquire(timeout=30)
        raise Unavailable("the storage is away")

    tasks: list[Callable[[Check], None]] = [partial(go_on, number) for number in range(3)]
    with pytest.raises(Unavailable, match="is away"):
        side_by_side([*tasks, fail, *tasks])
    assert sorted(ended[:3]) == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 5])
def test_transfers_stop_when_they_are_cancelled(count: int) -> None:
    def stop() -> None:
        raise CancelledError

    def task(check: Check) -> None:
        check()
        raise AssertionError

    with pytest.raises(CancelledError):
        side_by_side([task] * count, stop)
