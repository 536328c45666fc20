"""What an owner does when it does not know what became of its commit, or of its claim."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from holdfast.storage import (
    Buffer,
    CheckpointMetadata,
    Fenced,
    FileSystemCheckpointStorage,
    Invalid,
    JobResult,
    Unavailable,
)


class LosesAnswers(FileSystemCheckpointStorage):
    """Creates commit points, and then says that it is not known."""

    lossy = True

    def create(self, name: str, data: Buffer) -> bytes | None:
        existing = super().create(name, data)
        if self.lossy and name.endswith("/_metadata"):
            raise Unavailable("the answer was lost", where=name)
        return existing


def checkpoint(number: int, completed_ms: int = 0) -> CheckpointMetadata:
    return CheckpointMetadata(
        job_id="job", checkpoint_id=number, triggered_ms=0, completed_ms=completed_ms
    )


def test_a_commit_that_is_not_decided_must_be_decided_first(tmp_path: Path) -> None:
    storage = LosesAnswers(str(tmp_path))
    owner = storage.job("job").take_over()
    with pytest.raises(Unavailable):
        owner.commit(checkpoint(1))
    assert owner.next_checkpoint_id == 2
    for other in (checkpoint(2), checkpoint(1, completed_ms=7)):
        with pytest.raises(Invalid, match="an earlier commit of job 'job' is not decided"):
            owner.commit(other)
    with pytest.raises(Invalid, match="a commit of job 'job' is not decided"):
        owner.orphans()
    storage.lossy = False
    owner.commit(checkpoint(1))
    owner.commit(checkpoint(2))
    assert owner.completed == storage.job("job").completed() == (1, 2)
    assert owner.orphans() == []


def test_nothing_is_deleted_that_a_commit_that_is_not_decided_may_need(tmp_path: Path) -> None:
    storage = LosesAnswers(str(tmp_path))
    owner = storage.job("job").take_over()
    storage.lossy = False
    for number in (1, 2):
        owner.commit(checkpoint(number))
    storage.lossy = True
    with pytest.raises(Unavailable):
        owner.commit(checkpoint(3))
    for delete in (partial(owner.retain, 1), partial(owner.delete, 1), owner.clear):
        with pytest.raises(Invalid, match="a commit of job 'job' is not decided"):
            delete()
    storage.lossy = False
    owner.commit(checkpoint(3))
    assert owner.retain(1) == (1, 2)
    assert storage.job("job").completed() == (3,)


def test_a_commit_that_is_not_decided_is_settled_by_the_next_owner(tmp_path: Path) -> None:
    storage = LosesAnswers(str(tmp_path))
    job = storage.job("job")
    owner = job.take_over()
    with pytest.raises(Unavailable):
        owner.commit(checkpoint(1))
    assert job.take_over().completed == (1,)
    with pytest.raises(Fenced):
        owner.commit(checkpoint(1))


def test_a_job_does_not_end_before_its_commit_is_decided(tmp_path: Path) -> None:
    storage = LosesAnswers(str(tmp_path))
    job = storage.job("job")
    owner = job.take_over()
    with pytest.raises(Unavailable):
        owner.commit(checkpoint(1))
    finished = JobResult(job_id="job", status="finished", ended_ms=1)
    with pytest.raises(Invalid, match=r"not decided.*found the result 'finished'"):
        owner.end(finished)
    assert job.result() is None
    storage.lossy = False
    owner.commit(checkpoint(1))
    owner.end(finished)
    with pytest.raises(Invalid, match=r"job 'job' has ended.*nothing after the result 'finished'"):
        owner.commit(checkpoint(2))
    owner.clear()
    assert job.completed() == ()


def test_a_result_of_another_job_is_refused(tmp_path: Path) -> None:
    job = FileSystemCheckpointStorage(str(tmp_path)).job("job")
    with pytest.raises(Invalid, match="a result belongs to another job"):
        job.take_over().end(JobResult(job_id="other", status="finished", ended_ms=1))
    assert job.result() is None


def test_a_folder_that_was_emptied_has_no_result(tmp_path: Path) -> None:
    job = FileSystemCheckpointStorage(str(tmp_path)).job("job")
    job.take_over().end(JobResult(job_id="job", status="finished", ended_ms=1))
    shutil.rmtree(tmp_path / "job")
    assert job.result() is None
    job.take_over().commit(checkpoint(1))


def test_an_owner_whose_folder_was_emptied_and_taken_by_another_stops(tmp_path: Path) -> None:
    job = FileSystemCheckpointStorage(str(tmp_path)).job("job")
    first = job.take_over()
    shutil.rmtree(tmp_path / "job")
    second = job.take_over()
    assert (first.epoch, second.epoch) == (1, 1)
    second.commit(checkpoint(1))
    with pytest.raises(Fenced, match="has been deleted"):
        first.commit(checkpoint(2))
    assert job.completed() == (1,)


def test_what_a_killed_process_left_of_a_probe_is_cleared(tmp_path: Path) -> None:
    left = tmp_path / ".probe.00aa.unfinished"
    left.write_text("")
    FileSystemCheckpointStorage(str(tmp_path)).prepare()
    assert list(tmp_path.iterdir()) == []
