"""Deleting what was given up: in which order, how much at a time, and what it costs."""

from __future__ import annotations

import pytest

from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Fenced,
    FileHandle,
    Invalid,
    JobManagerCheckpointStorage,
    JobOwner,
    JobStorage,
    StateSnapshot,
    Taken,
    Unavailable,
    names,
)
from holdfast.storage.testing.example_jobs import remove, retain
from holdfast.storage.testing.watched_storage import Call, Recorder, WatchedStorage
from support.storages.counting_storage import CountingStorage

JOB = "job"


def document(number: int, *files: str) -> CheckpointMetadata:
    handles = {file: FileHandle(file, 0, 1, "00") for file in files}
    part = StateSnapshot(kind="test/1", handles={**handles})
    return CheckpointMetadata(
        job_id=JOB, checkpoint_id=number, triggered_ms=0, completed_ms=0, parts={"all": part}
    )


def own(number: int) -> str:
    return names.exclusive_file(number, "slot", "aa")


def shared(number: int) -> str:
    return names.shared_file(number, "slot", "aa")


def point(number: int) -> str:
    return names.metadata(number)


def commit(job: JobStorage, owner: JobOwner, number: int, *others: str) -> None:
    for name in (own(number), shared(number)):
        job.storage.write(f"{JOB}/{name}", b"x")
    owner.commit(document(number, own(number), shared(number), *others))


def kept(job: JobStorage) -> list[str]:
    found = [info.name.partition("/")[2] for info in job.storage.list(f"{JOB}/")]
    return [name for name in found if names.parse_owner(name) is None]


class Stage:
    def __init__(self, checkpoints: int, *, late_creates: bool = False) -> None:
        self.storage = CountingStorage(late_creates=late_creates)
        self.job = self.storage.job(JOB)
        self.owner = self.job.take_over()
        for number in range(1, checkpoints + 1):
            commit(self.job, self.owner, number)
        self.sweeper = self.owner.sweeper
        self.storage.calls.clear()
        self.storage.listed.clear()

    @property
    def batches(self) -> list[list[str]]:
        return [[name.partition("/")[2] for name in batch] for batch in self.storage.batches]


@pytest.fixture
def stage() -> Stage:
    return Stage(4)


def test_a_release_is_decided_at_once_and_deleted_later(stage: Stage) -> None:
    assert stage.owner.release(1) == (1, 2, 3)
    assert stage.owner.completed == (4,)
    assert not stage.storage.calls, "to decide asks the storage nothing"
    assert stage.job.completed() == (1, 2, 3, 4)
    stage.sweeper.run()
    assert kept(stage.job) == [point(4), own(4), shared(4)]
    assert not stage.sweeper.owes


def test_commit_points_are_deleted_first_and_ownership_is_checked_before_each_batch() -> None:
    storage = JobManagerCheckpointStorage()
    recorder = Recorder()
    watched = WatchedStorage(storage, before=recorder)
    job = watched.job(JOB)
    owner = job.take_over()
    for number in range(1, 6):
        commit(job, owner, number)
    owner.release(1)
    recorder.calls.clear()
    deleted = []
    while owner.sweeper.owes:
        deleted.append(owner.sweeper.step(3))
    assert deleted == [0, 1, 1, 1, 1, 3, 3, 2]
    look = [Call("list", f"{JOB}/owner-")]
    calls = [
        call.name.partition("/")[2] if call.verb == "delete" else call for call in recorder.calls
    ]
    assert calls == [
        *[*look, point(1), *look, point(2), *look, point(3), *look, point(4)],
        *[*look, own(1), own(2), own(3)],
        *[*look, own(4), shared(1), shared(2)],
        *[*look, shared(3), shared(4)],
    ]


def test_a_fenced_owner_deletes_nothing_more(stage: Stage) -> None:
    stage.owner.release(1)
    assert [stage.sweeper.step(2) for _ in range(3)] == [0, 1, 1]
    newer = stage.job.take_over()
    with pytest.raises(Fenced):
        stage.sweeper.step(2)
    assert not stage.sweeper.owes
    assert newer.completed == (3, 4)
    assert {own(1), own(2), own(3), point(3)} <= set(kept(stage.job))
    remove(newer, newer.orphans())
    retain(newer, 1)
    assert kept(stage.job) == [point(4), own(4), shared(4)]


def test_no_file_is_deleted_before_every_commit_point(stage: Stage) -> None:
    def refuse(batch: list[str]) -> None:
        if f"{JOB}/{point(2)}" in batch:
            raise Unavailable("cannot delete")

    stage.storage.on_delete = refuse
    stage.owner.release(2)
    for _ in range(3):
        with pytest.raises(Unavailable):
            stage.sweeper.run()
    assert stage.job.completed() == (2, 3, 4), "the older one first, and none before it"
    stage.owner.release(1)
    with pytest.raises(Unavailable):
        stage.sweeper.run()
    for number in (2, 3, 4):
        assert {point(number), own(number), shared(number)} <= set(kept(stage.job))
    stage.storage.on_delete = lambda _: None
    stage.sweeper.run()
    assert kept(stage.job) == [point(4), own(4), shared(4)]


def test_an_object_that_cannot_be_deleted_stops_no_other_and_is_tried_again(stage: Stage) -> None:
    def refuse(batch: list[str]) -> None:
        if f"{JOB}/{own(1)}" in batch:
            raise Invalid("no permission to delete")

    stage.storage.on_delete = refuse
    stage.owner.release(1)
    refused = 0
    for _ in range(20):
        try:
            stage.sweeper.step(1)
        except Invalid:
            refused += 1
    assert refused > 1
    assert kept(stage.job) == sorted([own(1), point(4), own(4), shared(4)])
    stage.storage.on_delete = lambda _: None
    assert stage.sweeper.step() == 1
    assert not stage.sweeper.owes
    assert own(1) not in kept(stage.job)


def test_files_that_a_kept_one_needs_stay_whatever_is_released_later(stage: Stage) -> None:
    commit(stage.job, stage.owner, 5, shared(1), shared(4))
    stage.owner.release(3)
    stage.owner.release(1)
    stage.sweeper.run()
    assert kept(stage.job) == sorted([point(5), own(5), shared(5), shared(1), shared(4)])


def test_an_unreadable_retained_checkpoint_keeps_only_files_it_may_need() -> None:
    stage = Stage(4)
    stage.owner = stage.job.take_over()
    stage.sweeper = stage.owner.sweeper
    stage.storage.write(f"{JOB}/{point(3)}", b"damaged")
    stage.storage.write(f"{JOB}/{own(0)}", b"x")
    stage.owner.release(2)
    stage.sweeper.delete([own(0)])
    for _ in range(2):
        with pytest.raises(Corrupt, match=f"{3:020d}"):
            stage.sweeper.run()
    assert own(0) not in kept(stage.job)
    assert {point(1), own(1), point(2), own(2)} <= set(kept(stage.job))
    stage.owner.release(1)
    stage.sweeper.run()
    assert kept(stage.job) == sorted([point(4), own(4), shared(4), own(3), shared(3)])
    stage.owner.release_orphans()
    stage.sweeper.run()
    assert kept(stage.job) == [point(4), own(4), shared(4)]


def test_orphans_are_told_by_what_was_so_when_they_were_asked_for(stage: Stage) -> None:
    """The search comes late: others were committed, and released, and written meanwhile."""
    stage.storage.write(f"{JOB}/{own(0)}", b"x")
    stage.owner.release_orphans(in_flight=range(5, 100))
    commit(stage.job, stage.owner, 5, shared(4))
    stage.storage.write(f"{JOB}/{own(6)}", b"x")
    stage.owner.release(1)
    stage.sweeper.run()
    assert kept(stage.job) == sorted([point(5), own(5), shared(5), shared(4), own(6)])


def test_a_number_whose_commit_point_is_to_be_deleted_is_not_given_again(stage: Stage) -> None:
    """Else its deletion, tried again after a lost answer, would take the new one."""
    stage.owner.release(1)
    for _ in range(2):
        with pytest.raises(Taken, match=r"checkpoint 2 of job 'job' is about to be deleted"):
            stage.owner.commit(document(2))
        stage.sweeper.step(0)
    stage.sweeper.run()
    stage.owner.commit(document(5))


def test_a_checkpoint_that_vanishes_while_it_is_restored_keeps_its_files() -> None:
    """An older owner has looked, and then its deletion of the commit point takes its time."""
    stage = Stage(4)
    older = stage.owner
    older.release_one(2)
    stage.sweeper.step(0)
    newer: list[JobOwner] = []

    def take_over(_: list[str]) -> None:
        stage.storage.on_delete = lambda _: None
        newer.append(stage.job.take_over())
        newer[0].hold(stage.job.load(2))

    stage.storage.on_delete = take_over
    with pytest.raises(Fenced):
        stage.sweeper.run()
    assert 2 not in stage.job.completed()
    (owner,) = newer
    assert 2 in owner.completed
    remove(owner, owner.orphans())
    assert {own(2), shared(2)} <= set(kept(stage.job))
    commit(stage.job, owner, 5, shared(2))
    retain(owner, 1)
    assert kept(stage.job) == sorted([point(5), own(5), shared(5), shared(2)])


@pytest.mark.parametrize("late_creates", [False, True])
def test_retention_costs_the_same_however_many_there_have_been(*, late_creates: bool) -> None:
    """Ten of a thousand are retained, with files that they share: nothing is listed or read.

    Where creates may be late a record says what is void, and takes the place of the last one.
    """
    stage = Stage(0, late_creates=late_creates)
    for number in range(1, 1001):
        before = stage.storage.calls.copy()
        borrowed = [shared(other) for other in range(max(1, number - 5), number)]
        commit(stage.job, stage.owner, number, *borrowed)
        stage.owner.release(10)
        stage.sweeper.run()
        calls = stage.storage.calls - before
        expected = {"create": 1, "writer": 2, "list owners": 2}
        if number > 10:  # a look and a deletion of points, and another of files
            expected |= {"list owners": 4, "delete": 2, "create": 1 + late_creates}
        assert calls == expected, number
    most = 4 if late_creates else 2
    assert stage.storage.listed["list owners"] <= most * stage.storage.calls["list owners"]
    assert len(kept(stage.job)) == 10 + 10 + 15


def test_deletion_of_many_is_few_requests() -> None:
    stage = Stage(0)
    files = [names.shared_file(1, f"{number}", "aa") for number in range(2500)]
    for name in files:
        stage.storage.write(f"{JOB}/{name}", b"x")
    stage.owner.commit(document(1, *files))
    commit(stage.job, stage.owner, 2)
    retain(stage.owner, 1)
    assert [len(batch) for batch in stage.storage.batches] == [1, 1000, 1000, 500]


def test_a_commit_point_that_cannot_be_deleted_is_told_by_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Commit points go in order, so it blocks all other deletions: the log must name it."""
    inner = JobManagerCheckpointStorage()
    is_locked = True

    def locked(call: Call) -> None:
        if is_locked and call.verb == "delete" and call.name == f"{JOB}/{point(1)}":
            raise Invalid("it is kept by a lock", where=call.name)

    job = WatchedStorage(inner, before=locked).job(JOB)
    owner = job.take_over()
    for number in (1, 2, 3):
        commit(job, owner, number)
    owner.release(1)
    for _ in range(9):
        with pytest.raises(Invalid):
            owner.sweeper.run()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4, "at the first, second, fourth and eighth time"
    assert f"{point(1)} of job 'job' at memory://job could not be deleted" in told[-1]
    assert "in 8 tries in a row" in told[-1]
    assert "it is kept by a lock" in told[-1]
    assert job.completed() == (1, 2, 3)
    is_locked = False
    owner.sweeper.run()
    assert job.completed() == (3,)
