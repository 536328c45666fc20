"""The background threads of a backend: the order of snapshots, savepoints and maintenance."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

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


def test_backends_share_threads_and_each_keeps_its_order() -> None:
    threads, order = set[int](), list[tuple[int, int]]()

    def write(place: int, number: int, _: SnapshotFuture) -> StateSnapshot:
        threads.add(threading.get_ident())
        order.append((place, number))
        return SNAPSHOT

    workers = [SnapshotWorker(f"op {place}") for place in range(100)]
    for place, worker in enumerate(workers):
        for future in [worker.submit(partial(write, place, number)) for number in range(3)]:
            future.result(30)
    for worker in workers:
        worker.close()
    assert order == [(place, number) for place in range(100) for number in range(3)]
    assert len(threads) < 10


def test_what_fails_after_a_snapshot_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: Callable[[], bool]) -> None:
        raise OSError("cannot be folded")

    worker = SnapshotWorker("op")
    worker.submit(lambda _: SNAPSHOT, fails)
    assert worker.submit(lambda _: SNAPSHOT).result(30) == SNAPSHOT
    worker.close()
    assert "snapshots of op: the work after one of them has failed" in caplog.text
    assert "cannot be folded" in caplog.text


def test_closing_waits_for_a_snapshot_that_is_being_written_and_cancels_others() -> None:
    worker, begun, may_end = SnapshotWorker("op"), threading.Event(), threading.Event()

    def slow(_: SnapshotFuture) -> StateSnapshot:
        begun.set()
        assert may_end.wait(30)
        return SNAPSHOT

    first, second = worker.submit(slow), worker.submit(slow)
    assert begun.wait(30)
    closing = threading.Thread(target=worker.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    may_end.set()
    closing.join(30)
    assert not closing.is_alive()
    assert first.done()
    assert second.cancelled()
