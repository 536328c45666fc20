"""A damaged checkpoint is told with the newest older one that is whole, by path and command."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    FileHandle,
    JobStorage,
    SavepointFolder,
    StateSnapshot,
    load_storage,
    names,
)
from holdfast.storage.jobs.damage import file_sizes, missing_files, newest_whole_before
from holdfast.storage.jobs.job import with_restore_advice


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    """Four checkpoints, with a file each."""
    job = load_storage(str(tmp_path / "a place"), inline_limit_bytes=0).job("orders")
    owner = job.take_over()
    for number in range(1, 5):
        with job.segments(number) as writer:
            part = StateSnapshot(kind="t/1", handles={"all": writer.add(b"x" * 1000)})
        owner.commit(
            CheckpointMetadata(
                job_id="orders",
                checkpoint_id=number,
                triggered_ms=1,
                completed_ms=2,
                parts={"all": part},
            )
        )
    return job


def damage(job: JobStorage, number: int, how: str) -> None:
    (handle,) = job.read_metadata(number).handles()
    assert isinstance(handle, FileHandle)
    if how == "metadata":
        job.storage.write(job.name_of(names.metadata(number)), b'{"holdfast":')
    elif how == "missing":
        job.storage.delete([job.name_of(handle.file)])
    else:
        job.storage.write(job.name_of(handle.file), b"x" * 10)


@pytest.mark.parametrize("how", ["metadata", "missing", "short"])
def test_the_newest_older_one_that_is_whole_is_named(job: JobStorage, how: str) -> None:
    damage(job, 3, how)
    damage(job, 4, "metadata")
    assert newest_whole_before(job, 4) == 2
    folder = f"{job.url}/chk-{2:020d}"
    for act in (job.latest, lambda: job.load(4)):
        with pytest.raises(Corrupt) as caught:
            act()
        told = str(caught.value)
        assert f"chk-{4:020d}/_metadata" in caught.value.where
        assert f'restore="{folder}"' in told
        assert f"holdfast run -s '{folder}'" in told, "it has a space in it"


def test_where_none_is_whole_that_is_said(job: JobStorage) -> None:
    for number in range(1, 5):
        damage(job, number, "metadata")
    with pytest.raises(Corrupt, match="no older checkpoint that is whole"):
        job.latest()


def test_missing_files_are_reported_briefly(job: JobStorage) -> None:
    assert missing_files(job.load(4), file_sizes(job)) == ""
    damage(job, 4, "short")
    (handle,) = job.load(4).handles()
    assert isinstance(handle, FileHandle)
    sizes, end = file_sizes(job), handle.offset + handle.length
    short = f"{handle.file} ({sizes[handle.file]} of {end} bytes) too short"
    assert missing_files(job.load(4), sizes) == short
    assert missing_files(job.load(4), {}) == f"{handle.file} missing"


def test_damaged_state_is_told_with_what_to_restore_instead(job: JobStorage) -> None:
    damage(job, 4, "short")
    (handle,) = job.load(4).handles()
    with pytest.raises(Corrupt) as caught:
        job.read(handle)
    told = with_restore_advice(f"operator 'a' failed: {caught.value}", caught.value, job, 4)
    assert told.startswith("operator 'a' failed: ")
    assert f'restore="{job.url}/chk-{3:020d}"' in told
    assert "Restore another checkpoint" not in told
    assert with_restore_advice(told, caught.value, job, 4) == told
    savepoint = SavepointFolder(job.storage, "savepoint-1")
    assert with_restore_advice("as it is", caught.value, savepoint, 4) == "as it is"
