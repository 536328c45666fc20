"""What an owner does when it does not know what became of its commit, or of its claim."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from holdfast.storage import (
    Buffer,
    CheckpointMetadata,
    Fenced,
    FileHandle,
    FileSystemCheckpointStorage,
    Invalid,
    JobManagerCheckpointStorage,
    JobResult,
    StateSnapshot,
    Unavailable,
    UnfinishedWrite,
    names,
)
from holdfast.storage.jobs.ownership import claim_epoch
from holdfast.storage.testing.example_jobs import clear, delete, retain
from holdfast.storage.testing.watched_storage import Call, WatchedStorage, lose_answer


class LosesAnswers(FileSystemCheckpointStorage):
    """Creates commit points, and then says that it is not known."""

    lossy = True

    def create(self, name: str, data: Buffer) -> bytes | None:
        existing = super().create(name, data)
        if self.lossy and name.endswith("/_metadata"):
            raise Unavailable("the answer was lost", where=name)
        return existing


def checkpoint(number: int, *files: str, completed_ms: int = 0) -> CheckpointMetadata:
    handles = {file: FileHandle(file, 0, 1, "00") for file in files}
    return CheckpointMetadata(
        job_id="job",
        checkpoint_id=number,
        triggered_ms=0,
        completed_ms=completed_ms,
        parts={"all": StateSnapshot(kind="test/1", handles={**handles})},
    )


class Counting(JobManagerCheckpointStorage):
    """Knows which commit points were read, and may answer nonsense for one."""

    damaged = 0

    def __init__(self) -> None:
        super().__init__()
        self.read_points: list[int] = []

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        data = super().read_range(name, offset, length)
        found = names.parse_checkpoint_object(name.removeprefix("job/"))
        if found is not None and found.is_metadata:
            self.read_points.append(found.checkpoint_id)
            if found.checkpoint_id == self.damaged:
                return data[:-1]
        return data


def shared(number: int) -> str:
    return names.shared_file(number, "slot", "aa")


def exclusive(number: int) -> str:
    return names.exclusive_file(number, "slot", "aa")


def test_earlier_commits_are_read_only_where_a_checkpoint_builds_on_them() -> None:
    storage = Counting()
    first = storage.job("job").take_over()
    for number in (1, 2, 3):
        first.commit(checkpoint(number, exclusive(number), shared(number), shared(1)))
    assert storage.read_points == []
    owner = storage.job("job").take_over()
    storage.read_points.clear()
    owner.commit(checkpoint(4, exclusive(4)))
    assert storage.read_points == [], "it has what it needs"
    owner.commit(checkpoint(5, shared(5), shared(3), shared(1)))
    owner.commit(checkpoint(6, shared(3), shared(5), exclusive(3)))
    assert storage.read_points == [3], "once"
    owner.commit(checkpoint(7, shared(2)))
    assert storage.read_points == [3, 2]
    with pytest.raises(Invalid, match="refers to a file that may be deleted"):
        owner.commit(checkpoint(8, shared(9)))
    assert owner.completed == storage.job("job").completed() == (1, 2, 3, 4, 5, 6, 7)


def test_a_damaged_checkpoint_is_no_hindrance_to_those_that_do_not_build_on_it() -> None:
    storage = Counting()
    first = storage.job("job").take_over()
    for number in (1, 2):
        first.commit(checkpoint(number, shared(number)))
    owner = storage.job("job").take_over()
    storage.damaged = 2
    owner.commit(checkpoint(3, shared(1)))
    with pytest.raises(Invalid, match="found a file that none of them needs"):
        owner.commit(checkpoint(4, shared(2)))
    owner.commit(checkpoint(4, exclusive(4)))
    assert owner.completed == (1, 2, 3, 4)


@pytest.mark.parametrize("file", ["notes", "shared/notes", "savepoint/slot-0", "chk-5/slot-0"])
def test_a_file_of_no_checkpoint_is_refused(file: str) -> None:
    owner = JobManagerCheckpointStorage().job("job").take_over()
    with pytest.raises(Invalid, match=f"checkpoint 5 of job 'job' .* may be deleted.*{file}"):
        owner.commit(checkpoint(5, file))


def test_a_commit_that_is_not_decided_may_be_repeated_though_it_is_built_on_another() -> None:
    storage = JobManagerCheckpointStorage()
    storage.job("job").take_over().commit(checkpoint(1, shared(1)))
    watched = WatchedStorage(storage, after=lose_answer("create", "_metadata"))
    owner = watched.job("job").take_over()
    for attempt in range(2):
        with pytest.raises(Unavailable) if attempt == 0 else nullcontext():
            owner.commit(checkpoint(2, shared(1), shared(2)))
    assert retain(owner, 1) == (1,)
    assert storage.job("job").load(2).files() == {shared(1), shared(2)}


def test_a_fenced_owner_is_told_so_and_not_that_a_file_is_missing() -> None:
    storage = JobManagerCheckpointStorage()
    storage.job("job").take_over().commit(checkpoint(1, shared(1)))

    def take_over(call: Call) -> None:
        if call.name.endswith("_metadata"):
            watched.before = lambda _: None
            newer = storage.job("job").take_over()
            newer.commit(checkpoint(2))
            retain(newer, 1)

    watched = WatchedStorage(storage)
    older = watched.job("job").take_over()
    watched.before = take_over
    with pytest.raises(Fenced):
        older.commit(checkpoint(3, shared(1)))


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


def test_files_that_an_undecided_commit_may_need_are_kept(tmp_path: Path) -> None:
    storage = LosesAnswers(str(tmp_path))
    owner = storage.job("job").take_over()
    storage.lossy = False
    for number in (1, 2):
        owner.commit(checkpoint(number))
    storage.lossy = True
    with pytest.raises(Unavailable):
        owner.commit(checkpoint(3))
    releases = (partial(owner.release, 1), partial(owner.release_one, 1), owner.release_all)
    for release in releases:
        with pytest.raises(Invalid, match="a commit of job 'job' is not decided"):
            release()
    storage.lossy = False
    owner.commit(checkpoint(3))
    assert retain(owner, 1) == (1, 2)
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
    clear(owner)
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


def test_the_probe_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".probe.00aa00aa00aa00aa.unfinished"
    foreign = tmp_path / ".probe.notes.unfinished"
    for path in (left, foreign):
        path.write_text("")
    FileSystemCheckpointStorage(str(tmp_path)).prepare()
    assert list(tmp_path.iterdir()) == [foreign]


def test_the_right_of_an_earlier_claim_is_had_again_without_a_new_one() -> None:
    job = JobManagerCheckpointStorage().job("job")
    first = job.take_over()
    first.commit(checkpoint(1))
    first.commit(checkpoint(2))
    before = job.owner_records()
    again = job.resume(first.epoch)
    assert job.owner_records() == before
    assert (again.epoch, again.completed, again.next_checkpoint_id) == (1, (1, 2), 3)
    delete(again, 1)
    first.check()
    assert job.completed() == (2,)
    ended = first.end(JobResult(job_id="job", status="finished", ended_ms=1))
    assert job.resume(1).result == ended


@pytest.mark.parametrize("is_unfinished", [False, True], ids=["finished", "unfinished"])
@pytest.mark.parametrize("named", [names.exclusive_file, names.shared_file])
def test_numbers_go_on_above_all_that_was_begun(
    named: Callable[[int, str, str], str],
    is_unfinished: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """Also if nothing else tells of a number than one file, or a write that was begun."""
    storage = FileSystemCheckpointStorage(str(tmp_path))
    job = storage.job("job")
    first = job.take_over()
    first.commit(checkpoint(2))
    writers = [storage.writer(f"job/{named(number, 'slot', 'aa')}") for number in (1, 4)]
    for writer in writers:
        writer.write(b"x" * 1000)
        if not is_unfinished:
            writer.commit()
    assert job.resume(first.epoch).next_checkpoint_id == 5
    assert job.take_over().next_checkpoint_id == 5
    for writer in writers:
        writer.abort()


def test_a_take_over_does_not_need_the_list_of_unfinished_writes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: JobManagerCheckpointStorage, prefix: str) -> Iterator[UnfinishedWrite]:
        raise Invalid("no permission", where=prefix)

    monkeypatch.setattr(JobManagerCheckpointStorage, "unfinished", refuse)
    storage = JobManagerCheckpointStorage()
    storage.write(f"job/{names.shared_file(3, 'slot', 'aa')}", b"x")
    assert storage.job("job").take_over().next_checkpoint_id == 4
    assert "so some numbers may be unknown: no permission [job/]" in caplog.text


def test_an_earlier_claim_is_fenced_by_a_later_one() -> None:
    job = JobManagerCheckpointStorage().job("job")
    first = job.take_over()
    again = job.resume(1)
    claim_epoch(job, "bb")
    for call in (partial(job.resume, 1), again.check):
        with pytest.raises(Fenced, match="another process has taken over"):
            call()
    with pytest.raises(Fenced, match="has been deleted"):
        job.resume(2)  # it has not begun
    for record in [info.name for info in job.storage.list("job/owner-")]:
        job.storage.delete([record])
    with pytest.raises(Fenced, match="has been deleted"):
        job.resume(first.epoch)
