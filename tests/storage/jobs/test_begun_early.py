"""Files that are begun before the checkpoint that refers to them: what keeps them, and how long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pytest

from holdfast.storage import (
    CheckpointMetadata,
    FileHandle,
    Invalid,
    JobManagerCheckpointStorage,
    JobOwner,
    JobStorage,
    StateSnapshot,
    names,
)
from holdfast.storage.jobs.cleaning import find_leftovers
from holdfast.storage.jobs.decisions import open_from
from holdfast.storage.testing.call_orders import orders
from holdfast.storage.testing.example_jobs import clear, delete, remove, retain
from holdfast.storage.testing.watched_storage import Call, Hook, WatchedStorage
from support.kills.cleaned_folders import clean, leave, own, shared, there, unneeded

_ABOVE_ALL = 10**15


@pytest.fixture
def job() -> JobStorage:
    return JobManagerCheckpointStorage().job("job")


def document(number: int, begun_from: int | None, *files: str) -> CheckpointMetadata:
    """A checkpoint of one writer that begins files early, and one that does not."""
    handles = {name: FileHandle(name, 0, 1, "00") for name in files}
    return CheckpointMetadata(
        job_id="job",
        checkpoint_id=number,
        triggered_ms=0,
        completed_ms=0,
        parts={
            "early": StateSnapshot(kind="t/1", handles={**handles}, begun_from=begun_from),
            "other": StateSnapshot(kind="t/1"),
        },
    )


def commit(owner: JobOwner, number: int, begun_from: int | None, *files: str) -> None:
    owner.commit(document(number, begun_from, *files))


def test_a_commit_refers_to_what_its_writer_has_begun_before(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, 1, 2)
    commit(owner, 4, 5, shared(2), shared(3), shared(4))  # 2 and 3 were given up
    commit(owner, 5, 6, shared(2), shared(4))
    assert job.load(5).files() == {shared(2), shared(4)}


def test_a_commit_may_refer_to_a_number_above_its_own(job: JobStorage) -> None:
    """One file has what several operators have written, and one of them had seen the barrier."""
    owner = job.take_over()
    commit(owner, 1, 2, shared(2))
    commit(owner, 2, 3, shared(2), shared(3))


@pytest.mark.parametrize(
    ("begun_from", "file"),
    [(None, shared(2)), (5, own(2)), (5, own(3)), (5, "shared/notes"), (5, "chk-3/slot-0-aa")],
)
def test_others_refer_to_what_is_completed(
    job: JobStorage, begun_from: int | None, file: str
) -> None:
    owner = job.take_over()
    with pytest.raises(Invalid, match=f"may be deleted.*{file}.*say begun_from in each part"):
        commit(owner, 4, begun_from, file)
    assert job.completed() == ()


def test_a_file_released_by_a_completed_checkpoint_is_refused(job: JobStorage) -> None:
    """Cleaning beside the owner may have deleted it."""
    owner = job.take_over()
    commit(owner, 4, 3)
    commit(owner, 5, 6)
    for number in (3, 4, 5):
        with pytest.raises(Invalid, match=r"numbered from 6 on"):
            commit(owner, 6, 7, shared(number))
    commit(owner, 6, 7, shared(6))


def test_a_file_that_a_search_could_delete_is_refused(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, 4, 2)
    owner.release_orphans(in_flight=range(3, _ABOVE_ALL))
    with pytest.raises(Invalid, match=r"numbered from 3 on"):
        commit(owner, 5, 2, shared(2))
    commit(owner, 5, 3, shared(3))
    owner.orphans(in_flight=[6, 8])
    for spared, number in ((False, 7), (False, 9), (True, 6), (True, 8)):
        call = partial(commit, owner, 10 + number, 3, shared(number))
        with nullcontext() if spared else pytest.raises(Invalid, match="may be deleted"):
            call()


def test_files_begun_by_an_earlier_attempt_are_orphans(job: JobStorage) -> None:
    commit(job.take_over(), 4, 2, shared(4))
    owner = job.take_over()
    leave(job, shared(2), shared(3), shared(4))
    with pytest.raises(Invalid, match="numbered from 5 on"):
        commit(owner, 5, 2, shared(2))
    assert set(owner.orphans(in_flight=range(5, _ABOVE_ALL))) >= {shared(2), shared(3)}
    commit(owner, 5, 6, shared(4), shared(5))


def test_a_search_spares_what_is_open(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, 6, 4)
    leave(job, shared(3), shared(4), shared(5), shared(7))
    first = open_from(6, job.load(6).begun_from)
    remove(owner, owner.orphans(in_flight=range(first, _ABOVE_ALL)))
    assert there(job) == {names.metadata(6), shared(4), shared(5), shared(7)}


def test_retention_deletes_what_was_let_go_of(job: JobStorage) -> None:
    owner = job.take_over()
    leave(job, own(4), shared(3), shared(4), shared(5))
    commit(owner, 4, 3, own(4), shared(4))
    commit(owner, 5, 3, shared(5))
    assert retain(owner, 1) == (4,)
    assert there(job) == {names.metadata(5), shared(3), shared(5)}
    commit(owner, 6, 7, shared(3), shared(5))
    clear(owner)
    assert there(job) == set()


def test_cleaning_beside_a_run_keeps_open_files(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, 5, 6)
    commit(owner, 8, 6)
    leave(job, own(5), own(7), shared(5), shared(6), shared(7), shared(9))
    assert unneeded(job) == {own(5), shared(5)}
    commit(owner, 9, 10, shared(6))
    assert unneeded(job) == {own(5), own(7), shared(5), shared(7)}


def test_without_a_completed_checkpoint_everything_may_be_open(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, 5, 3)
    leave(job, shared(2), shared(3))
    seen = WatchedStorage(job.storage, before=once("unfinished", partial(delete, owner, 5)))
    assert find_leftovers(seen.job("job")).unneeded == ()
    commit(owner, 6, 7, shared(3))


def test_the_newest_checkpoint_at_that_moment_decides_what_is_kept(job: JobStorage) -> None:
    """The one that was the newest before had let go of nothing yet, or is gone."""
    owner = job.take_over()
    commit(owner, 5, 3)
    leave(job, shared(2), shared(3), shared(4))

    def complete_more() -> None:
        commit(owner, 6, 4, shared(3))
        commit(owner, 7, 4)
        retain(owner, 1)

    seen = WatchedStorage(job.storage, before=once("unfinished", complete_more))
    assert {stored.name for stored in find_leftovers(seen.job("job")).unneeded} == {
        shared(2),
        shared(3),
    }
    commit(owner, 8, 9, shared(4))


def once(verb: str, act: Callable[[], object]) -> Callable[[Call], None]:
    """A hook that acts before the first call of this verb."""
    left = [act]

    def hook(call: Call) -> None:
        if call.verb == verb and left:
            left.pop()()

    return hook


def go_on(storage: WatchedStorage, owner: JobOwner, pause: Hook) -> None:
    """A run that completes what was under way, and what was begun before it."""
    with storage.asking(pause):
        owner.commit(document(7, 8, shared(4), shared(6)))
        retain(owner, 1)


@pytest.mark.slow
def test_a_run_and_cleaning_agree_in_every_order() -> None:
    tried = 0
    for order in orders():
        storage = JobManagerCheckpointStorage()
        job = storage.job("job")
        watched = WatchedStorage(storage)
        owner = watched.job("job").take_over()
        commit(owner, 3, 4)
        commit(owner, 5, 4)
        leave(job, shared(2), shared(4), shared(6))
        for outcome in order.run(partial(go_on, watched, owner), partial(clean, storage)):
            assert outcome is None, f"{order}: {outcome!r}"
        missing = job.load(7).files() - there(job)
        assert not missing, f"checkpoint 7 lacks {missing} after {order}"
        assert shared(2) not in there(job)
        tried += 1
    assert tried > 10
