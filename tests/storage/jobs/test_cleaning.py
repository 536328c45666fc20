"""Cleaning a job's folder on request: leftovers go, beside a live run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Fenced,
    JobManagerCheckpointStorage,
    JobOwner,
    JobResult,
    JobStorage,
    NotFound,
    ObjectInfo,
    Unavailable,
    load_storage,
    names,
)
from holdfast.storage.jobs.cleaning import (
    delete_leftovers,
    delete_orphans,
    find_leftovers,
    find_orphans,
    is_job_folder,
    jobs_in,
)
from holdfast.storage.jobs.job import job_in
from holdfast.storage.jobs.metadata import METADATA
from holdfast.storage.jobs.owner_records import START, Start
from holdfast.storage.jobs.ownership import claim_epoch
from holdfast.storage.testing.call_orders import orders
from holdfast.storage.testing.example_jobs import clear, delete, remove, retain
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


def test_beside_a_run_only_what_is_older_than_the_newest_goes(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, job, 5)
    commit(owner, job, 7, shared(5))
    delete(owner, 5)
    foreign = ["notes", "chk-5/slot", f"{names.checkpoint_folder(3)}-notes"]
    leave(job, own(4), shared(6), own(7), names.shared_file(7, "x", "bb"), own(8), *foreign)
    assert unneeded(job) == {own(4), shared(6)}
    found = find_leftovers(job)
    assert (found.completed, found.has_ended, found.objects) == ((7,), False, 13)
    assert sum(delete_leftovers(job, found)) == 2
    assert unneeded(job) == set()
    assert {own(7), shared(7), shared(5), own(8), *foreign} <= there(job)
    owner.check()
    commit(owner, job, 8, shared(5))


def test_of_a_job_without_a_completed_checkpoint_nothing_can_be_told(job: JobStorage) -> None:
    job.take_over()
    leave(job, own(1), own(2))
    assert unneeded(job) == set()


def test_of_a_job_that_has_ended_everything_goes(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, job, 3)
    owner.end(JobResult(job_id="job", status="finished", ended_ms=1))
    leave(job, own(2), own(9), "notes")
    assert unneeded(job) == {own(2), own(9)}
    clear(owner)
    leave(job, own(3), shared(4))
    found = find_leftovers(job)
    assert found.has_ended
    assert sum(delete_leftovers(job, found)) == 2
    assert there(job) == {"notes"}
    job.take_over(reopen=True)
    leave(job, own(3))
    assert unneeded(job) == set()


def test_a_commit_point_is_left_to_the_owner(job: JobStorage) -> None:
    """Even one that is void: a later one may get its name while this is being deleted."""
    older = job.take_over()
    commit(older, job, 1)
    newer = job.take_over()
    leave(job, own(2))
    metadata = CheckpointMetadata(
        job_id="job", checkpoint_id=2, epoch=1, triggered_ms=0, completed_ms=0
    )
    job.storage.write(f"job/{names.metadata(2)}", METADATA.seal(metadata))
    commit(newer, job, 3)
    assert job.completed() == (1, 3)
    assert unneeded(job) == {own(2)}
    orphans = {stored.name for stored in find_orphans(job, newer).unneeded}
    assert {own(2), names.metadata(2)} < orphans


def test_unfinished_writes_go_by_the_number_of_their_target(tmp_path: Path) -> None:
    storage = load_storage(str(tmp_path))
    job = storage.job("job")
    owner = job.take_over()
    targets = [own(1), shared(1), own(3), "notes"]
    begun = [storage.writer(f"job/{name}") for name in targets]
    for writer in begun:
        writer.write(b"x" * 1000)
    commit(owner, job, 2)
    found = find_leftovers(job)
    assert [stored.finished for stored in found.unneeded] == [False, False]
    assert all(f"{1:020d}" in stored.name for stored in found.unneeded)
    assert sum(delete_leftovers(job, found)) == 2
    assert {write.target for write in storage.unfinished("")} == {f"job/{own(3)}", "job/notes"}
    for writer in begun:
        writer.abort()


def test_unreadable_metadata_stops_the_cleaning(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, job, 1)
    commit(owner, job, 2)
    job.storage.write(f"job/{names.metadata(1)}", b"damaged")
    leave(job, own(0))
    for find in (find_leftovers, find_orphans):
        with pytest.raises(Corrupt, match=f"{1:020d}/_metadata"):
            find(job)


class Meanwhile:
    """A hook that does something before the first call that is like this, once or each time."""

    def __init__(self, verb: str, part: str, *actions: Callable[[], object]) -> None:
        self.wanted = (verb, part)
        self.actions = [*actions]

    def __call__(self, call: Call) -> None:
        if call.verb == self.wanted[0] and self.wanted[1] in call.name and self.actions:
            self.actions.pop(0)()


class BeforeListing(Meanwhile):
    """Likewise, before all that is there is listed, and not before a part of it is."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        super().__init__("list", "job/", *actions)

    def __call__(self, call: Call) -> None:
        if call.name == "job/":
            super().__call__(call)


def meeting(job: JobStorage, hook: Callable[[Call], None]) -> JobStorage:
    """The same folder, as one sees it while others change it."""
    return WatchedStorage(job.storage, before=hook).job(job.job_id)


def test_checkpoints_committed_during_the_listing_are_kept(job: JobStorage) -> None:
    owner = job.take_over()
    commit(owner, job, 5)
    leave(job, own(4))

    def go_on() -> None:
        commit(owner, job, 6, shared(5))
        commit(owner, job, 7, shared(5), shared(6))
        retain(owner, 1)

    seen = meeting(job, Meanwhile("unfinished", "", go_on))
    assert {stored.name for stored in find_leftovers(seen).unneeded} <= {own(4)}


def test_a_checkpoint_deleted_before_its_read_causes_another_listing(job: JobStorage) -> None:
    """A checkpoint that borrowed from it may have been missed."""
    owner = job.take_over()
    commit(owner, job, 5)
    commit(owner, job, 6, shared(5))

    def go_on() -> None:
        commit(owner, job, 7, shared(5))
        retain(owner, 1)

    reads = Meanwhile("read_range", names.metadata(5), go_on)
    found = find_leftovers(meeting(job, reads))
    assert not reads.actions
    assert found.completed == (7,)
    assert shared(5) not in {stored.name for stored in found.unneeded}
    assert job.load(7).files() <= there(job)

    def always(call: Call) -> None:
        if call.verb == "read_range" and "_metadata" in call.name:
            commit(owner, job, owner.next_checkpoint_id)
            retain(owner, 1)

    with pytest.raises(Unavailable, match="faster than they can be read"):
        find_leftovers(meeting(job, always))


def test_a_take_over_during_cleaning_begins_another_history(job: JobStorage) -> None:
    """It goes back to 5, and a later owner uses 6 again: what was seen of 7 and 8 says nothing."""
    owner = job.take_over()
    for number in (5, 6, 7, 8):
        commit(owner, job, number)

    def go_back() -> None:
        newer = job.take_over()
        newer.rewind(5)
        remove(newer, newer.orphans())
        job.take_over()
        leave(job, shared(6))

    seen = meeting(job, Meanwhile("unfinished", "", go_back))
    assert shared(6) not in {stored.name for stored in find_leftovers(seen).unneeded}

    def always(call: Call) -> None:
        if call.verb == "unfinished":
            job.take_over()

    with pytest.raises(Unavailable, match="is taken over again and again"):
        find_leftovers(meeting(job, always))


def test_files_of_a_reopened_job_are_kept(job: JobStorage) -> None:
    """Cleaning sees its claim from the start, and reads the result before it has begun."""
    older = job.take_over()
    commit(older, job, 5)
    older.end(JobResult(job_id="job", status="finished", ended_ms=1))
    leave(job, own(4))
    claim_epoch(job, "bb")
    assert not find_leftovers(job).has_ended, "a new owner is about to begin"

    def begin() -> None:
        start = Start(epoch=2, owner="bb", accepted=(5,))
        job.storage.create(f"job/{names.owner_record(2, 'start', 'bb')}", START.seal(start))
        leave(job, own(6), shared(6))

    found = find_leftovers(meeting(job, BeforeListing(begin)))
    assert not found.has_ended
    assert {stored.name for stored in found.unneeded} == {own(4)}


def test_a_new_owner_may_use_lower_numbers_than_were_completed(
    job: JobStorage,
) -> None:
    """The older owner commits 9 when the newer one has listed up to 5, and will go on with 6."""
    older = job.take_over()
    commit(older, job, 5)
    claim_epoch(job, "bb")
    late = msgspec.structs.replace(document(9), epoch=1)
    job.storage.write(f"job/{names.metadata(9)}", METADATA.seal(late))

    def begin() -> None:
        start = Start(epoch=2, owner="bb", accepted=(5,))
        job.storage.create(f"job/{names.owner_record(2, 'start', 'bb')}", START.seal(start))
        leave(job, own(6), shared(6))

    found = find_leftovers(meeting(job, BeforeListing(begin)))
    assert {own(6), shared(6)}.isdisjoint(stored.name for stored in found.unneeded)


def test_with_the_right_to_it_every_orphan_goes(job: JobStorage) -> None:
    older = job.take_over()
    commit(older, job, 5)
    leave(job, own(4), own(6), shared(7), "notes")
    planned = find_orphans(job)
    older.check()
    owner = job.take_over()
    found = find_orphans(job, owner)
    assert {each.name for each in planned.unneeded} == {each.name for each in found.unneeded}
    assert sum(delete_orphans(owner, found)) == len(found.unneeded) == 5
    assert there(job) == {"notes", *job.load(5).files(), names.metadata(5)}
    assert [record.epoch for record in job.owner_records()] == [2, 2]
    with pytest.raises(Fenced):
        older.check()
    job.take_over()
    with pytest.raises(Fenced):
        find_orphans(job, owner)


def test_jobs_are_known_by_their_owners(tmp_path: Path) -> None:
    storage = load_storage(str(tmp_path))
    for name in ("a job/1", "orders", "~"):
        storage.job(name).take_over()
    for other in ("notes/owner", "shared/x", "~ZZ/owner-00000000000000000001", "loose"):
        storage.write(other, b"x")
    for other in ("~FF", "~41", "\udcff", "Ärger"):  # as others may have called them
        (tmp_path / other).mkdir()
        (tmp_path / other / names.claim(1)).write_bytes(b"x")
        with pytest.raises(NotFound, match="this is not the folder of a job"):
            job_in(storage, other)
    assert jobs_in(storage) == ["a job/1", "orders", "~"]
    assert not is_job_folder(storage)
    assert is_job_folder(load_storage(str(tmp_path / "orders")))


class Piecemeal(JobManagerCheckpointStorage):
    """Its listings take their time: they miss whatever comes or goes meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0
        self.meanwhile: Callable[[int], object] = lambda _: None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if not prefix.endswith("/chk-"):
            return super().list(prefix)
        began = [*super().list(prefix)]
        self.listings += 1
        self.meanwhile(self.listings)
        ended = {info.name for info in super().list(prefix)}
        return iter([info for info in began if info.name in ended])


@pytest.mark.parametrize("turns", range(1, 1 << 6))
def test_objects_missed_by_a_listing_are_not_taken_for_unneeded(turns: int) -> None:
    """In some of them a checkpoint is completed, and one deleted that had the same file.

    Of the file no other one knows that is there all the time.
    """
    storage = Piecemeal()
    job = storage.job("job")
    owner = job.take_over()
    commit(owner, job, 5)
    commit(owner, job, 6, shared(5))
    delete(owner, 5)
    commit(owner, job, 7)

    def go_on(listing: int) -> None:
        if (turns >> listing - 1) & 1:
            storage.meanwhile = lambda _: None
            number = owner.next_checkpoint_id
            commit(owner, job, number, *[shared(5)] * (number % 2 == 0))
            retain(owner, 2)
            storage.meanwhile = go_on

    storage.listings, storage.meanwhile = 0, go_on
    found = find_leftovers(job)
    sum(delete_leftovers(job, found))
    storage.meanwhile = lambda _: None
    for number in job.completed():
        missing = job.load(number).files() - there(job)
        assert not missing, f"checkpoint {number} lacks {missing}"


def go_on(storage: WatchedStorage, owner: JobOwner, pause: Hook) -> None:
    """What a run does: commits what it has written, on what there is, and retains one."""
    with storage.asking(pause):
        owner.commit(document(7, own(7), shared(5)))
        retain(owner, 1)


@pytest.mark.slow
def test_a_run_and_cleaning_agree_in_every_order() -> None:
    tried = 0
    for order in orders():
        storage = JobManagerCheckpointStorage()
        job = storage.job("job")
        watched = WatchedStorage(storage)
        owner = watched.job("job").take_over()
        for number in (5, 6):
            commit(owner, job, number)
        leave(job, own(4), own(7))
        for outcome in order.run(partial(go_on, watched, owner), partial(clean, storage)):
            assert outcome is None, f"{order}: {outcome!r}"
        assert job.completed() == (7,)
        missing = job.load(7).files() - there(job)
        assert not missing, f"checkpoint 7 lacks {missing} after {order}"
        tried += 1
    assert tried > 10


def begin_again(storage: WatchedStorage, pause: Hook) -> JobOwner:
    """What a run does that opens a job again, up to a file that it has written."""
    with storage.asking(pause):
        job = storage.job("job")
        owner = job.take_over(reopen=True)
        assert owner.next_checkpoint_id == 6
        storage.create(f"job/{own(6)}", b"x")  # at one call, to have fewer orders
    return owner


@pytest.mark.slow
def test_reopening_and_cleaning_agree_in_every_order() -> None:
    tried = 0
    for order in orders():
        storage = JobManagerCheckpointStorage()
        job = storage.job("job")
        older = job.take_over()
        commit(older, job, 5)
        older.end(JobResult(job_id="job", status="finished", ended_ms=1))
        leave(job, own(4))
        watched = WatchedStorage(storage)
        owner, cleaned = order.run(partial(begin_again, watched), partial(clean, storage))
        assert isinstance(owner, JobOwner), f"{order}: {owner!r}"
        assert cleaned is None, f"{order}: {cleaned!r}"
        owner.commit(document(6, own(6), shared(5)))
        missing = job.load(6).files() - there(job)
        assert not missing, f"checkpoint 6 lacks {missing} after {order}"
        tried += 1
    assert tried > 10
