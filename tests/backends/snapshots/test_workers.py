"""The background threads of a backend: the order of snapshots, savepoints and maintenance."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast.backends.snapshots.neutral import SnapshotFuture
from holdfast.backends.snapshots.workers import SnapshotWorker
from holdfast.storage import StateSnapshot

SNAPSHOT = StateSnapshot(kind="t/1")


def test_savepoints_are_written_beside_checkpoints_and_each_kind_in_turn() -> None:
    worker, is_quick, order = SnapshotWorker("op"), threading.Event(), list[int]()

    def slow(_: SnapshotFuture) -> StateSnapshot:
        assert is_quick.wait(30)
        order.append(1)
        return SNAPSHOT

    def quick(number: int) -> Callable[[SnapshotFuture], StateSnapshot]:
        def write(_: SnapshotFuture) -> StateSnapshot:
            order.append(number)
            return SNAPSHOT

        return write

    first = worker.submit(slow, is_savepoint=True)
    second = worker.submit(quick(2), is_savepoint=True)
    for number in (3, 4):
        worker.submit(quick(number)).result(30)
    assert not first.done()
    is_quick.set()
    second.result(30)
    assert order == [3, 4, 1, 2]
    worker.close()


def test_no_snapshot_is_written_while_follow_up_work_of_another_runs() -> None:
    worker, told = SnapshotWorker("op"), list[bool]()
    follows, may_end = threading.Event(), threading.Event()

    def ended(stop: Callable[[], bool]) -> None:
        told.append(stop())
        follows.set()
        assert may_end.wait(30)
        told.append(stop())

    worker.submit(lambda _: SNAPSHOT, ended)
    assert follows.wait(30)
    second = worker.submit(lambda _: SNAPSHOT, is_savepoint=True)
    with pytest.raises(TimeoutError):
        second.result(0.1)
    may_end.set()
    assert second.result(30) == SNAPSHOT
    worker.close()
    assert told == [False, True]
