"""Clauses about retention, deletion and orphans: no completed checkpoint ever lacks a file."""

from __future__ import annotations

from functools import partial
from itertools import count

from holdfast.storage import names
from holdfast.storage.errors import Invalid, NotFound
from holdfast.storage.jobs.job import JobStorage
from holdfast.storage.testing.call_orders import orders, pausing
from holdfast.storage.testing.checks import is_absent, outcome_of, owed, reads, require, same
from holdfast.storage.testing.example_jobs import (
    an_owner,
    build_on,
    checkpoint,
    delete,
    document,
    has_only,
    is_fair,
    is_whole,
    remove,
    retain,
    shared_of,
    taking_over,
    without_owners,
    write_files,
)
from holdfast.storage.testing.place import Place, opened
from holdfast.storage.testing.watched_storage import ByThread, Kill, Killed, WatchedStorage

__all__ = ["RetentionClauses"]


class RetentionClauses:
    """What the `release` methods, `orphans` and `sweeper` of an owner owe on this storage."""

    def test_retention_keeps_the_newest(self, place: Place) -> None:
        """The older ones are gone with all their files, the kept ones are whole."""
        job = opened(place).job("job")
        owner = job.take_over()
        written = [checkpoint(owner, job, number) for number in (1, 2, 3, 4)]
        same(retain(owner, 4), (), "deleted, where as many are kept as there are")
        same(retain(owner, 2), (1, 2), "deleted, where two of four are kept")
        again = place.open().job("job")
        same((owner.completed, again.completed()), ((3, 4), (3, 4)), "completed after retention")
        is_whole(again, (3, 4), "after retention")
        for number in (1, 2):
            with owed(NotFound, f"load of checkpoint {number}, which was deleted"):
                again.load(number)
        has_only(job, written[2:], "after retention")
        same(retain(owner, 1), (3,), "deleted, where one of two is kept")
        is_whole(again, (4,), "after keeping one")
        with owed(Invalid, "retention of none"):
            retain(owner, 0)

    def test_retention_keeps_files_that_others_need(self, place: Place) -> None:
        """A shared file goes with the last checkpoint that refers to it, not with the first."""
        job = opened(place, "keeps_segment_files").job("job")
        owner = job.take_over()
        borrowed = shared_of(checkpoint(owner, job, 1))
        for number in (2, 3):
            owner.commit(document(job, number, {**write_files(job, number), **borrowed}))
        retain(owner, 1)
        is_whole(place.open().job("job"), (3,), "after the checkpoint that wrote the file is gone")
        same(without_owners(owner.orphans()), [], "orphans: the file is needed")
        newer = place.open().job("job").take_over()
        same(without_owners(newer.orphans()), [], "orphans for the next owner")
        fourth = checkpoint(newer, job, newer.next_checkpoint_id)
        retain(newer, 1)
        has_only(job, [fourth], "after the last that needed the file is gone")

    def test_delete_takes_one_checkpoint(self, place: Place) -> None:
        """The named one and what it alone needs; a number that is not completed is Invalid."""
        job = opened(place).job("job")
        owner = job.take_over()
        written = [checkpoint(owner, job, number) for number in (1, 2, 3)]
        delete(owner, 2)
        same((owner.completed, job.completed()), ((1, 3), (1, 3)), "completed after a delete")
        is_whole(place.open().job("job"), (1, 3), "after a delete")
        has_only(job, [written[0], written[2]], "after a delete")
        for number in (2, 9):
            with owed(Invalid, f"delete of checkpoint {number}, which is not completed"):
                delete(owner, number)
        same(job.completed(), (1, 3), "completed after deletes that were refused")

    def test_a_kill_in_retention_leaves_no_half(self, place: Place) -> None:
        """Killed before each single call: what is still completed is whole, and the rest goes."""
        storage = opened(place)
        for after in count():
            job = storage.job(f"job-{after}")
            owner = job.take_over()
            for number in (1, 2, 3):
                checkpoint(owner, job, number)
            watched = WatchedStorage(storage)
            mine = watched.job(job.job_id).take_over()
            what = f"killed after {after} calls of retention"
            try:
                with watched.asking(Kill(after)):
                    same(retain(mine, 1), (1, 2), "deleted, where one of three is kept")
            except Killed:
                _is_sound_after_a_kill(place, job, what)
                continue
            same(job.completed(), (3,), "completed after retention without a kill")
            require(after > 3, "the kills must have fallen between the calls")
            return

    def test_retention_and_a_take_over_agree_in_every_order(self, place: Place) -> None:
        """An older owner may be deleting when another takes over.

        Then completed checkpoints are whole, and the newer owner can go on.
        """
        storage = opened(place)
        for number, order in enumerate(orders()):
            job = storage.job(f"job-{number}")
            watched = WatchedStorage(storage)
            older = watched.job(job.job_id).take_over()
            build_on(older, job, 2, checkpoint(older, job, 1))
            retaining = pausing(watched, partial(retain, older, 1))
            retained, taken = order.run(retaining, taking_over(storage, job))
            newer = an_owner(taken, order)
            is_fair(retained, place.open().job(job.job_id), order)
            for what, call in (("orphans", newer.orphans), ("retain", partial(retain, newer, 1))):
                outcome = outcome_of(call)
                failed = isinstance(outcome, Exception)
                require(not failed, f"{what} of the newer owner must work in {order}: {outcome!r}")
            remove(newer, newer.orphans())
            same(job.completed(), (2,), f"completed in the end, after {order}")
            has_only(job, [job.load(2)], f"in the end, after {order}")

    def test_released_checkpoints_are_deleted_beside_commits_in_every_order(
        self, place: Place
    ) -> None:
        """One thread commits, another one deletes what was released before, and looks for orphans.

        All completed checkpoints are whole, and nothing else is left.
        """
        storage = opened(place)
        for number, order in enumerate(orders()):
            job = storage.job(f"job-{number}")
            by_thread = ByThread()
            owner = WatchedStorage(storage, before=by_thread).job(job.job_id).take_over()
            second = build_on(owner, job, 2, checkpoint(owner, job, 1))
            write_files(job, 3)  # and is given up
            third = document(job, 4, {**write_files(job, 4), **shared_of(second)})
            owner.release(1)
            owner.release_orphans(in_flight=range(4, 100))
            sweep = pausing(by_thread, owner.sweeper.run)
            commit = pausing(by_thread, partial(owner.commit, third))
            for outcome in order.run(sweep, commit):
                failed = isinstance(outcome, Exception)
                require(not failed, f"neither may fail in {order}: {outcome!r}")
            what = f"after {order}"
            same((owner.completed, job.completed()), ((2, 4), (2, 4)), f"completed {what}")
            is_whole(place.open().job(job.job_id), (2, 4), what)
            has_only(job, [second, job.load(4)], what)

    def test_files_that_may_be_needed_are_not_orphans(self, place: Place) -> None:
        """Leftovers of dead attempts are found, unfinished writes among them.

        Files in flight, the owner's own records, and foreign names are spared.
        """
        storage = opened(place)
        job = storage.job("job")
        owner = job.take_over()
        checkpoint(owner, job, 1)
        dead, alive = names.exclusive_file(2, "slot", "dead"), names.shared_file(3, "slot", "alive")
        begun = [storage.writer(f"{job.folder}/{name}") for name in (dead, alive)]
        foreign = ["notes", "folder/notes", f"{names.checkpoint_folder(2)}-notes", "ownership"]
        for name in [*foreign, f"{dead}-done", f"{alive}-done"]:
            storage.write(f"{job.folder}/{name}", b"x")
        for writer in begun:
            writer.write(b"x" * 70_000)
        orphans = owner.orphans(in_flight=[3])
        unfinished = {w.name: w.target for w in storage.unfinished(f"{job.folder}/")}
        targets = [unfinished.get(f"{job.folder}/{name}", name) for name in orphans]
        rest = {target.removeprefix(f"{job.folder}/") for target in targets} - {dead}
        same(rest, {f"{dead}-done"}, "orphans, without the unfinished write of the dead attempt")
        remove(owner, orphans)
        left = {write.target for write in storage.unfinished(f"{job.folder}/")}
        require(f"{job.folder}/{dead}" not in left, "the unfinished write must be removed")
        for writer in begun:
            writer.abort()
        is_absent(storage, f"{job.folder}/{dead}-done", "after the orphans were removed")
        for name in [*foreign, f"{alive}-done"]:
            reads(storage, f"{job.folder}/{name}", b"x", "what is not an orphan")
        owner.check()
        is_whole(place.open().job("job"), (1,), "after the orphans were removed")


def _is_sound_after_a_kill(place: Place, job: JobStorage, what: str) -> None:
    again = place.open().job(job.job_id)
    completed = again.completed()
    require(3 in completed, f"{what}: the kept checkpoint must be completed, not only {completed}")
    is_whole(again, completed, what)
    owner = again.take_over()
    remove(owner, owner.orphans())
    is_whole(again, completed, f"{what}, after the orphans were removed")
    retain(owner, 1)
    has_only(job, [again.load(3)], f"{what}, and retained again")
