"""The checkpoint that an owner has restored: its files stay, also if its commit point goes late."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count

import pytest

from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Invalid,
    JobManagerCheckpointStorage,
    JobOwner,
    JobResult,
    JobStorage,
    NotFound,
    Unavailable,
    names,
)
from holdfast.storage.jobs.cleaning import delete_leftovers, find_leftovers
from holdfast.storage.testing.call_orders import orders
from holdfast.storage.testing.example_jobs import delete
from holdfast.storage.testing.watched_storage import Call, Hook, WatchedStorage
from support.kills.cleaned_folders import (
    clean,
    commit,
    document,
    leave,
    own,
    shared,
    there,
    unneeded,
)


@pytest.fixture
def job() -> JobStorage:
    return JobManagerCheckpointStorage().job("job")


def restore(
    storage: WatchedStorage, owner: JobOwner, restored: CheckpointMetadata, late: int, pause: Hook
) -> None:
    """What a run does that has read 5 and goes on from it, up to its first commit.

    The last request of the run before it, made before that was fenced, arrives at the call `late`.
    """
    calls = count()
    point = Call("delete", f"job/{names.metadata(5)}")

    def pause_and_delete(call: Call) -> None:
        if next(calls) == late:
            pause(point)
            storage._inner.delete([point.name])
        pause(call)

    with storage.asking(pause_and_delete):
        owner.hold(restored)
        owner.commit(document(7, own(7), shared(5)))


@pytest.mark.slow
@pytest.mark.dealt("late", take=2)
@pytest.mark.parametrize("late", [0, 1, 2, 4])
def test_a_restored_checkpoint_that_vanishes_keeps_its_files_in_every_order(late: int) -> None:
    """The restoring owner knows its files, and no other process could read them any more.

    What is committed second builds on it as well, and has what the first one has done without.
    """
    outcomes: Counter[str] = Counter()
    for order in orders():
        storage = JobManagerCheckpointStorage()
        job = storage.job("job")
        older = job.take_over()
        commit(older, job, 4)
        commit(older, job, 5, shared(4))
        delete(older, 4)
        leave(job, own(3), own(7), own(8))
        watched = WatchedStorage(storage)
        owner = watched.job("job").take_over()
        restored, cleaned = order.run(
            partial(restore, watched, owner, job.load(5), late), partial(clean, storage)
        )
        assert cleaned is None, f"{order}: {cleaned!r}"
        outcomes["cleaned"] += own(3) not in there(job)
        if isinstance(restored, NotFound):
            outcomes["refused"] += 1
            assert job.completed() == (), f"nothing is changed after {order}"
            continue
        assert restored is None, f"{order}: {restored!r}"
        outcomes["restored"] += 1
        sum(delete_leftovers(job, find_leftovers(job)))
        owner.commit(document(8, own(8), shared(4)))
        for number in (7, 8):
            missing = job.load(number).files() - there(job)
            assert not missing, f"checkpoint {number} lacks {missing} after {order}"
    assert outcomes["cleaned"] > 1
    assert outcomes["refused" if late < 2 else "restored"] > 1


def test_a_restored_checkpoint_is_kept_until_its_owner_ends_the_job(job: JobStorage) -> None:
    older = job.take_over()
    commit(older, job, 5)
    commit(older, job, 6)
    owner = job.take_over()
    owner.hold(job.load(5))
    owner.hold(job.load(5))  # its answer may have been lost
    with pytest.raises(Invalid, match="this owner of job 'job' has restored another checkpoint"):
        owner.hold(job.load(6))
    job.storage.delete([f"job/{names.metadata(5)}"])
    assert unneeded(job) == set()
    owner.end(JobResult(job_id="job", status="finished", ended_ms=1))
    assert unneeded(job) == {own(5), shared(5)}
    heir = job.take_over()  # that the job has ended is not what this one has done
    heir.hold(job.load(6))
    job.storage.delete([f"job/{names.metadata(6)}"])
    assert unneeded(job) == {own(5), shared(5)}
    job.take_over()
    assert unneeded(job) == {own(5), shared(5), own(6), shared(6)}


def test_a_restored_checkpoint_is_kept_until_it_is_released(job: JobStorage) -> None:
    """Then its owner may be killed before it deletes the files, and the job never start again."""
    older = job.take_over()
    commit(older, job, 4)
    commit(older, job, 5)
    refuses: list[str] = []

    def refuse(call: Call) -> None:
        if call.verb == "delete":
            refuses.append(call.name)
            if names.parse_owner(call.name.removeprefix("job/")) is None and len(refuses) > 3:
                raise Unavailable("it was killed", where=call.name)

    owner = WatchedStorage(job.storage, before=refuse).job("job").take_over()
    owner.hold(job.load(5))
    commit(owner, job, 7, shared(5))
    assert owner.release(1, since=5) == (4,), "a checkpoint in flight may still build on 5"
    assert [each.kind for each in job.owner_records()].count("held") == 1
    assert owner.release(1) == (5,)
    with pytest.raises(Unavailable):
        owner.sweeper.run()
    kinds = ["held" if "held" in name else name.removeprefix("job/") for name in refuses[:3]]
    assert kinds == ["held", names.metadata(4), names.metadata(5)]
    assert unneeded(job) == {own(4), shared(4), own(5)}


def build_on_what_is_released(storage: WatchedStorage, owner: JobOwner, pause: Hook) -> None:
    """What a run does that has built 7 on what it has restored: 8 has from 7 what 7 has from 5."""
    with storage.asking(pause):
        owner.release(1)
        while owner.sweeper.owes:
            owner.sweeper.step()
        owner.commit(document(8, own(8), shared(5)))


@pytest.mark.soak  # 2,480 orders
def test_a_checkpoint_built_on_a_released_one_keeps_its_files_in_every_order() -> None:
    outcomes: Counter[str] = Counter()
    for order in orders():
        storage = JobManagerCheckpointStorage()
        job = storage.job("job")
        commit(job.take_over(), job, 5)
        leave(job, own(3), own(7), own(8))
        watched = WatchedStorage(storage)
        owner = watched.job("job").take_over()
        owner.hold(job.load(5))
        owner.commit(document(7, own(7), shared(5)))
        run = partial(build_on_what_is_released, watched, owner)
        built, cleaned = order.run(run, partial(clean, storage))
        assert (built, cleaned) == (None, None), f"{order}: {built!r}, {cleaned!r}"
        outcomes["cleaned"] += own(3) not in there(job)
        for number in (7, 8):
            missing = job.load(number).files() - there(job)
            assert not missing, f"checkpoint {number} lacks {missing} after {order}"
    assert outcomes["cleaned"] > 1


def test_a_record_of_what_is_restored_that_cannot_be_read_is_named(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, job, 5)
    owner.hold(job.load(5))
    (held,) = (each for each in job.owner_records() if each.kind == "held")
    job.storage.write(f"job/{names.owner_record(1, 'held', held.token or '')}", b"damaged")
    with pytest.raises(Corrupt, match=rf"owner-{1:020d}\.held-"):
        find_leftovers(job)


def test_a_checkpoint_deleted_before_the_hold_is_refused(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, job, 5)
    restored = job.load(5)
    owner = job.take_over()
    job.storage.delete([f"job/{names.metadata(5)}"])
    with pytest.raises(NotFound, match="no completed checkpoint 5"):
        owner.hold(restored)
    with pytest.raises(Invalid, match="no completed checkpoint 4"):
        owner.hold(document(4))
