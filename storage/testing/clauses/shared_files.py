"""Clauses about checkpoints that build on others: shared files stay as long as they are needed."""

from __future__ import annotations

from functools import partial

from holdfast.storage.errors import Fenced, Invalid
from holdfast.storage.jobs.job import JobStorage
from holdfast.storage.jobs.metadata import CheckpointMetadata
from holdfast.storage.jobs.owner import JobOwner
from holdfast.storage.testing.call_orders import orders, pausing
from holdfast.storage.testing.checks import owed, require, same
from holdfast.storage.testing.example_jobs import (
    an_owner,
    build_on,
    checkpoint,
    delete,
    document,
    handles_of,
    has_only,
    is_whole,
    remove,
    retain,
    shared_of,
    without_owners,
    write_files,
)
from holdfast.storage.testing.place import Place, opened
from holdfast.storage.testing.watched_storage import WatchedStorage

__all__ = ["SharedFileClauses"]


class SharedFileClauses:
    """What `JobOwner` owes on this storage to checkpoints that refer to the files of others."""

    def test_a_checkpoint_that_others_build_on_is_kept(self, place: Place) -> None:
        """Retention keeps a checkpoint that others in flight build on, and those after it.

        So nothing is deleted that these will refer to. Once they are completed, it goes.
        """
        job = opened(place, "keeps_segment_files").job("job")
        owner = job.take_over()
        first = checkpoint(owner, job, 1)
        second = build_on(owner, job, 2, first)
        third = build_on(owner, job, 3, first)
        same(retain(owner, 1, since=2), (1,), "deleted, while another builds on checkpoint 2")
        for since in (1, 2):
            same(retain(owner, 1, since=since), (), f"deleted, where all from {since} on are kept")
        orphans = owner.orphans(in_flight=[4])
        same(without_owners(orphans), [], "orphans, while another builds on checkpoint 2")
        is_whole(place.open().job("job"), (2, 3), "after the oldest is gone")
        fourth = build_on(owner, job, 4, second)
        has_only(job, [second, third, fourth], "once what was in flight is completed")
        same(retain(owner, 1, since=4), (2, 3), "deleted, when nothing builds on them any more")
        is_whole(place.open().job("job"), (4,), "after those that it built on are gone")
        has_only(job, [fourth], "after those that it built on are gone")
        same(retain(owner, 2, since=5), (), "deleted, where `since` is above all")

    def test_a_shared_file_is_deleted_with_its_last_checkpoint(self, place: Place) -> None:
        """In whatever order those that refer to it are deleted."""
        storage = opened(place, "keeps_segment_files")
        for number, deleted in enumerate([(1, 2, 3), (1, 3, 2), (2, 1, 3), (3, 1, 2), (3, 2, 1)]):
            job = storage.job(f"job-{number}")
            owner = job.take_over()
            first = checkpoint(owner, job, 1)
            second = build_on(owner, job, 2, first)
            kept = {1: first, 2: second, 3: build_on(owner, job, 3, second)}
            for each in deleted:
                delete(owner, each)
                del kept[each]
                what = f"after {each} of {deleted} was deleted"
                is_whole(place.open().job(job.job_id), kept, what)
                has_only(job, kept.values(), what)

    def test_a_commit_may_refer_to_retained_files_only(self, place: Place) -> None:
        """A borrowed file must belong to a completed checkpoint that still exists.

        Whatever another owner has committed counts as well; the error names file and checkpoint.
        """
        job = opened(place, "keeps_segment_files").job("job")
        owner = job.take_over()
        first = checkpoint(owner, job, 1)
        second = checkpoint(owner, job, 2)
        retain(owner, 1)
        given_up = write_files(job, 3)
        own = write_files(job, 4)
        for what, handles in (("dropped", handles_of(first)), ("given up", given_up)):
            for name in (name for name in handles if "long" in name):
                call = f"a commit with {name} of a checkpoint that was {what}"
                with owed(Invalid, call) as caught:
                    owner.commit(document(job, 4, {**own, name: handles[name]}))
                for part in ("checkpoint 4", str(getattr(handles[name], "file", ""))):
                    require(part in str(caught[0]), f"{caught[0]} must name {part}")
        same(place.open().job("job").completed(), (2,), "completed after commits that were refused")
        fourth = owner.commit(document(job, 4, {**own, **shared_of(second)}))
        newer = place.open().job("job").take_over()
        fifth = build_on(newer, job, 5, fourth)
        is_whole(place.open().job("job"), (2, 4, 5), "with what is kept")
        retain(newer, 1)
        remove(newer, newer.orphans())
        has_only(job, [fifth], "after those that it built on are gone")

    def test_a_commit_and_another_s_cleaning_agree_in_every_order(self, place: Place) -> None:
        """An older owner commits a checkpoint whose base the newer owner may delete meanwhile.

        What is completed is whole, and the older one acts on nothing that is not completed.
        """
        storage = opened(place, "keeps_segment_files")
        for number, order in enumerate(orders()):
            job = storage.job(f"job-{number}")
            watched = WatchedStorage(storage)
            older = watched.job(job.job_id).take_over()
            first = checkpoint(older, job, 1)
            checkpoint(older, job, 2)
            third = document(job, 3, {**write_files(job, 3), **shared_of(first)})
            cleaned = WatchedStorage(storage)
            clean = partial(_take_over_and_clean, cleaned.job(job.job_id))
            committed, newer = order.run(
                pausing(watched, partial(older.commit, third)), pausing(cleaned, clean)
            )
            an_owner(newer, order)
            what = f"after {order}"
            completed = place.open().job(job.job_id).completed()
            fair = completed in ((2,), (3,))
            require(fair, f"the newest must be completed, and no other, {what}: {completed}")
            if not isinstance(committed, Fenced):
                held = isinstance(committed, CheckpointMetadata)
                same((held, completed), (True, (3,)), f"what the older owner has done {what}")
            is_whole(place.open().job(job.job_id), completed, what)

    def test_cleaning_spares_what_a_slot_writes_in_every_order(self, place: Place) -> None:
        """A slot writes while its owner deletes older checkpoints and what was given up.

        Its checkpoint can be committed, with what it builds on, and nothing else is left.
        """
        storage = opened(place, "keeps_segment_files")
        for number, order in enumerate(orders()):
            job = storage.job(f"job-{number}")
            watched = WatchedStorage(storage)
            owner = watched.job(job.job_id).take_over()
            second = build_on(owner, job, 2, checkpoint(owner, job, 1))
            write_files(job, 3)  # and is given up
            written = WatchedStorage(storage)
            _, handles = outcomes = order.run(
                pausing(watched, partial(_clean, owner)),
                pausing(written, partial(write_files, written.job(job.job_id), 4)),
            )
            if not isinstance(handles, dict) or outcomes[0] is not None:
                raise AssertionError(f"cleaning and writing must not fail: {outcomes}")
            fourth = owner.commit(document(job, 4, {**handles, **shared_of(second)}))
            what = f"after {order}"
            is_whole(place.open().job(job.job_id), (2, 4), what)
            has_only(job, [second, fourth], what)


def _clean(owner: JobOwner) -> None:
    """The actions of an owner while checkpoint 4 is written, which builds on 2."""
    retain(owner, 1, since=2)
    remove(owner, owner.orphans(in_flight=[4]))


def _take_over_and_clean(job: JobStorage) -> JobOwner:
    owner = job.take_over()
    retain(owner, 1)
    remove(owner, owner.orphans())
    return owner
