"""Commits beside the slot's thread: their order, their retries, their deadline, their end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from holdfast.runtime.task.committer import SlotCommitter
from holdfast.storage import Corrupt, ManualClock, SystemClock, Unavailable
from support.jobs.attempt_with_played_slots import InlineExecutor
from support.waiting import wait_until

WHAT = "cannot commit to sink 'out'"


def after(
    event: threading.Event,
    call: Callable[[], None] = lambda: None,
    before: Callable[[], None] = lambda: None,
) -> None:
    """A call that waits."""
    before()
    event.wait()
    call()


class Sink:
    """Notes what is committed, and raises what is in the way."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.committed: list[int] = []
        self.done: list[int] = []

    def commit(self, committer: SlotCommitter, number: int, **options: Any) -> None:
        def call() -> None:
            if self.errors:
                raise self.errors.pop(0)
            self.committed.append(number)

        committer.commit(call, lambda: self.done.append(number), what=WHAT, **options)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def committer(clock: ManualClock) -> SlotCommitter:
    executor: Any = InlineExecutor()
    return SlotCommitter("out", clock, executor=executor)


@pytest.fixture
def threaded() -> Iterator[SlotCommitter]:
    with closing(SlotCommitter("out", SystemClock())) as made:
        yield made


def test_a_slow_place_holds_up_no_one_else_and_commits_keep_their_order() -> None:
    slow, rung, committed = threading.Event(), threading.Event(), list[int]()
    committer = SlotCommitter("out", SystemClock(), rung.set)
    with closing(committer):
        for number in range(1, 4):
            committer.commit(
                partial(after, slow, partial(committed.append, number)),
                partial(committed.append, 10 * number),
                what=WHAT,
            )
        assert not committed
        assert not committer.is_idle
        slow.set()
        wait_until(lambda: committed == [1, 2, 3])
        assert rung.wait(20), "the slot's thread is told that there is something to collect"
        committer.wait()
        assert committed == [1, 2, 3, 10, 20, 30], "operators are told in the slot's thread"


def test_a_place_that_answers_late_is_asked_with_growing_pauses(
    committer: SlotCommitter, clock: ManualClock
) -> None:
    sink = Sink(*[Unavailable("not now")] * 3)
    sink.commit(committer, 1)
    assert (sink.committed, sink.done) == ([1], [1])
    assert clock.monotonic_s() == pytest.approx(0.1 + 0.2 + 0.4)


def test_without_a_deadline_a_commit_is_tried_so_and_so_often(committer: SlotCommitter) -> None:
    sink = Sink(*[Unavailable("not now", where="bucket", fix="Wait")] * 11)
    with pytest.raises(
        Unavailable, match=rf"^{WHAT} after 10 retries \[bucket\]: found not now. Wait"
    ):
        sink.commit(committer, 1)
    assert not sink.errors


def test_with_a_deadline_it_is_tried_until_then(
    committer: SlotCommitter, clock: ManualClock
) -> None:
    sink = Sink(*[Unavailable("not now")] * 1000)
    with pytest.raises(Unavailable, match="retries; its deadline is over"):
        sink.commit(committer, 1, deadline_s=100.0)
    assert 95 < clock.monotonic_s() <= 100, "more than ten times"


def test_no_commit_is_made_after_a_failed_one(threaded: SlotCommitter) -> None:
    sink = Sink(Corrupt("the file is gone"))
    go = threading.Event()
    threaded.commit(partial(after, go), what=WHAT)
    for number in (1, 2):
        sink.commit(threaded, number)
    go.set()
    with pytest.raises(Corrupt, match="the file is gone"):
        threaded.wait()
    threaded.close()
    assert not sink.committed


def test_opening_waits_for_all_commits(threaded: SlotCommitter) -> None:
    sink = Sink(Unavailable("not now"))
    for number in (1, 2):
        sink.commit(threaded, number)
    threaded.wait()
    assert sink.done == [1, 2]
    assert threaded.is_idle


def test_no_commit_begins_after_the_close() -> None:
    committer, begun, go = SlotCommitter("out", SystemClock()), threading.Event(), threading.Event()
    sink = Sink()
    committer.commit(partial(after, go, before=begun.set), what=WHAT)
    sink.commit(committer, 2)
    assert begun.wait(20)
    closer = threading.Thread(target=committer.close)
    closer.start()
    go.set()
    closer.join(20)
    assert not closer.is_alive()
    assert not sink.committed


class SluggishClock(SystemClock):
    """Pauses last a minute."""

    paused = threading.Event()

    def sleep_s(self, seconds: float) -> None:
        self.wait_s(threading.Event(), seconds)

    def wait_s(self, event: threading.Event, seconds: float) -> bool:
        self.paused.set()
        return super().wait_s(event, 60)


def test_a_close_ends_the_pause_before_the_next_try() -> None:
    clock = SluggishClock()
    committer, sink = SlotCommitter("out", clock), Sink(*[Unavailable("not now")] * 2)
    sink.commit(committer, 1)
    assert clock.paused.wait(20)
    closer = threading.Thread(target=committer.close)
    closer.start()
    closer.join(20)
    assert not closer.is_alive()
    assert len(sink.errors) == 1
    assert not sink.committed


def test_a_commit_that_does_not_return_is_told_by_name() -> None:
    clock, begun, go = ManualClock(), threading.Event(), threading.Event()

    committer = SlotCommitter("out", clock)
    committer.commit(partial(after, go, before=begun.set), what=WHAT)
    assert begun.wait(20)
    wait_until(lambda: committer.long_call() is None)
    clock.advance(5_000)
    told = committer.long_call()
    assert told is not None
    assert told.uid == "out"
    assert told.for_s >= 2
    go.set()
    committer.close()
