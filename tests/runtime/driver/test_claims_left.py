"""Claimed checkpoints that were not deleted, because a run ended or was claimed from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.runtime.driver.claiming import claimed_before, claims_as_properties
from holdfast.runtime.driver.restoring import LATEST
from holdfast.runtime.driver.startup.take_over import Beginning, begin
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    FileSystemCheckpointStorage,
    Invalid,
    JobManagerCheckpointStorage,
    JobResult,
    JobStorage,
    load_storage,
    names,
)
from holdfast.storage.restore_points import RestorePoint
from holdfast.storage.testing.watched_storage import WatchedStorage
from support.jobs.claimed_checkpoints import (
    Other,
    Refuses,
    RefusesFiles,
    Run,
    Unaware,
    fits,
    own,
    shared,
)

ENDED = JobResult(job_id="job", status="finished", ended_ms=1)


def ended_before_it_had_deleted(storage: CheckpointStorage, retained: int) -> Other:
    """A job that has claimed checkpoint 4 of another and recorded its end, and nothing else."""
    other = Other(storage)
    watched = WatchedStorage(storage, before=Refuses("other"))
    run = Run(watched.job("job"), other.path(4), "claim", retained=retained)
    run.complete_and_leave()
    run.keeper.end(ENDED)
    run.keeper.close()
    assert 4 in other.job.completed()
    return other


@pytest.mark.parametrize("retained", [1, 9])
def test_claims_of_an_ended_job_are_deleted_when_it_is_started_again(
    retained: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also at the second time, if it could not be at the first."""
    storage = JobManagerCheckpointStorage()
    other = ended_before_it_had_deleted(storage, retained)
    refuses = Refuses("other")
    job = WatchedStorage(storage, before=refuses).job("job")
    result = begin(job, LATEST, fits)
    assert isinstance(result, JobResult)
    assert len(result.properties["claimed"]) == 1
    assert "checkpoint 4 at memory://other was claimed, and is not deleted yet" in caplog.text
    assert (job.completed(), other.job.completed()) == ((), (3, 4, 5))
    refuses.is_on = False
    for _ in range(2):
        assert begin(job, LATEST, fits) == result
        assert other.left() == other.files_of(3, 5)


@pytest.mark.parametrize("restore", [None, "job", "third"])
def test_claims_are_deleted_before_the_job_is_reopened(restore: str | None) -> None:
    """Its record is void then, and says nothing any more."""
    storage = JobManagerCheckpointStorage()
    other = ended_before_it_had_deleted(storage, retained=1)
    begun = Run(storage.job("job"), path_of(storage, restore), None)
    assert other.left() == other.files_of(3, 5)
    begun.keeper.close()


def path_of(storage: CheckpointStorage, job_id: str | None) -> str | None:
    """Checkpoint 1 of this job; of a third one too, which is made for it."""
    if job_id is None:
        return None
    job = storage.job(job_id)
    if not job.completed():
        job.take_over().commit(
            CheckpointMetadata(job_id=job_id, checkpoint_id=1, triggered_ms=0, completed_ms=0)
        )
    return f"{job.url}/{names.checkpoint_folder(1)}"


@pytest.mark.parametrize("restore", [None, "job", "third"])
def test_claims_that_cannot_be_deleted_are_carried_over(restore: str | None) -> None:
    storage = JobManagerCheckpointStorage()
    other = ended_before_it_had_deleted(storage, retained=1)
    refuses = Refuses("other")
    job = WatchedStorage(storage, before=refuses).job("job")
    run = Run(job, path_of(storage, restore), None)
    told = run.complete_and_leave()
    assert [each["checkpoint"] for each in told.properties["claimed"]] == [4]
    assert 4 in other.job.completed()
    refuses.is_on = False
    run.complete()
    assert other.left() == other.files_of(3, 5)
    run.keeper.close()


@pytest.mark.parametrize("claim_mode", [None, "no-claim", "claim"])
@pytest.mark.parametrize("path", ["mine", "link"])
@pytest.mark.parametrize("kind", [FileSystemCheckpointStorage, Unaware])
def test_a_claimed_checkpoint_may_be_restored_once_more(
    kind: type[FileSystemCheckpointStorage], path: str, claim_mode: str | None, tmp_path: Path
) -> None:
    """The same script again: it finds what it names, whole, and whose it is `claim_mode` says."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    storage = kind(str(tmp_path / "mine"))
    other = ended_before_it_had_deleted(storage, retained=1)
    named = f"{tmp_path}/{path}/other/{names.checkpoint_folder(4)}"
    run = Run(storage.job("job"), named, claim_mode, open_storage=kind)
    assert run.beginning.point is not None
    assert run.beginning.point.metadata.checkpoint_id == 4
    assert other.left() == other.files_of(3, 4, 5)
    run.complete()
    assert "claimed" not in run.complete().properties
    run.keeper.close()
    assert other.left() == (
        other.files_of(3, 5) if claim_mode == "claim" else other.files_of(3, 4, 5)
    )


def test_claims_stay_due_after_a_refused_restore(tmp_path: Path) -> None:
    storage = FileSystemCheckpointStorage(str(tmp_path))
    other = ended_before_it_had_deleted(storage, retained=1)

    def refuse(_: RestorePoint) -> None:
        raise Invalid("it does not fit")

    with pytest.raises(Invalid, match="does not fit"):
        begin(storage.job("job"), other.path(4), refuse)
    assert other.left() == other.files_of(3, 4, 5)
    assert isinstance(begin(storage.job("job"), LATEST, fits), JobResult)
    assert other.left() == other.files_of(3, 5)


def test_a_lost_carried_over_claim_leaves_the_checkpoint_to_its_job() -> None:
    """By a kill before the first checkpoint: it is its job's again, whole, to go on from."""
    storage = JobManagerCheckpointStorage()
    other = ended_before_it_had_deleted(storage, retained=1)
    job = WatchedStorage(storage, before=Refuses("other")).job("job")
    begun = begin(job, None, fits)
    assert isinstance(begun, Beginning)
    assert len(begun.claimed) == 1
    later = Run(storage.job("job"), None, None)
    assert later.beginning.claimed == ()
    later.complete()
    later.keeper.close()
    assert other.left() == other.files_of(3, 4, 5)
    again = Run(other.job, other.path(4), None)
    assert other.job.completed() == (3, 4)
    again.complete()
    again.keeper.close()
    assert other.job.completed() == (6,)


def test_an_unreadable_record_of_the_end_does_not_stop_a_reopening(
    job: JobStorage, caplog: pytest.LogCaptureFixture
) -> None:
    owner = job.take_over()
    owner.end(msgspec.structs.replace(ENDED, properties={"claimed": "nonsense"}))
    assert isinstance(begin(job, LATEST, fits), JobResult)
    assert "what a job that has ended had claimed could not be deleted" in caplog.text
    assert isinstance(begin(job, None, fits), Beginning)
    assert "what a job that has ended had claimed is not known" in caplog.text


def test_a_claim_from_a_job_with_claims_deletes_both_checkpoints(
    other: Other, job: JobStorage
) -> None:
    """That one cannot any more: it is fenced."""
    middle = Run(JobStorage(job.storage, "middle"), other.path(4), "claim", retained=2)
    middle.complete()
    path = f"{JobStorage(job.storage, 'middle').url}/{names.checkpoint_folder(1)}"
    run = Run(job, path, "claim", retained=2)
    said = run.complete().properties["claimed"]
    assert [(each["job"], each["checkpoint"]) for each in said] == [("middle", 1), ("other", 4)]
    run.keeper.close()
    middle.keeper.close()
    assert 4 in other.job.completed()
    later = Run(job, LATEST, None, retained=2)
    later.complete()
    assert other.left() == other.files_of(3, 5)
    assert JobStorage(job.storage, "middle").completed() == ()
    assert "claimed" not in later.complete().properties
    later.keeper.close()


def test_an_unclaimed_restore_inherits_no_claims(other: Other, job: JobStorage) -> None:
    middle = Run(JobStorage(job.storage, "middle"), other.path(4), "claim", retained=2)
    middle.complete()
    path = f"{JobStorage(job.storage, 'middle').url}/{names.checkpoint_folder(1)}"
    run = Run(job, path, "no-claim")
    assert run.beginning.claimed == ()
    run.keeper.close()
    middle.complete()
    middle.keeper.close()
    assert other.left() == other.files_of(3, 5)


def test_a_claim_of_an_unknown_place_fences_no_driver(job: JobStorage) -> None:
    owner = JobStorage(job.storage, "middle").take_over()
    said = {"storage": "nowhere://x", "job": "other", "checkpoint": 4, "epoch": 1}
    owner.commit(
        CheckpointMetadata(
            job_id="middle",
            checkpoint_id=1,
            triggered_ms=0,
            completed_ms=0,
            properties={"claimed": [said]},
        )
    )
    path = f"{JobStorage(job.storage, 'middle').url}/{names.checkpoint_folder(1)}"
    with pytest.raises(Invalid, match="nowhere"):
        begin(job, path, fits, claim_mode="claim")
    owner.check()
    assert [*job.owner_records()] == []
    assert isinstance(begin(job, path, fits), Beginning), "what is only read brings none"


def test_a_run_that_died_while_it_deleted_keeps_no_later_one_from_it() -> None:
    """Its right to the other folder is the same, whichever run of the job has it."""
    storage = JobManagerCheckpointStorage()
    other = Other(storage)
    refuses = Refuses("other")
    job = WatchedStorage(storage, before=refuses).job("job")
    run = Run(job, other.path(4), "claim", retained=1)
    run.complete_and_leave()
    run.keeper.close()
    for _ in range(3):
        run = Run(job, LATEST, None, retained=1)
        run.complete_and_leave()
        run.keeper.close()
        assert 4 in other.job.completed()
    refuses.is_on = False
    later = Run(job, LATEST, None, retained=1)
    later.complete()
    later.keeper.close()
    assert {record.epoch for record in other.job.owner_records()} == {1, 2}, "claimed once"
    assert other.left() == other.files_of(3, 5)


@pytest.mark.parametrize("has_ended", [False, True], ids=["goes on", "has ended"])
def test_a_kill_between_the_commit_point_and_the_files_leaves_them_to_the_next_run(
    has_ended: bool,  # noqa: FBT001
) -> None:
    """Only the record of the claim says then which they are."""
    storage = JobManagerCheckpointStorage()
    other = Other(storage)
    job = WatchedStorage(storage, before=RefusesFiles("other")).job("job")
    run = Run(job, other.path(4), "claim")
    assert run.complete_and_leave().properties["claimed"]
    if has_ended:
        run.keeper.end(ENDED)
    run.keeper.close()
    assert other.job.completed() == (3, 5)
    assert other.left() == other.files_of(3, 5) | {own(4), shared(4)}
    if has_ended:
        assert isinstance(begin(storage.job("job"), LATEST, fits), JobResult)
    else:
        later = Run(storage.job("job"), LATEST, None)
        later.complete()
        assert "claimed" not in later.complete().properties
        later.keeper.close()
    assert other.left() == other.files_of(3, 5)


def test_files_of_what_is_gone_stay_if_its_job_was_taken_over_since(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = JobManagerCheckpointStorage()
    other = Other(storage)
    job = WatchedStorage(storage, before=RefusesFiles("other")).job("job")
    run = Run(job, other.path(4), "claim")
    run.complete_and_leave()
    run.keeper.close()
    other.job.take_over()
    later = Run(storage.job("job"), LATEST, None)
    later.complete()
    assert "claimed" not in later.complete().properties
    later.keeper.close()
    assert "was claimed, and is left to its job" in caplog.text
    assert other.left() == other.files_of(3, 5) | {own(4), shared(4)}


def test_claims_are_recorded_as_in_version_1() -> None:
    data = (Path(__file__).parents[2] / "golden" / "claimed-v1.json").read_bytes()
    storage = load_storage("memory://golden")
    claims = claimed_before(msgspec.json.decode(data), storage.job("job"))
    assert [str(each) for each in claims] == [
        "checkpoint 7 at memory://golden/a~20job~2F1",
        "checkpoint 9 at memory://golden/orders",
    ]
    assert [each.epoch for each in claims] == [3, 1]
    assert msgspec.json.encode(claims_as_properties(claims)) == data
