"""A savepoint that a job had claimed, and that is restored again before it was deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage import (
    CheckpointMetadata,
    JobResult,
    SavepointFolder,
    load_storage,
)
from holdfast.storage.jobs.savepoint import SAVEPOINT
from support.jobs.claimed_checkpoints import Run, Unaware


def savepoint(url: str) -> SavepointFolder:
    folder = SavepointFolder.begin(load_storage(url), "other")
    folder.commit(
        CheckpointMetadata(
            job_id="other", checkpoint_id=3, kind=SAVEPOINT, triggered_ms=1, completed_ms=2
        )
    )
    return folder


@pytest.mark.parametrize("place", ["storage/savepoints", "elsewhere"])
@pytest.mark.parametrize("spelling", ["{path}", "file://{path}", "{path}/_metadata", "{link}"])
@pytest.mark.parametrize("is_aware", [True, False])
def test_a_restored_savepoint_is_not_deleted_as_a_leftover_claim(
    tmp_path: Path, place: str, spelling: str, *, is_aware: bool
) -> None:
    folder = savepoint(str(tmp_path / place))
    path = folder.url.removeprefix("file://")
    (tmp_path / "link").symlink_to(path)
    mine = load_storage(str(tmp_path / "storage"))
    run = Run(mine.job("job"), folder.url, "claim")
    run.keeper.end(JobResult(job_id="job", status="finished", ended_ms=5, holdfast_version="1"))
    run.keeper.close()  # killed before it had deleted anything
    assert folder.read_metadata().checkpoint_id == 3

    other = mine if is_aware else Unaware(str(tmp_path / "storage"))
    again = Run(
        other.job("job"),
        spelling.format(path=path, link=tmp_path / "link"),
        None,
        open_storage=load_storage if is_aware else Unaware,
    )
    assert again.beginning.point is not None
    assert folder.read_metadata() == again.beginning.point.metadata
    again.keeper.close()


def test_a_leftover_claim_is_deleted_when_another_savepoint_is_restored(tmp_path: Path) -> None:
    claimed, other = savepoint(str(tmp_path / "a")), savepoint(str(tmp_path / "b"))
    other.discard()
    other.commit(
        CheckpointMetadata(
            job_id="other", checkpoint_id=4, kind=SAVEPOINT, triggered_ms=1, completed_ms=2
        )
    )
    mine = load_storage(str(tmp_path / "storage"))
    run = Run(mine.job("job"), claimed.url, "claim")
    run.keeper.end(JobResult(job_id="job", status="finished", ended_ms=5, holdfast_version="1"))
    run.keeper.close()
    again = Run(mine.job("job"), other.url, None)
    again.keeper.close()
    assert [*claimed.storage.list(f"{claimed.folder}/")] == []
    assert other.read_metadata().checkpoint_id == 4


@pytest.mark.parametrize("place", ["storage", "storage/savepoints", "elsewhere", "else where"])
def test_a_claimed_savepoint_is_deleted_whole(tmp_path: Path, place: str) -> None:
    folder = savepoint(str(tmp_path / place))
    run = Run(load_storage(str(tmp_path / "storage")).job("job"), folder.url, "claim")
    run.complete()
    run.keeper.finish_deleting()
    run.keeper.close()
    assert not [*tmp_path.rglob(f"{folder.folder}*")]
