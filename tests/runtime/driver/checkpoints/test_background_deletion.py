"""Deleting in the background: it delays no caller, keeps its pace, and does not give up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast.runtime.checkpoint.commands import Store, Trigger
from holdfast.runtime.driver.checkpoints.background_deletion import BackgroundSweeper
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.events import CheckpointStored, EventQueue
from holdfast.storage import (
    Fenced,
    FileHandle,
    HoldfastError,
    ManualClock,
    StateSnapshot,
    SystemClock,
    Unavailable,
    names,
)
from holdfast.storage.retries import Backoff
from support.storages.counting_storage import CountingStorage

LONG_S = 30


class Chore:
    """Owes so many objects, and fails as a test says."""

    def __init__(self, objects: int) -> None:
        self.objects = objects
        self.steps: list[int] = []
        self.errors: list[Exception] = []
        self.done = threading.Event()

    @property
    def owes(self) -> bool:
        return self.objects > 0

    def step(self, most: int) -> int:
        self.steps.append(most)
        if self.errors:
            error = self.errors.pop()
            if isinstance(error, Fenced):
                self.objects = 0
                self.done.set()
            raise error
        deleted = min(most, self.objects)
        self.objects -= deleted
        if not self.objects:
            self.done.set()
        return deleted


@pytest.fixture
def sweeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., BackgroundSweeper]]:
    monkeypatch.setattr(
        "holdfast.runtime.driver.checkpoints.background_deletion._PAUSES", Backoff(0.001, 5.0)
    )
    made: list[BackgroundSweeper] = []

    def make(*chores: Chore, most_per_s: float | None = None) -> BackgroundSweeper:
        made.append(BackgroundSweeper(*chores, most_per_s=most_per_s, clock=SystemClock()))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_all_due_deletions_are_done(sweeping: Callable[..., BackgroundSweeper]) -> None:
    one, other = Chore(2500), Chore(3)
    sweeper = sweeping(one, other)
    assert sweeper.owes
    sweeper.wake()
    assert one.done.wait(LONG_S)
    assert other.done.wait(LONG_S)
    assert (one.steps, other.steps) == ([1000] * 3, [1000])
    one.objects = 1
    sweeper.wake()
    while sweeper.owes:
        SystemClock().sleep_s(0.001)


def test_failures_are_retried_and_logged_ever_more_rarely(
    sweeping: Callable[..., BackgroundSweeper],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "holdfast.runtime.driver.checkpoints.background_deletion._PAUSES", Backoff(0.001, 0.002)
    )
    chore = Chore(5)
    chore.errors = [Unavailable("no answer"), OSError("disk"), TypeError("a bug")] * 5
    sweeping(chore).wake()
    assert chore.done.wait(LONG_S)
    told = [message.rpartition(": ")[2] for message in caplog.messages]
    assert told == ["a bug", "disk", "a bug", "disk"], "of 15 failures the 1st, 2nd, 4th, and 8th"


def test_a_fenced_deletion_ends_without_a_warning(
    sweeping: Callable[..., BackgroundSweeper], caplog: pytest.LogCaptureFixture
) -> None:
    chore, other = Chore(5), Chore(5)
    chore.errors = [Fenced("taken over")]
    sweeping(chore, other).wake()
    assert chore.done.wait(LONG_S)
    assert other.done.wait(LONG_S)
    assert caplog.messages == []


def test_a_deletion_that_always_fails_does_not_delay_others(
    sweeping: Callable[..., BackgroundSweeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do its pauses: what others come to owe meanwhile is done at once."""
    monkeypatch.setattr(
        "holdfast.runtime.driver.checkpoints.background_deletion._PAUSES", Backoff(1000.0, 1000.0)
    )
    stuck, other = Chore(5), Chore(2500)
    stuck.errors = [Unavailable("no answer")] * 1000
    sweeper = sweeping(stuck, other)
    sweeper.wake()
    assert other.done.wait(LONG_S)
    other.done.clear()
    other.objects = 1
    sweeper.wake()
    assert other.done.wait(LONG_S)
    assert len(stuck.steps) == 1, "it pauses"
    other.objects = 2
    with pytest.raises(Unavailable, match="no answer"):
        sweeper.finish()
    assert not other.owes, "waiting for all does all that can be done"
    assert len(stuck.steps) == 2
    other.objects = 3
    sweeper.close()
    assert not other.owes
    assert len(stuck.steps) == 2


def test_all_have_their_turns() -> None:
    order: list[int] = []

    class Told(Chore):
        def step(self, most: int) -> int:
            order.append(self.objects // 10_000)
            return super().step(most)

    sweeper = BackgroundSweeper(Told(14_000), Told(25_000), most_per_s=None, clock=SystemClock())
    sweeper.finish()
    assert order[:6] == [1, 2, 1, 2, 1, 2]
    sweeper.close()


@pytest.mark.parametrize(
    ("most_per_s", "batch", "seconds"),
    [(None, 1000, 0), (100, 100, 25), (4000, 1000, 0.625), (1.5, 1, 1666)],
)
def test_the_pace_is_kept(most_per_s: float | None, batch: int, seconds: float) -> None:
    clock, chore = ManualClock(0), Chore(2500)
    sweeper = BackgroundSweeper(chore, most_per_s=most_per_s, clock=clock)
    sweeper.finish()
    assert set(chore.steps) == {batch}
    assert clock.now_ms() == pytest.approx(seconds * 1000, rel=0.01, abs=5)
    sweeper.close()


def test_waiting_for_the_end_raises_the_failure() -> None:
    chore = Chore(5)
    chore.errors = [Unavailable("no answer")]
    sweeper = BackgroundSweeper(chore, most_per_s=None, clock=SystemClock())
    with pytest.raises(HoldfastError, match="no answer"):
        sweeper.finish()
    sweeper.finish()
    assert not chore.owes
    sweeper.close()


def test_at_the_end_there_is_a_moment_for_what_is_left() -> None:
    chore = Chore(2500)
    sweeper = BackgroundSweeper(chore, most_per_s=None, clock=SystemClock())
    sweeper.close()
    assert not chore.owes
    sweeper.wake()

    clock, chore = ManualClock(0), Chore(2500)
    BackgroundSweeper(chore, most_per_s=100, clock=clock).close()
    assert 0 < chore.objects < 2500
    assert clock.now_ms() == 2_000

    chore = Chore(2500)
    chore.errors = [Unavailable("no answer")] * 2
    BackgroundSweeper(chore, most_per_s=None, clock=SystemClock()).close()
    assert len(chore.steps) == 1, "a deletion that does not answer is not waited for"


class Kept:
    """A keeper over a storage whose deletes wait until they may."""

    def __init__(self) -> None:
        self.storage = CountingStorage()
        self.job = self.storage.job("job")
        self.events = EventQueue()
        self.keeper = CheckpointKeeper(
            self.job,
            self.job.take_over(),
            retained=1,
            parallelism=2,
            max_parallelism=8,
            clock=SystemClock(),
        )

    def store(self, number: int) -> None:
        name = names.exclusive_file(number, "slot", "aa")
        self.storage.write(f"job/{name}", b"x")
        state = StateSnapshot(kind="t/1", handles={"all": FileHandle(name, 0, 1, "00")})
        store = Store(
            checkpoint_id=number,
            triggered_ms=0,
            trigger=Trigger.PERIODIC,
            operators={"sum": (state,)},
            sources={},
        )
        self.keeper.store(store, self.events)
        assert isinstance(self.events.next(LONG_S), CheckpointStored)
        self.keeper.retain(number)


def test_a_slow_delete_delays_no_commit() -> None:
    kept = Kept()
    may_delete, has_begun = threading.Event(), threading.Event()

    def wait(_: list[str]) -> None:
        has_begun.set()
        assert may_delete.wait(LONG_S)

    kept.storage.on_delete = wait
    kept.store(1)
    kept.store(2)
    assert has_begun.wait(LONG_S)
    for number in range(3, 20):
        kept.store(number)
    assert kept.job.completed() == tuple(range(1, 20))
    may_delete.set()
    kept.keeper.finish_deleting()
    assert kept.job.completed() == (19,)
    assert len([*kept.storage.list("job/chk-")]) == 2
    kept.keeper.close()


def test_objects_left_by_a_crash_are_deleted_by_the_next_owner() -> None:
    kept = Kept()
    refused = 0

    def refuse(batch: list[str]) -> None:
        nonlocal refused
        refused += 1
        if not batch[0].endswith("_metadata"):
            raise Unavailable("cannot delete")

    kept.storage.on_delete = refuse
    for number in range(1, 5):
        kept.store(number)
    with pytest.raises(Unavailable):
        kept.keeper.finish_deleting()
    kept.keeper.close()
    assert kept.job.completed() == (4,)
    assert len([*kept.storage.list("job/chk-")]) == 5
    kept.storage.on_delete = lambda _: None
    owner = kept.job.take_over()
    owner.release_orphans(in_flight=range(owner.next_checkpoint_id, 100))
    owner.sweeper.run()
    assert [info.name for info in kept.storage.list("job/chk-")] == [
        f"job/{names.metadata(4)}",
        f"job/{names.exclusive_file(4, 'slot', 'aa')}",
    ]
