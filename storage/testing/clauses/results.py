"""Clauses about the end of a job: recorded once, and known to every later reader."""

from __future__ import annotations

from functools import partial
from itertools import count

from holdfast.storage.errors import Fenced, Invalid, Unavailable
from holdfast.storage.jobs.owner_records import JobResult
from holdfast.storage.testing.call_orders import orders, pausing
from holdfast.storage.testing.checks import names_in, outcome_of, owed, require, same
from holdfast.storage.testing.example_jobs import (
    an_owner,
    checkpoint,
    clear,
    commit,
    ending,
    files_kept,
    is_whole,
    once,
    taking_over,
)
from holdfast.storage.testing.place import Place, opened
from holdfast.storage.testing.watched_storage import Kill, Killed, WatchedStorage, lose_answer

__all__ = ["EndClauses"]


class EndClauses:
    """What `JobOwner.end` and `release_all` owe on this storage, and later owners."""

    def test_an_end_is_recorded_for_good(self, place: Place) -> None:
        """Its owner, readers and later owners know how the job ended, and none of them commits.

        What the job has left can be deleted; that it ended is known all the same.
        """
        storage = opened(place)
        job, other = storage.job("job"), storage.job("other")
        owner, _ = job.take_over(), other.take_over()
        same((job.result(), owner.result), (None, None), "the result of a job that goes on")
        checkpoint(owner, job, 1)
        written = owner.end(ending(job))
        same((written.epoch, written.status), (owner.epoch, "finished"), "what was recorded")
        for round_number in range(3):
            what = f"how the job has ended, for owner {round_number + 1}"
            same(owner.result, written, what)
            same(place.open().job("job").result(), written, f"{what}'s readers")
            with owed(Invalid, "a commit after the end"):
                commit(owner, job, owner.next_checkpoint_id)
            with owed(Invalid, "another end after the end"):
                owner.end(ending(job, "cancelled"))
            same(job.completed(), () if round_number else (1,), "checkpoints after the end")
            clear(owner)
            same(files_kept(job), [], "files after the end, when all was deleted")
            same(job.result(), written, f"{what}, when all was deleted")
            owner = place.open().job("job").take_over()
        same(other.result(), None, "the result of the job beside it")

    def test_an_ended_job_can_be_opened_again(self, place: Place) -> None:
        """Then its end is void; its checkpoints still count, and it can end once more."""
        job = opened(place).job("job")
        owner = job.take_over()
        checkpoint(owner, job, 1)
        owner.end(ending(job, "cancelled"))
        for reopen in (True, False):
            owner = job.take_over(reopen=reopen)
            what = f"how the job has ended, for owner {owner.epoch}, after it was opened again"
            same((owner.result, place.open().job("job").result()), (None, None), what)
            number = checkpoint(owner, job, owner.next_checkpoint_id).checkpoint_id
            is_whole(place.open().job("job"), (1, number), "after the job was opened again")
        written = owner.end(ending(job))
        same(place.open().job("job").result(), written, "how the job has ended at last")

    def test_an_ambiguous_end_is_repeated(self, place: Place) -> None:
        """Unavailable from an end that took effect: the same call again ends it well.

        Meanwhile nothing can be committed, for the end may be there for all readers.
        """
        storage = opened(place)
        for verb, part in (("create", ".result-"), ("list", "owner-")):
            job = storage.job(f"job-{verb}")
            watched = WatchedStorage(storage)
            owner = watched.job(job.job_id).take_over()
            # Only from its creation on: a call that fails before that has changed nothing.
            lose = partial(setattr, watched, "after", lose_answer(verb, part))
            with (
                owed(Unavailable, f"end while {verb} loses its answer"),
                watched.asking(once("create", ".result-", lose)),
            ):
                owner.end(ending(job))
            with owed(Invalid, "a commit while it is not known whether the job has ended"):
                commit(owner, job, 1)
            for _ in range(2):
                written = owner.end(ending(job))
                same((owner.result, job.result()), (written, written), "what was repeated")

    def test_an_older_owner_cannot_end_the_job(self, place: Place) -> None:
        """Nor if it was paused meanwhile: a record that it writes then is void."""
        storage = opened(place)
        for is_late in (False, True):
            job = storage.job(f"job-{is_late}")
            watched = WatchedStorage(storage)
            older = watched.job(job.job_id).take_over()
            take_over = place.open().job(job.job_id).take_over
            if not is_late:
                take_over()
            before = names_in(storage, job.folder)
            with (
                owed(Fenced, "an end by an older owner"),
                watched.asking(once("create", ".result-", take_over)),
            ):
                older.end(ending(job))
            if not is_late:
                same(names_in(storage, job.folder), before, "records after the older owner's end")
            same((job.result(), older.result), (None, None), "the result of the fenced owner")
            newer = place.open().job(job.job_id).take_over()
            same(newer.result, None, "the result for a later owner")
            commit(newer, job, 1)

    def test_an_end_and_a_take_over_agree_in_every_order(self, place: Place) -> None:
        """An end beside a take-over, in each order of their calls: all agree whether it ended.

        If the end held, the next owner knows of it; else nothing was deleted in vain.
        """
        storage = opened(place)
        for number, order in enumerate(orders()):
            job = storage.job(f"job-{number}")
            watched = WatchedStorage(storage)
            older = watched.job(job.job_id).take_over()
            commit(older, job, 1)
            ending_it = pausing(watched, partial(older.end, ending(job)))
            ended, outcome = order.run(ending_it, taking_over(storage, job))
            fair = isinstance(ended, JobResult | Fenced)
            require(fair, f"the end must hold or be fenced in {order}: {ended!r}")
            newer = an_owner(outcome, order)
            if isinstance(ended, JobResult):
                same(newer.result, ended, f"how the job has ended, for the newer owner in {order}")
            same(place.open().job(job.job_id).result(), newer.result, f"the result after {order}")
            last = place.open().job(job.job_id).take_over()
            same(last.result, newer.result, f"the result for a later owner after {order}")
            outcome = outcome_of(partial(commit, last, job, 2))
            refused = isinstance(outcome, Invalid)
            same(refused, last.result is not None, f"refused to commit after {order}: {outcome!r}")

    def test_a_kill_leaves_an_ended_job_ended(self, place: Place) -> None:
        """Killed before each single call, while another owner deletes what the job has left."""
        storage = opened(place)
        for after in count():
            job = storage.job(f"job-{after}")
            owner = job.take_over()
            for number in (1, 2):
                checkpoint(owner, job, number)
            written = owner.end(ending(job))
            watched = WatchedStorage(storage)
            what = f"how the job has ended, killed after {after} calls"
            try:
                with watched.asking(Kill(after)):
                    clear(watched.job(job.job_id).take_over())
                is_done = True
            except Killed:
                is_done = False
            again = place.open().job(job.job_id)
            same(again.result(), written, what)
            is_whole(again, again.completed(), what)
            later = again.take_over()
            same(later.result, written, f"{what}, for a later owner")
            clear(later)
            same(files_kept(job), [], f"files, {what}, and cleared again")
            same(again.result(), written, f"{what}, and cleared again")
            if is_done:
                require(after > 3, "the kills must have fallen between the calls")
                return
