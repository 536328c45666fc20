"""Restoring from another job's checkpoint: which job owns and deletes it afterwards."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from msgspec import structs

from holdfast.runtime.checkpoint.commands import Store, Trigger
from holdfast.runtime.driver.claiming import (
    ClaimedCheckpoint,
    claim,
    claimed_before,
    claims_as_properties,
    handed_on,
)
from holdfast.runtime.driver.restoring import LATEST
from holdfast.runtime.driver.startup.take_over import Beginning, begin
from holdfast.storage import (
    CheckpointStorage,
    Corrupt,
    Fenced,
    FileSystemCheckpointStorage,
    Invalid,
    JobManagerCheckpointStorage,
    JobResult,
    JobStorage,
    NotFound,
    SavepointFolder,
    load_storage,
    names,
)
from holdfast.storage.registry import OpenStorage
from holdfast.storage.restore_points import RestorePoint
from holdfast.storage.testing.example_jobs import delete, remove
from holdfast.storage.testing.watched_storage import Call, Killed, WatchedStorage
from support.jobs.claimed_checkpoints import Other, Run, Unaware, fits


@pytest.mark.parametrize("claim_mode", [None, "no-claim"])
def test_an_unclaimed_checkpoint_is_only_read(
    other: Other, job: JobStorage, claim_mode: str | None
) -> None:
    before = {info.name for info in other.job.storage.list("other/")}
    run = Run(job, other.path(4), claim_mode)
    assert run.beginning.claimed == ()
    for _ in range(3):
        assert "claimed" not in run.complete().properties
    run.keeper.end(JobResult(job_id="job", status="finished", ended_ms=1))
    run.keeper.delete_all()
    run.keeper.close()
    assert {info.name for info in other.job.storage.list("other/")} == before
    other.owner.check()
    other.commit(6)


def test_an_unclaimed_checkpoint_may_be_restored_again_and_then_go(
    other: Other, job: JobStorage
) -> None:
    """Several jobs begin with it, and none needs it after a checkpoint of its own."""
    jobs = [job, JobStorage(job.storage, "another"), JobStorage(other.job.storage, "a third")]
    runs = [Run(each, other.path(4), "no-claim") for each in jobs]
    assert other.left() == other.files_of(3, 4, 5)
    for run in runs:
        assert run.beginning.point is not None
        assert run.beginning.point.metadata.job_id == "other"
        run.complete()
        run.keeper.close()
    other.job.storage.delete([info.name for info in other.job.storage.list("other/")])
    for each in jobs:
        again = Run(each, LATEST, None)
        assert again.beginning.point is not None
        assert again.beginning.point.metadata.job_id == each.job_id
        again.keeper.close()


def test_a_checkpoint_that_is_claimed_is_deleted_when_it_is_subsumed(
    other: Other, job: JobStorage
) -> None:
    """It alone, and not what the other checkpoints of its job need."""
    run = Run(job, other.path(4), "claim")
    assert run.beginning.notes[1].endswith("is this job's now, and deleted when it is not retained")
    assert other.left() == other.files_of(3, 4, 5)
    first = run.complete()
    assert first.properties["claimed"][0]["checkpoint"] == 4
    assert other.left() == other.files_of(3, 5)
    assert other.job.completed() == (3, 5)
    assert "claimed" not in run.complete().properties
    run.keeper.close()
    other.job.take_over().check()


def test_a_claimed_checkpoint_counts_as_the_oldest_retained(other: Other, job: JobStorage) -> None:
    run = Run(job, other.path(4), "claim", retained=3)
    for left in (True, True, False, False):
        run.complete()
        assert (4 in other.job.completed()) is left
    run.keeper.close()
    assert job.completed() == (2, 3, 4)


def test_the_other_job_is_fenced_before_its_checkpoint_is_restored(
    other: Other, job: JobStorage
) -> None:
    Run(job, other.path(5), "claim").keeper.close()
    with pytest.raises(Fenced):
        other.commit(6)
    assert other.job.completed() == (3, 4, 5)


def test_a_checkpoint_that_cannot_be_claimed_fences_no_driver(
    other: Other, job: JobStorage
) -> None:
    def refuse(_: RestorePoint) -> None:
        raise Invalid("it does not fit")

    with pytest.raises(Invalid, match="does not fit"):
        begin(job, other.path(5), refuse, claim_mode="claim")
    with pytest.raises(NotFound, match="there is no checkpoint 9"):
        begin(job, other.path(9), fits, claim_mode="claim")
    other.owner.check()
    assert [*job.owner_records()] == []


def test_a_later_run_deletes_what_an_earlier_one_had_claimed(other: Other, job: JobStorage) -> None:
    run = Run(job, other.path(4), "claim", retained=3)
    run.complete()
    run.keeper.close()
    later = Run(job, LATEST, None, retained=3)
    assert len(later.beginning.claimed) == 1
    assert other.left() == other.files_of(3, 4, 5)
    assert later.complete().properties["claimed"][0]["checkpoint"] == 4
    assert other.left() == other.files_of(3, 4, 5)
    later.complete()
    assert other.left() == other.files_of(3, 5)
    later.complete()
    later.keeper.close()
    assert Run(job, LATEST, "claim").beginning.claimed == (), "it is gone"


def test_a_later_run_leaves_the_checkpoint_to_a_restarted_other_job(
    other: Other, job: JobStorage, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(job, other.path(4), "claim", retained=2)
    run.complete()
    run.keeper.close()
    again = other.job.take_over()
    later = Run(job, LATEST, None, retained=2)
    later.complete()
    assert "checkpoint 4" in caplog.text
    assert "was claimed, and is left to its job" in caplog.text
    again.check()
    assert other.left() == other.files_of(3, 4, 5)
    assert "claimed" not in later.complete().properties
    later.keeper.close()


def test_a_run_that_claims_is_fenced_by_the_other_job_only_in_its_folder(
    other: Other, job: JobStorage
) -> None:
    run = Run(job, other.path(4), "claim")
    other.job.take_over()
    run.complete()
    run.complete()
    run.keeper.close()
    assert other.left() == other.files_of(3, 4, 5)


def test_that_the_other_folder_was_removed_is_no_harm(other: Other, job: JobStorage) -> None:
    run = Run(job, other.path(4), "claim", retained=2)
    run.complete()
    run.keeper.close()
    other.job.storage.delete([info.name for info in other.job.storage.list("other/")])
    later = Run(job, LATEST, None, retained=2)
    later.complete()
    assert "claimed" not in later.complete().properties
    later.keeper.close()
    assert [*other.job.storage.list("other/")] == []


def test_a_job_that_ends_deletes_what_it_has_claimed(other: Other, job: JobStorage) -> None:
    run = Run(job, other.path(4), "claim", retained=9)
    assert run.keeper.has_checkpoints, "it could be restored from that"
    run.complete()
    run.keeper.delete_all()
    run.keeper.close()
    assert other.left() == other.files_of(3, 5)


def test_a_checkpoint_that_goes_while_it_is_claimed_is_missed() -> None:
    other = Other(load_storage("memory://goes"))
    point = RestorePoint(other.job.load(3), other.job)
    delete(other.owner, 3)
    with pytest.raises(NotFound, match=r"was deleted by its job before .* one of \(4, 5\)"):
        claim(point, JobStorage(other.job.storage, "job"))


def test_a_job_s_own_checkpoint_is_its_own(job: JobStorage) -> None:
    run = Run(job, LATEST, "claim")
    run.complete()
    run.keeper.close()
    path = f"{job.url}/{names.checkpoint_folder(1)}"
    for restore in (LATEST, path):
        with pytest.raises(Invalid, match="is its own, and cannot be left to another") as refused:
            begin(job, restore, fits, claim_mode="no-claim")
        assert "it goes when it is not retained any more" in str(refused.value)
        assert "restore it in a job of another name" in str(refused.value)
        again = Run(job, restore, "claim")
        assert again.beginning.claimed == ()
        again.keeper.close()
    last = Run(job, path, None)
    last.complete()
    last.keeper.close()
    assert len(job.completed()) == 1


@pytest.mark.parametrize(
    ("restore", "claim_mode", "told"),
    [
        (None, "claim", "a claim mode says what becomes of the checkpoint that is restored"),
        (None, "no-claim", "a claim mode says what becomes of the checkpoint that is restored"),
        (LATEST, "legacy", "claim_mode is not one of the choices"),
        ("other", "claim", "this is not a checkpoint or savepoint to restore from"),
    ],
)
def test_nonsense_is_refused(
    job: JobStorage, restore: str | None, claim_mode: str, told: str
) -> None:
    with pytest.raises(Invalid, match=told):
        begin(job, restore, fits, claim_mode=claim_mode)
    assert [*job.owner_records()] == []


@pytest.fixture(params=[FileSystemCheckpointStorage, Unaware], ids=["known", "unaware"])
def by_link(request: pytest.FixtureRequest, tmp_path: Path) -> JobStorage:
    """A job with checkpoints 1, 2 and 3, in a folder to which `link` leads as well."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    job: JobStorage = request.param(str(tmp_path / "mine")).job("job")
    run = Run(job, LATEST, None, retained=3)
    for _ in range(3):
        run.complete()
    run.keeper.close()
    return job


def same_kind(job: JobStorage) -> OpenStorage:
    """Opens another root by the class of this job's storage."""
    kind = type(job.storage)
    assert issubclass(kind, CheckpointStorage)
    return kind


@pytest.mark.parametrize("claim_mode", [None, "claim"])
def test_a_job_s_own_checkpoint_by_another_path_is_its_own(
    by_link: JobStorage, tmp_path: Path, claim_mode: str | None
) -> None:
    """Newer checkpoints belong to an abandoned history; and a job does not fence itself."""
    path = f"{tmp_path}/link/job/{names.checkpoint_folder(2)}"
    begun = begin(by_link, path, fits, claim_mode=claim_mode, open_storage=same_kind(by_link))
    assert isinstance(begun, Beginning)
    assert begun.point is not None
    assert begun.claimed == ()
    assert begun.point.number_in(by_link) == 2
    assert begun.point.folder.url == by_link.url, "else operators take it for another job's"
    assert by_link.completed() == (1, 2)
    begun.owner.check()


def test_a_job_s_own_checkpoint_by_another_path_is_not_left_to_another(
    by_link: JobStorage, tmp_path: Path
) -> None:
    path = f"{tmp_path}/link/job/{names.checkpoint_folder(2)}"
    with pytest.raises(Invalid, match="is its own, and cannot be left to another"):
        begin(by_link, path, fits, claim_mode="no-claim", open_storage=same_kind(by_link))
    assert by_link.completed() == (1, 2, 3)


def test_a_copy_of_a_job_s_folder_is_another_s(by_link: JobStorage, tmp_path: Path) -> None:
    """Though it has the claims of all that ever ran the job."""
    copytree(tmp_path / "mine", tmp_path / "copy")
    path = f"{tmp_path}/copy/job/{names.checkpoint_folder(2)}"
    begun = begin(by_link, path, fits, open_storage=same_kind(by_link))
    assert isinstance(begun, Beginning)
    assert begun.point is not None
    assert begun.point.number_in(by_link) is None
    assert by_link.completed() == (1, 2, 3)


@pytest.mark.parametrize("said", [None, {}, [{"storage": "x", "job": "y"}], ["other"]])
def test_an_unreadable_record_of_claims_is_corrupt(job: JobStorage, said: object) -> None:
    assert claimed_before({}, job) == ()
    with pytest.raises(Corrupt, match="were claimed, and not which"):
        claimed_before({"claimed": said}, job)


def test_a_recorded_claim_is_read_back(job: JobStorage) -> None:
    before = ClaimedCheckpoint(JobStorage(job.storage, "a job/1"), 7, 3)
    (again,) = claimed_before(claims_as_properties([before]), job)
    assert isinstance(again, ClaimedCheckpoint)
    assert (again.job.url, again.checkpoint_id, again.epoch) == (before.job.url, 7, 3)
    assert again.job.storage is job.storage


class Dies:
    """A hook that lets so many calls through and no more, whichever thread calls."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.is_dead = False

    def __call__(self, call: Call) -> None:
        self.is_dead |= self.left == 0
        if self.is_dead:
            raise Killed(call)
        self.left -= 1


def live(job: JobStorage, restore: str, claim_mode: str, dies: Dies) -> None:
    """A run that completes three checkpoints, unless it dies before."""
    run = Run(job, restore, claim_mode, retained=2)
    for _ in range(3):
        number = run.keeper.next_checkpoint_id
        run.keeper.store(
            Store(
                checkpoint_id=number,
                triggered_ms=0,
                trigger=Trigger.PERIODIC,
                operators={},
                sources={},
            ),
            run.events,
        )
        while run.events.next(0.001) is None:
            if dies.is_dead:
                raise Killed(None)
        run.keeper.retain(number)
        run.keeper.finish_deleting()
    run.keeper.close()


@pytest.mark.parametrize("claim_mode", ["no-claim", "claim"])
def test_a_kill_at_any_call_harms_neither_job(claim_mode: str) -> None:
    """What is claimed is gone in the end, or left whole; and nothing else of the other job is."""
    ends = set()
    for after in count():
        storage = JobManagerCheckpointStorage(f"memory://killed-{claim_mode}-{after}")
        other = Other(storage)
        dies = Dies(after)
        job = WatchedStorage(storage, before=dies).job("job")
        with suppress(Killed):
            live(job, other.path(4), claim_mode, dies)
        what = f"killed after {after} calls"
        assert other.files_of(3, 5) <= other.left(), what
        own = storage.job("job").completed()
        if len(own) < 2 or claim_mode == "no-claim":
            assert other.files_of(3, 4, 5) == other.left(), what
        restore, mode = (LATEST, None) if own else (other.path(4), claim_mode)
        later = Run(storage.job("job"), restore, mode, retained=2)
        for _ in range(2):
            later.complete()
        later.keeper.close()
        again = other.job.take_over()
        remove(again, again.orphans())
        left = other.left()
        ends.add(4 in other.job.completed())
        kept = (3, 4, 5) if 4 in other.job.completed() else (3, 5)
        assert left == other.files_of(*kept), what
        if not dies.is_dead:
            break
    assert ends >= {claim_mode == "no-claim"}
    assert after > 25


@pytest.mark.parametrize("restore", ["latest", "claimed"])
def test_a_crafted_checkpoint_claims_nothing_of_others(
    restore: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It says that another job's checkpoint, and a savepoint, are this job's to delete."""
    storage = load_storage(f"memory://crafted-{restore}")
    victim = Other(storage)
    savepoint = SavepointFolder(storage, "savepoint-1")
    crafted: dict[str, Any] = {
        "claimed": [{"storage": storage.url, "job": "other", "checkpoint": 4, "epoch": 1}],
        "claimed_savepoints": [savepoint.url],
    }
    saved = structs.replace(victim.job.load(3), kind="savepoint", operators={}, parts={})
    savepoint.commit(saved)
    name = "job" if restore == "latest" else "crafted"
    folder = storage.job(name)
    metadata = structs.replace(
        victim.job.load(3), job_id=name, checkpoint_id=1, parts={}, properties=crafted
    )
    folder.take_over().commit(metadata)
    before = victim.left()
    if restore == "latest":
        run = Run(storage.job("job"), "latest", None)
    else:
        run = Run(storage.job("job"), f"{folder.url}/{names.checkpoint_folder(1)}", "claim")
    for _ in range(3):
        run.complete()
    run.keeper.delete_all()
    run.keeper.close()
    victim.owner.check()
    assert victim.left() == before
    assert savepoint.read_metadata() == saved
    assert "its folder has no record of that, so it is kept" in caplog.text


def test_a_copy_of_a_job_deletes_nothing_that_the_original_has_claimed(
    other: Other, job: JobStorage
) -> None:
    run = Run(job, other.path(4), "claim", retained=9)
    claims = run.complete().properties
    (mine,) = claimed_before(claims, job)
    (copied,) = claimed_before(claims, JobStorage(job.storage, "a copy"))
    assert (mine.is_marked(), copied.is_marked()) == (True, False)
    assert handed_on([copied], job) == ()
    (later,) = handed_on([mine], JobStorage(job.storage, "a later job"))
    assert later.is_marked()
    run.keeper.close()
