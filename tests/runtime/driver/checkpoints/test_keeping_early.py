"""Files that slots begin before their checkpoints: what the keeper spares, and what it deletes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.runtime.checkpoint.commands import Store, Trigger
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.events import CheckpointStored, EventQueue, StoreFailed
from holdfast.storage import (
    FileHandle,
    JobManagerCheckpointStorage,
    ManualClock,
    StateSnapshot,
    names,
)


def early(number: int) -> str:
    return names.shared_file(number, "log", "aa")


class Stage:
    def __init__(self) -> None:
        self.job = JobManagerCheckpointStorage().job("job")
        self.clock = ManualClock(777)
        self.events = EventQueue()
        self.keeper = CheckpointKeeper(
            self.job,
            self.job.take_over(),
            retained=1,
            parallelism=2,
            max_parallelism=8,
            clock=self.clock,
        )

    def leave(self, *numbers: int) -> None:
        for number in numbers:
            self.job.storage.write(f"job/{early(number)}", b"x")

    def store(self, number: int, *files: int, begun_from: int | None) -> None:
        """Store a checkpoint that refers to files of these numbers, a minute after the last."""
        assert isinstance(self.told(number, *files, begun_from=begun_from), CheckpointStored)
        self.keeper.retain(number)
        self.keeper.finish_deleting()

    def told(self, number: int, *files: int, begun_from: int | None) -> object:
        self.clock.advance(61_000)
        handles = {early(file): FileHandle(early(file), 0, 1, "00") for file in files}
        begins = StateSnapshot(kind="t/1", handles={**handles}, slot=0, begun_from=begun_from)
        store = Store(
            checkpoint_id=number,
            triggered_ms=5,
            trigger=Trigger.REQUESTED,
            operators={"sum": (begins, StateSnapshot(kind="t/1", slot=1))},
            sources={},
        )
        self.keeper.store(store, self.events)
        return self.events.next(10)

    def left(self) -> list[int]:
        listed = self.job.storage.list("job/shared/")
        return [names.writer_of(info.name.removeprefix("job/")) or 0 for info in listed]


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.keeper.close()


def test_files_begun_early_are_kept_over_several_checkpoints(stage: Stage) -> None:
    stage.store(1, begun_from=2)
    stage.leave(2, 3)  # 3 is begun, 2 is forgotten
    for number in (3, 4, 6, 7):  # and 5 is given up
        stage.store(number, begun_from=3)
    assert stage.left() == [3]
    stage.store(8, 3, begun_from=9)
    stage.store(9, 3, begun_from=10)
    assert stage.left() == [3]
    assert stage.job.load(9).files() == {early(3)}


def test_files_left_without_an_aborted_checkpoint_are_deleted(stage: Stage) -> None:
    """A base replaces what was logged since the last checkpoint, without an announcement."""
    stage.store(1, begun_from=2)
    stage.leave(2)
    stage.store(2, begun_from=3)
    stage.leave(3)
    stage.store(3, 3, begun_from=4)
    assert stage.left() == [2, 3], "the last but one may be written still"
    stage.store(4, 3, begun_from=5)
    assert stage.left() == [3]


def test_a_job_that_stops_beginning_files_early_leaves_none(stage: Stage) -> None:
    stage.store(1, begun_from=2)
    stage.leave(1, 2)
    stage.store(2, begun_from=None)
    stage.store(3, begun_from=None)
    assert stage.left() == [2]
    stage.store(4, begun_from=None)
    assert stage.left() == []


def test_files_begun_when_an_attempt_ends_are_orphans(stage: Stage) -> None:
    stage.store(1, begun_from=2)
    stage.leave(2, 3, 4)
    stage.store(3, begun_from=2)  # 4 would have been the next
    stage.keeper.skip_to(5)
    stage.keeper.clean()
    stage.leave(5)
    stage.keeper.finish_deleting()
    assert stage.left() == [5]
    failed = stage.told(5, 4, begun_from=6)
    assert isinstance(failed, StoreFailed)
    assert "may be deleted" in failed.reason
    stage.store(6, 5, begun_from=7)
    assert stage.job.load(6).files() == {early(5)}
