"""Committing checkpoints in the background: again until it is decided, and never after a loss."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.runtime.checkpoint.commands import Store, Trigger
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.events import AttemptEvent, CheckpointStored, EventQueue, StoreFailed
from holdfast.storage import (
    Buffer,
    Fenced,
    FileHandle,
    FileSystemCheckpointStorage,
    Invalid,
    JobManagerCheckpointStorage,
    JobOwner,
    JobResult,
    JobStorage,
    ManualClock,
    ObjectInfo,
    StateSnapshot,
    Unavailable,
    names,
)
from holdfast.storage.retries import Backoff
from support.waiting import wait_until

FINISHED = JobResult(job_id="job", status="finished", ended_ms=9)


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
        if not name.endswith("_metadata") and ".result-" not in name:
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


def store(number: int, *files: str) -> Store:
    handles = {file: FileHandle(file, 0, 1, "00") for file in files}
    return Store(
        checkpoint_id=number,
        triggered_ms=5,
        trigger=Trigger.REQUESTED,
        operators={"sum": (StateSnapshot(kind="t/1", slot=0), StateSnapshot(kind="t/1", slot=1))},
        sources={"a": StateSnapshot(kind="s/1", handles={**handles})},
    )


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(
        "holdfast.runtime.driver.checkpoints.checkpoint_keeper._PAUSES", Backoff(0.001, 5.0)
    )
    stage = Stage()
    yield stage
    stage.keeper.give_up()
    stage.keeper.close()


def test_a_checkpoint_is_written_as_it_was_told(stage: Stage) -> None:
    told = stage.store(4)
    assert isinstance(told, CheckpointStored)
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
    assert isinstance(stage.store(4), CheckpointStored)
    assert stage.storage.asked == 5
    assert stage.job.completed() == (4,)


def test_a_delayed_commit_is_reported_ever_more_rarely(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "holdfast.runtime.driver.checkpoints.checkpoint_keeper._PAUSES", Backoff(0.001, 0.001)
    )
    stage.storage.failures = 40
    seen: list[str] = []
    create = stage.storage.create

    def noting(name: str, data: Buffer) -> bytes | None:
        seen.append(stage.keeper.trouble)
        return create(name, data)

    monkeypatch.setattr(stage.storage, "create", noting)
    assert isinstance(stage.store(4), CheckpointStored)
    assert [message.split(" tries ")[0][-2:].strip() for message in caplog.messages] == [
        "1",
        "2",
        "4",
        "8",
        "16",
        "32",
    ]
    assert seen[0] == stage.keeper.trouble == ""
    assert seen[40] == (
        "checkpoint 4 of job 'job' is not committed after 40 tries in 0 s, and is tried again: "
        "no answer"
    )


def test_old_checkpoints_are_deleted_when_it_is_said_and_but_for_those_that_are_built_on(
    stage: Stage,
) -> None:
    for number in (1, 2, 3, 4):
        stage.store(number)
    stage.keeper.finish_deleting()
    assert stage.job.completed() == (1, 2, 3, 4)
    stage.keeper.retain(2)
    stage.keeper.finish_deleting()
    assert stage.job.completed() == (2, 3, 4)
    stage.keeper.retain(4)
    stage.keeper.finish_deleting()
    assert stage.job.completed() == (4,)


def test_old_checkpoints_are_deleted_at_last_when_an_attempt_is_over(stage: Stage) -> None:
    """A checkpoint stored too late is not announced as one more; others are not affected."""
    for number in (1, 2):
        stage.store(number)
    stage.keeper.clean()
    stage.keeper.finish_deleting()
    assert stage.job.completed() == (2,)
    stage.owner.commit(msgspec.structs.replace(stage.job.load(2), checkpoint_id=3))
    stage.keeper.clean()
    stage.keeper.finish_deleting()
    assert stage.job.completed() == (2, 3)


def test_a_checkpoint_counts_although_older_ones_cannot_be_deleted(stage: Stage) -> None:
    stage.storage.deletes_fail = True
    assert isinstance(stage.store(1), CheckpointStored)
    assert isinstance(stage.store(2), CheckpointStored)
    stage.keeper.retain(2)
    assert isinstance(stage.store(3), CheckpointStored)
    stage.keeper.settle()
    assert stage.job.completed() == (1, 2, 3)
    stage.storage.deletes_fail = False
    stage.keeper.clean()
    stage.keeper.finish_deleting()
    assert stage.job.completed() == (3,)


def test_a_fenced_keeper_cannot_commit(stage: Stage) -> None:
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
    assert isinstance(stage.store(5), CheckpointStored)


def test_an_unexpected_error_is_reported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(_: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(stage.owner, "commit", commit)
    assert stage.store(4) == StoreFailed(4, "a bug", is_fatal=False)


def test_giving_up_ends_the_waiting(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "holdfast.runtime.driver.checkpoints.checkpoint_keeper._PAUSES", Backoff(60.0)
    )
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
    monkeypatch.setattr(
        "holdfast.runtime.driver.checkpoints.checkpoint_keeper._PAUSES", Backoff(60.0)
    )
    stage.storage.failures = 1
    stage.keeper.give_up()
    assert isinstance(stage.store(4), StoreFailed)
    told = stage.store(5)
    assert isinstance(told, StoreFailed)
    assert "is not decided" in told.reason
    with pytest.raises(Invalid, match="is not decided"):
        stage.keeper.delete_all()


@pytest.mark.parametrize("is_late", [False, True])
def test_the_end_is_recorded_although_the_storage_is_slow(
    stage: Stage,
    is_late: bool,  # noqa: FBT001
) -> None:
    stage.store(4)
    stage.storage.asked, stage.storage.failures, stage.storage.is_late = 0, 3, is_late
    stage.keeper.end(FINISHED)
    result = stage.job.result()
    assert result is not None
    assert (result.status, result.ended_ms, result.epoch) == ("finished", 9, 1)
    stage.keeper.delete_all()
    assert (stage.job.completed(), stage.job.result()) == ((), result)


def test_an_end_that_cannot_be_recorded_is_given_up_in_time(stage: Stage) -> None:
    stage.store(4)
    stage.storage.asked, stage.storage.failures = 0, 1_000
    with pytest.raises(Unavailable):
        stage.keeper.end(FINISHED)
    assert 1 < stage.storage.asked < 20
    assert stage.job.result() is None
    assert stage.keeper.has_checkpoints


def test_a_fenced_keeper_cannot_record_the_end(stage: Stage) -> None:
    stage.job.take_over()
    with pytest.raises(Fenced):
        stage.keeper.end(FINISHED)
    assert stage.job.result() is None


def test_the_last_decision_is_known(stage: Stage) -> None:
    assert stage.keeper.decided is None
    told = stage.store(4)
    assert stage.keeper.decided == told
    stage.storage.create(f"{stage.job.folder}/{names.metadata(5)}", b"of a driver that was late")
    told = stage.store(5)
    assert isinstance(told, StoreFailed)
    assert stage.keeper.decided == told


class Folder:
    """A keeper over files, as slots and sources leave them."""

    def __init__(self, root: Path) -> None:
        self.storage = Counting(str(root))
        self.job: JobStorage = self.storage.job("job")
        self.clock = ManualClock(777)
        self.events = EventQueue()
        self.take_over()

    def take_over(self) -> None:
        self.keeper = CheckpointKeeper(
            self.job,
            self.job.take_over(),
            retained=1,
            parallelism=2,
            max_parallelism=8,
            clock=self.clock,
        )

    def leave(self, *names: str) -> None:
        for name in names:
            self.storage.write(f"job/{name}", b"x")

    def store(self, number: int, *files: str) -> None:
        self.keeper.store(store(number, *files), self.events)
        assert isinstance(self.events.next(10), CheckpointStored)
        self.keeper.retain(number)
        self.keeper.finish_deleting()

    def files(self) -> list[str]:
        """What is there but commit points and the records of owners."""
        listed = FileSystemCheckpointStorage.list(self.storage, "job/")
        found = (info.name.removeprefix("job/") for info in listed)
        return [name for name in found if "_metadata" not in name and "owner-" not in name]


class Counting(FileSystemCheckpointStorage):
    """Knows how often all that a job has was listed, and may fail to."""

    listings = 0
    error: Exception | None = None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix == "job/":
            self.listings += 1
            if self.error is not None:
                raise self.error
        return super().list(prefix)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    yield folder
    folder.keeper.close()


def slot(number: int, name: str = "slot-0-aa") -> str:
    return names.exclusive_file(number, name, "bb")


def log(number: int) -> str:
    return names.shared_file(number, "source", "cc")


def test_files_of_ended_attempts_are_deleted(folder: Folder) -> None:
    folder.leave(slot(1), slot(2), log(2), slot(3), log(3))
    folder.store(2, slot(2), log(2))
    unfinished = folder.storage.writer(f"job/{slot(3, 'unfinished')}")
    unfinished.write(b"x" * 100_000)
    folder.keeper.skip_to(4)
    folder.keeper.clean()
    folder.keeper.finish_deleting()
    assert [*folder.storage.unfinished("job/")] == []
    unfinished.abort()
    assert folder.files() == [slot(2), log(2)]
    assert folder.job.completed() == (2,)


def test_files_of_the_next_attempt_are_kept(folder: Folder) -> None:
    """Cleaning may be late: slots of the next attempt write already."""
    folder.keeper.skip_to(4)
    folder.leave(slot(3), slot(4), log(5), slot(7))
    with folder.storage.writer(f"job/{slot(6)}") as unfinished:
        unfinished.write(b"x" * 100_000)
        folder.keeper.clean()
        folder.keeper.finish_deleting()
    assert folder.files() == [slot(4), slot(6), slot(7), log(5)]


def test_files_of_an_earlier_driver_are_deleted_except_retained_ones(folder: Folder) -> None:
    folder.leave(log(1), slot(2), log(2), slot(3), log(3))
    folder.store(1, log(1))
    folder.store(2, slot(2), log(1))
    folder.keeper.close()
    folder.take_over()
    folder.keeper.clean()
    folder.keeper.finish_deleting()
    assert folder.files() == [slot(2), log(1)]
    assert [record.epoch for record in folder.job.owner_records()] == [2, 2]
    assert folder.job.completed() == (2,)


def test_leftovers_are_deleted_if_only_shared_files_show_them(folder: Folder) -> None:
    """It was killed while it wrote 2 to 4, and had small parts inline: the next one begins at 5."""
    folder.leave(log(1), log(2), log(3), log(4))
    folder.store(1, log(1))
    folder.keeper.close()
    folder.take_over()
    folder.keeper.clean()
    folder.keeper.finish_deleting()
    assert folder.files() == [log(1)]


def test_files_of_aborted_checkpoints_are_deleted_while_the_job_runs(folder: Folder) -> None:
    """But nothing that may still be written or referred to, and not after every checkpoint."""
    folder.keeper.clean()
    folder.keeper.finish_deleting()
    listings = folder.storage.listings
    for number in (1, 2):
        folder.store(number)
    folder.leave(slot(3), log(3), slot(4), log(5), slot(6), log(6), slot(7), log(7))
    folder.store(5, log(5))  # 3 and 4 were given up; a slot may write them still
    assert (folder.files(), folder.storage.listings) == (
        [slot(3), slot(4), slot(6), slot(7), log(3), log(5), log(6), log(7)],
        listings,
    )
    folder.store(6, slot(6), log(5))
    assert folder.files() == [slot(6), slot(7), log(5), log(6), log(7)]
    assert folder.storage.listings == listings + 1

    folder.leave(slot(9), slot(10))
    folder.store(8, log(5))
    folder.store(9, slot(9), log(5))
    assert slot(7) in folder.files(), "too soon to look again"
    folder.clock.advance(60_000)
    folder.store(10, slot(10))
    assert folder.files() == [slot(10)]
    for number in range(11, 30):
        folder.clock.advance(60_000)
        folder.store(number)
    assert folder.storage.listings == listings + 2


def test_a_failed_cleaning_does_not_fail_the_job(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.storage.error = Unavailable("no answer")
    folder.keeper.clean()
    wait_until(lambda: "could not be deleted, and will be later: no answer" in caplog.text)
    for error in (Unavailable("no answer"), OSError("a bad disk"), TypeError("a bug")):
        folder.storage.error = error
        folder.keeper.clean()
        with pytest.raises(type(error)):
            folder.keeper.finish_deleting()
    folder.storage.error = None
    folder.store(1)
    folder.storage.error = None
    folder.leave(slot(2))
    folder.keeper.skip_to(3)
    folder.keeper.clean()
    folder.keeper.finish_deleting()
    assert folder.files() == []


def test_a_fenced_keeper_deletes_nothing(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    folder.leave(slot(0))
    folder.job.take_over()
    folder.keeper.clean()
    folder.keeper.finish_deleting()
    assert folder.files() == [slot(0)]
    assert caplog.text == ""
