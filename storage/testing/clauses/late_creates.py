"""Clauses about commit points that come back: a create without an answer is carried out late.

The first request of a commit may be under way for an unbounded time, while the second one makes the
checkpoint, and the checkpoint is deleted. Then its commit point exists again, without its files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from msgspec import structs

from holdfast.storage.errors import NotFound, Taken
from holdfast.storage.interface import Capabilities
from holdfast.storage.jobs.job import JobStorage
from holdfast.storage.jobs.metadata import METADATA
from holdfast.storage.jobs.owner import JobOwner
from holdfast.storage.testing.call_orders import orders, pausing
from holdfast.storage.testing.checks import names_in, owed, require, same
from holdfast.storage.testing.example_jobs import (
    an_owner,
    checkpoint,
    clear,
    delete,
    document,
    is_fair,
    is_whole,
    metadata_name,
    remove,
    retain,
    taking_over,
)
from holdfast.storage.testing.place import Place, opened
from holdfast.storage.testing.watched_storage import WatchedStorage

__all__ = ["ReappearanceClauses"]

_Deletes = Callable[[JobOwner], object]


class ReappearanceClauses:
    """What the commit protocol owes where a create may be carried out late."""

    def test_a_commit_point_that_comes_back_is_void(self, place: Place) -> None:
        """Whichever way its checkpoint was deleted: for no reader, listing or owner, then or later.

        Its number is not used again, and it goes as an orphan.
        """
        ways: dict[str, tuple[_Deletes, tuple[int, ...], tuple[int, ...]]] = {
            "retain": (lambda owner: retain(owner, 1), (1, 2), (3,)),
            "delete": (lambda owner: delete(owner, 2), (2,), (1, 3)),
            "rewind": (lambda owner: owner.rewind(1), (2, 3), (1,)),
            "clear": (clear, (1, 2, 3), ()),
            "two ways": (_both_ways, (2, 1), (3,)),
        }
        storage = _Late(opened(place))
        for way, (deletes, gone, left) in ways.items():
            job = storage.job(f"by {way}")
            owner = job.take_over()
            points = {}
            for number in (1, 2, 3):
                checkpoint(owner, job, number)
                points[number] = storage.read(metadata_name(job, number))
            deletes(owner)
            for number in gone:
                storage.create(metadata_name(job, number), points[number])
            what = f"after commit points came back, deleted by {way}"
            for _ in range(2):
                _is_void(place.open().job(job.job_id), gone, left, what)
                require(owner.next_checkpoint_id > 3, f"the next number {what}")
                same(owner.completed, left, f"completed for the owner {what}")
                owner = job.take_over()  # it has other records
            remove(owner, owner.orphans())
            listed = names_in(storage, job.folder)
            there = [number for number in gone if metadata_name(job, number) in listed]
            same(there, [], f"commit points {what}, and after orphans were removed")

    def test_deleting_and_what_comes_back_agree_in_every_order(self, place: Place) -> None:
        """A late create beside the deleting of its checkpoint, in each order of their calls.

        Whenever it is carried out, completed checkpoints are whole afterwards, also for a new
        owner.
        """
        plain = opened(place)
        for number, order in enumerate(orders()):
            job = plain.job(f"job-{number}")
            watched = _Late(plain)
            owner = watched.job(job.job_id).take_over()
            for each in (1, 2):
                checkpoint(owner, job, each)
            point = plain.read(metadata_name(job, 1))
            late = _Late(plain)
            create = pausing(late, partial(late.create, metadata_name(job, 1), point))
            retained, _ = order.run(pausing(watched, partial(retain, owner, 1)), create)
            same(retained, (1,), f"deleted in {order}")
            _is_void(place.open().job(job.job_id), (1,), (2,), f"after {order}")
            same(job.take_over().completed, (2,), f"for the new owner after {order}")

    def test_void_records_and_a_take_over_agree_in_every_order(self, place: Place) -> None:
        """A fenced owner records void numbers late: the newer owner goes on."""
        storage = opened(place)
        for number, order in enumerate(orders()):
            job = storage.job(f"job-{number}")
            watched = _Late(storage)
            older = watched.job(job.job_id).take_over()
            for each in (1, 2):
                checkpoint(older, job, each)
            retaining = pausing(watched, partial(retain, older, 1))
            retained, newer = order.run(retaining, taking_over(storage, job))
            an_owner(newer, order)
            is_fair(retained, place.open().job(job.job_id), order)

    def test_the_number_of_a_deleted_void_commit_is_used_again(self, place: Place) -> None:
        """A late commit of an older owner goes as an orphan, and then its number is this owner's.

        Those that this owner has deleted are not used again.
        """
        storage = _Late(opened(place))
        job = storage.job("job")
        older = job.take_over()
        checkpoint(older, job, 1)
        delete(older, 1)
        owner = job.take_over()
        late = structs.replace(document(job, 2), epoch=older.epoch)
        storage.create(metadata_name(job, 2), METADATA.seal(late))
        remove(owner, [name for name in owner.orphans() if name.endswith("_metadata")])
        checkpoint(owner, job, 2)
        is_whole(place.open().job("job"), (2,), "under a number that an older owner had used late")
        delete(owner, 2)
        with owed(Taken, "commit under a number that is void"):
            checkpoint(owner, job, 2)
        require(owner.next_checkpoint_id > 2, "the next number")


class _Late(WatchedStorage):
    """A storage whose creates may be late, whatever it says itself."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, late_creates=True)


def _is_void(job: JobStorage, gone: tuple[int, ...], left: tuple[int, ...], what: str) -> None:
    same(job.completed(), left, f"completed {what}")
    latest = job.latest()
    same(latest and latest.checkpoint_id, left[-1] if left else None, f"the latest {what}")
    for number in gone:
        with owed(NotFound, f"load of checkpoint {number} {what}"):
            job.load(number)
    is_whole(job, left, what)


def _both_ways(owner: JobOwner) -> None:
    delete(owner, 2)
    retain(owner, 1)
