"""How a run begins: what it goes on from, what it takes over, and what has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

from holdfast.runtime.driver.ended_run import EndedRun
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.restoring import LATEST
from holdfast.runtime.driver.run import JobStatus
from holdfast.runtime.driver.startup.take_over import Beginning, begin
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Fenced,
    Invalid,
    JobManagerCheckpointStorage,
    JobOwner,
    JobResult,
    JobStorage,
    NotFound,
    Unavailable,
    load_storage,
    names,
)
from holdfast.storage.restore_points import RestorePoint
from holdfast.storage.testing.example_jobs import clear

ENDED_MS = 1_700_000_000_000


@pytest.fixture
def job() -> JobStorage:
    return load_storage("memory://").job("job")


def fits(_point: RestorePoint) -> None:
    """Everything does."""


def commit(owner: JobOwner, number: int) -> None:
    commit_of("job", owner, number)


def commit_of(job: str, owner: JobOwner, number: int) -> None:
    owner.commit(
        CheckpointMetadata(job_id=job, checkpoint_id=number, triggered_ms=0, completed_ms=0)
    )


def result(status: str = "finished") -> JobResult:
    return JobResult(job_id="job", status=status, ended_ms=ENDED_MS)


def began(job: JobStorage, restore: str | None) -> Beginning:
    beginning = begin(job, restore, fits)
    assert isinstance(beginning, Beginning)
    beginning.owner.check()
    return beginning


def epochs(job: JobStorage) -> list[int]:
    return [record.epoch for record in job.owner_records() if record.token is None]


@pytest.mark.parametrize("restore", [None, LATEST])
def test_a_new_job_begins_from_nothing(job: JobStorage, restore: str | None) -> None:
    assert began(job, restore).point is None


def test_a_job_goes_on_from_its_latest_checkpoint(job: JobStorage) -> None:
    older = job.take_over()
    commit(older, 1)
    commit(older, 2)
    beginning = began(job, LATEST)
    assert beginning.point is not None
    assert beginning.point.metadata.checkpoint_id == 2
    assert beginning.owner.epoch == 2


def test_a_job_that_has_left_checkpoints_does_not_begin_anew(job: JobStorage) -> None:
    older = job.take_over()
    commit(older, 1)
    with pytest.raises(Invalid, match="has left checkpoints"):
        begin(job, None, fits)
    older.check()


def test_a_checkpoint_that_does_not_fit_fences_no_driver(job: JobStorage) -> None:
    older = job.take_over()
    commit(older, 1)

    def check(point: RestorePoint) -> None:
        raise Invalid(f"{point} does not fit")

    with pytest.raises(Invalid, match="checkpoint 1 at memory://job does not fit"):
        begin(job, LATEST, check)
    older.check()


def test_a_checkpoint_completed_during_the_take_over_is_restored(job: JobStorage) -> None:
    older = job.take_over()
    commit(older, 1)
    seen = []

    def check(point: RestorePoint) -> None:
        seen.append(point.metadata.checkpoint_id)
        if len(seen) == 1:
            commit(older, 2)

    beginning = begin(job, LATEST, check)
    assert isinstance(beginning, Beginning)
    assert beginning.point is not None
    assert beginning.point.metadata.checkpoint_id == 2
    assert seen == [1, 2]


@pytest.mark.parametrize("status", ["finished", "cancelled"])
def test_a_job_that_has_ended_is_not_run_again(job: JobStorage, status: str) -> None:
    ended = job.take_over().end(result(status))
    for _ in range(2):
        assert begin(job, LATEST, fits) == ended
    assert epochs(job) == [1], "nothing is taken over for that"


def test_checkpoints_that_an_ended_job_did_not_get_to_delete_are_deleted(job: JobStorage) -> None:
    older = job.take_over()
    commit(older, 1)
    ended = older.end(result())

    def check(_point: RestorePoint) -> None:
        pytest.fail("it is not to be restored")

    assert begin(job, LATEST, check) == ended
    assert (job.completed(), job.result()) == ((), ended)
    assert begin(job, LATEST, check) == ended


def test_a_job_has_ended_although_its_checkpoints_cannot_be_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Sticky(JobManagerCheckpointStorage):
        def delete(self, names: object) -> None:
            raise Unavailable("cannot delete")

    job = Sticky().job("job")
    older = job.take_over()
    commit(older, 1)
    ended = older.end(result())
    assert begin(job, LATEST, fits) == ended
    assert "could not be deleted: cannot delete" in caplog.text
    with pytest.raises(Unavailable):
        begin(job, None, fits)
    assert job.result() == ended, "what it has left would be taken for the new run's"


@pytest.mark.parametrize("has_left", [False, True])
def test_an_ended_job_begins_anew_if_it_is_told_to(job: JobStorage, *, has_left: bool) -> None:
    older = job.take_over()
    if has_left:
        commit(older, 1)
    older.end(result())
    beginning = began(job, None)
    assert beginning.point is None
    assert (job.result(), job.completed()) == (None, ())
    assert began(job, LATEST).point is None, "what was begun anew has not ended"


def test_an_ended_job_goes_on_from_a_checkpoint_that_is_named() -> None:
    job = load_storage("memory://named").job("job")
    older = job.take_over()
    commit(older, 1)
    older.end(result())
    beginning = began(job, f"memory://named/job/{names.checkpoint_folder(1)}")
    assert beginning.point is not None
    assert beginning.point.metadata.checkpoint_id == 1
    assert job.result() is None
    commit(beginning.owner, 2)
    assert job.completed() == (1, 2)


def test_a_checkpoint_that_is_named_is_not_overruled_by_newer_ones() -> None:
    job = load_storage("memory://overruled").job("job")
    older = job.take_over()
    for number in (4, 5, 6, 7):
        commit(older, number)

    def refuse(_point: RestorePoint) -> None:
        raise Invalid("it does not fit")

    folder = f"memory://overruled/job/{names.checkpoint_folder(5)}"
    with pytest.raises(Invalid, match="does not fit"):
        begin(job, folder, refuse)
    assert job.completed() == (4, 5, 6, 7)

    beginning = began(job, folder)
    assert job.completed() == beginning.owner.completed == (4, 5)
    assert beginning.owner.next_checkpoint_id == 8, "a number is used once"
    again = began(job, LATEST)  # the driver died before it had completed one
    assert again.point is not None
    assert again.point.metadata.checkpoint_id == 5


def test_damaged_checkpoints_do_not_keep_an_older_one_from_being_restored() -> None:
    """Rather they are why one is named."""
    job = load_storage("memory://damaged").job("job")
    older = job.take_over()
    for number in (4, 5, 6, 7):
        commit(older, number)
    for number in (4, 6, 7):
        job.storage.write(f"job/{names.metadata(number)}", b"damaged")
    with pytest.raises(Corrupt):
        begin(job, LATEST, fits)
    beginning = began(job, f"{job.url}/{names.checkpoint_folder(5)}")
    assert beginning.owner.completed == (4, 5)
    commit(beginning.owner, 8)
    assert job.completed() == (4, 5, 8)


def test_a_fenced_owner_voids_no_checkpoint(job: JobStorage) -> None:
    older = job.take_over()
    for number in (5, 6):
        commit(older, number)
    job.take_over()
    with pytest.raises(Fenced):
        older.rewind(5)
    assert job.completed() == (5, 6)


def test_of_the_newer_ones_the_newest_goes_first() -> None:
    class Failing(JobManagerCheckpointStorage):
        deletes = 1

        def delete(self, names: Iterable[str]) -> None:
            self.deletes -= 1
            if self.deletes < 0:
                raise Unavailable("cannot delete")
            super().delete(names)

    job = Failing("memory://newest first").job("job")
    older = job.take_over()
    for number in (5, 6, 7):
        commit(older, number)
    with pytest.raises(Unavailable):
        begin(job, f"{job.url}/{names.checkpoint_folder(5)}", fits)
    assert job.completed() == (5, 6)


def test_a_checkpoint_of_another_job_overrules_nothing_there() -> None:
    storage = load_storage("memory://two jobs")
    other = storage.job("other")
    older = other.take_over()
    commit_of("other", older, 1)
    commit_of("other", older, 2)
    began(storage.job("job"), f"{other.url}/{names.checkpoint_folder(1)}")
    assert other.completed() == (1, 2)


@pytest.mark.parametrize("has_deleted", [False, True])
def test_a_job_that_ends_during_the_take_over_has_ended(*, has_deleted: bool) -> None:
    """The older driver comes to its end after this one has looked, before it has claimed."""
    meanwhile: list[Callable[[], object]] = []

    class Slow(JobManagerCheckpointStorage):
        def prepare(self) -> None:
            if meanwhile:
                meanwhile.pop()()

    job = Slow().job("job")
    older = job.take_over()
    commit(older, 1)

    def end() -> None:
        older.end(result())
        if has_deleted:
            clear(older)

    meanwhile.append(end)
    ended = begin(job, LATEST, fits)
    assert isinstance(ended, JobResult)
    assert (ended.status, ended.epoch) == ("finished", 1)
    assert (job.result(), job.completed()) == (ended, ())


def test_a_damaged_result_is_named_and_can_be_left_behind(job: JobStorage) -> None:
    owner = job.take_over()
    owner.end(result())
    (record,) = (
        names.owner_record(found.epoch, "result", found.token)
        for found in job.owner_records()
        if found.kind == "result" and found.token is not None
    )
    job.storage.write(f"job/{record}", b"damaged")
    with pytest.raises(Corrupt, match=record):
        begin(job, LATEST, fits)
    owner.check()
    assert began(job, None).point is None


def test_a_handle_of_a_job_that_had_ended_says_so_at_once(job: JobStorage) -> None:
    run = EndedRun(result())
    handle = JobHandle(run, job, {"out": pa.schema([])}, (run.note,))
    assert handle.result(0) is handle.status is JobStatus.FINISHED
    handle.cancel()
    handle.trigger_checkpoint()
    assert handle.status is JobStatus.FINISHED
    (note,) = handle.notes
    assert note == (
        "job 'job' has finished at 2023-11-14 22:13:20 UTC, and nothing was run. To run it afresh, "
        "leave out restore, or take another name"
    )
    assert (handle.failures, handle.slot_pids()) == ((), {})
    assert handle.metrics() == {"attempts": 0, "task_slots": {}, "sources": {}, "slots": {}}
    assert handle.checkpoints().counts.begun == 0
    with pytest.raises(NotFound) as caught:
        handle.collected("out")
    assert str(caught.value) == (
        "the rows of the collecting sink 'out' are not here: job 'job' has finished at 2023-11-14 "
        "22:13:20 UTC: expected the driver that ran it, which had them as long as it lived. Use a "
        "FileSink for rows that are to outlive the driver"
    )
    with pytest.raises(Invalid, match="no collecting sink"):
        handle.collected("other")


def test_a_cancelled_job_says_that_it_was() -> None:
    run = EndedRun(result("cancelled"))
    assert run.status is JobStatus.CANCELLED
    assert run.note.startswith(
        "job 'job' was cancelled, to leave no checkpoint, at 2023-11-14 22:13:20 UTC, and nothing"
    )


@pytest.mark.parametrize("status", ["vanished", "running"])
def test_an_end_that_is_not_known_is_refused(status: str) -> None:
    with pytest.raises(Invalid, match=f"expected finished or cancelled or failed, found {status}"):
        EndedRun(result(status))
