"""Committing checkpoints in the background: again until it is decided, and never after a loss."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pytest

from holdfast.runtime.checkpoint import Store, Trigger
from holdfast.runtime.driver.events import AttemptEvent, EventQueue, Stored, StoreFailed
from holdfast.runtime.driver.keeper import CheckpointKeeper
from holdfast.storage import (
    Buffer,
    Fenced,
    Invalid,
    JobManagerCheckpointStorage,
    JobOwner,
    ManualClock,
    StateSnapshot,
    Unavailable,
)


class Flaky(JobManagerCheckpointStorage):
    """A storage that fails a few times, before or after what it does took effect."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self.is_late = False
        self.deletes_fail = False
        self.asked = 0
        self.was_asked = threading.Event()

    def create(self, name: str, data: Buffer) -> bytes | None:
        if not name.endswith("_metadata"):
            return super().create(name, data)
        self.asked += 1
        fails = self.asked <= self.failures
        existing = super().create(name, data) if self.is_late or not fails else None
        self.was_asked.set()
        if fails:
            raise Unavailable("no answer")
        return existing

    def delete(self, names: Iterable[str]) -> None:
        if self.deletes_fail:
            raise Unavailable("cannot delete")
        super().delete(names)


class Stage:
    def __init__(self, *, retained: int = 1) -> None:
        self.storage = Flaky()
        self.job = self.storage.job("job")
        self.owner: JobOwner = self.job.take_over()
        self.events = EventQueue()
        self.keeper = CheckpointKeeper(
            self.job,
            self.owner,
            retained=retained,
            parallelism=2,
            max_parallelism=8,
            clock=ManualClock(777),
        )

    def store(self, number: int) -> AttemptEvent | None:
        self.keeper.store(store(number), self.events)
        return self.events.next(10)


def store(number: int) -> Store:
    return Store(
        checkpoint_id=number,
        triggered_ms=5,
        trigger=Trigger.REQUESTED,
        operators={"sum": (StateSnapshot(kind="t/1", slot=0), StateSnapshot(kind="t/1", slot=1))},
        sources={"a": StateSnapshot(kind="s/1")},
    )


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr("holdfast.runtime.driver.keeper._FIRST_PAUSE_S", 0.001)
    stage = Stage()
    yield stage
    stage.keeper.give_up()
    stage.keeper.close()


def test_a_checkpoint_is_written_as_it_was_told(stage: Stage) -> None:
    told = stage.store(4)
    assert isinstance(told, Stored)
    metadata = stage.job.load(4)
    assert told.metadata == metadata
    assert stage.keeper.last == metadata
    assert metadata.operators["sum"].parts == store(4).operators["sum"]
    assert (metadata.operators["sum"].parallelism, metadata.operators["sum"].max_parallelism) == (
        2,
        8,
    )
    assert metadata.sources == store(4).sources
    assert (metadata.triggered_ms, metadata.completed_ms) == (5, 777)
    assert metadata.properties == {"trigger": "requested"}


@pytest.mark.parametrize("is_late", [False, True])
def test_a_commit_is_tried_until_it_is_decided(stage: Stage, is_late: bool) -> None:  # noqa: FBT001
    stage.storage.failures, stage.storage.is_late = 4, is_late
    assert isinstance(stage.store(4), Stored)
    assert stage.storage.asked == 5
    assert stage.job.completed() == (4,)


def test_old_checkpoints_are_deleted(stage: Stage) -> None:
    for number in (1, 2, 3):
        stage.store(number)
    stage.keeper.settle()
    assert stage.job.completed() == (3,)


def test_a_checkpoint_counts_although_older_ones_cannot_be_deleted(stage: Stage) -> None:
    stage.storage.deletes_fail = True
    assert isinstance(stage.store(1), Stored)
    assert isinstance(stage.store(2), Stored)
    stage.keeper.settle()
    assert stage.job.completed() == (1, 2)
    stage.storage.deletes_fail = False
    assert isinstance(stage.store(3), Stored)
    stage.keeper.settle()
    assert stage.job.completed() == (3,)


def test_who_was_taken_over_may_not_commit(stage: Stage) -> None:
    newer = stage.job.take_over()
    told = stage.store(4)
    assert isinstance(told, StoreFailed)
    assert told.is_fatal
    assert stage.keeper.last is None
    assert newer.completed == ()
    with pytest.raises(Fenced):
        stage.keeper.check()


def test_a_number_that_is_taken_fails_this_checkpoint_only(stage: Stage) -> None:
    stage.storage.create(f"{stage.job.folder}/chk-{4:020d}/_metadata", b"of a driver that was late")
    told = stage.store(4)
    assert isinstance(told, StoreFailed)
    assert not told.is_fatal
    assert isinstance(stage.store(5), Stored)


def test_an_error_that_nobody_thought_of_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(_: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(stage.owner, "commit", commit)
    assert stage.store(4) == StoreFailed(4, "a bug", is_fatal=False)


def test_giving_up_ends_the_waiting(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.driver.keeper._FIRST_PAUSE_S", 60.0)
    stage.storage.failures = 1_000
    stage.keeper.store(store(4), stage.events)
    assert stage.storage.was_asked.wait(10)
    stage.keeper.give_up()
    told = stage.events.next(10)
    assert isinstance(told, StoreFailed)
    assert not told.is_fatal


def test_numbers_ascend_over_attempts(stage: Stage) -> None:
    assert stage.keeper.next_checkpoint_id == 1
    stage.keeper.skip_to(9)
    stage.keeper.skip_to(4)
    assert stage.keeper.next_checkpoint_id == 9
    stage.store(12)
    assert stage.keeper.next_checkpoint_id == 13
    assert stage.keeper.epoch == stage.owner.epoch == 1


def test_in_the_end_nothing_is_left(stage: Stage) -> None:
    with stage.job.segments(7, "slot-0") as writer:
        writer.add(b"of a checkpoint that was aborted")
    stage.store(4)
    stage.keeper.delete_all()
    assert [info.name for info in stage.storage.list("job/chk-")] == []
    assert stage.job.completed() == ()


def test_a_commit_that_is_not_decided_blocks_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.runtime.driver.keeper._FIRST_PAUSE_S", 60.0)
    stage.storage.failures = 1
    stage.keeper.give_up()
    assert isinstance(stage.store(4), StoreFailed)
    told = stage.store(5)
    assert isinstance(told, StoreFailed)
    assert "is not decided" in told.reason
    with pytest.raises(Invalid, match="is not decided"):
        stage.keeper.delete_all()
