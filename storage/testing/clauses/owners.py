"""Clauses about two owners on one place: the newer fences the older, and both know what counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.storage.errors import Fenced, NotFound, Taken
from holdfast.storage.jobs.job import JobStorage
from holdfast.storage.jobs.metadata import CheckpointMetadata
from holdfast.storage.jobs.owner import JobOwner
from holdfast.storage.testing import other_processes
from holdfast.storage.testing.call_orders import Order, orders, pausing
from holdfast.storage.testing.checks import names_in, outcome_of, owed, require, same
from holdfast.storage.testing.clauses.creates import at_once
from holdfast.storage.testing.example_jobs import (
    an_owner,
    checkpoint,
    commit,
    delete,
    document,
    files_kept,
    is_whole,
    metadata_name,
    once,
    remove,
    retain,
    taking_over,
    without_owners,
    write_files,
)
from holdfast.storage.testing.place import Place, opened
from holdfast.storage.testing.watched_storage import WatchedStorage

__all__ = ["OwnerClauses"]

_THREADS = 16
_ROUNDS = 4


class OwnerClauses:
    """What the commit protocol owes on this storage, when drivers of one job meet."""

    def test_a_newer_owner_fences_the_older(self, place: Place) -> None:
        """Whatever the older tries to change is refused, and changes nothing."""
        job = opened(place).job("job")
        older = job.take_over()
        for number in (1, 2, 3):
            checkpoint(older, job, number)
        orphans = [name.removeprefix(f"{job.folder}/") for name in _begin_garbage(job)]
        newer = place.open().job("job").take_over()
        same(newer.completed, (1, 2, 3), "what the newer owner found")
        require(newer.epoch > older.epoch, "epochs must rise")
        before = files_kept(job)
        attempts: dict[str, Callable[[], object]] = {
            "check": older.check,
            "commit": partial(commit, older, job, 4),
            "retain": partial(retain, older, 1),
            "delete": partial(delete, older, 3),
            "orphans": older.orphans,
            "remove": partial(remove, older, orphans),
        }
        for what, attempt in attempts.items():
            with owed(Fenced, f"{what} by an older owner"):
                attempt()
            same(files_kept(job), before, f"files after {what} by an older owner")
        same(job.completed(), (1, 2, 3), "completed after the older owner's attempts")
        newer.check()
        number = checkpoint(newer, job, newer.next_checkpoint_id).checkpoint_id
        is_whole(job, (1, 2, 3, number), "with the newer owner's checkpoint")

    def test_an_owner_without_its_claim_stops(self, place: Place) -> None:
        """The folder of the job was emptied: its owner neither commits nor deletes.

        The next owner then counts epochs from one again.
        """
        job = opened(place).job("job")
        job.take_over()
        owner = newer = job.take_over()
        job.storage.delete([info.name for info in job.storage.list(f"{job.folder}/")])
        for what in ("nobody", "an owner of a lower epoch"):
            with owed(Fenced, f"commit without a claim, where {what} has taken over"):
                commit(owner, job, 1)
            same(files_kept(job), [], f"files after that commit, where {what} has taken over")
            newer = job.take_over()
        commit(newer, job, 1)
        same(job.completed(), (1,), "completed for the owner that took over")

    def test_a_commit_and_a_take_over_agree_in_every_order(self, place: Place) -> None:
        """A commit beside a take-over, in each order of their calls: all agree on the outcome.

        Either it held, and the newer owner and all readers count it; or the older owner was fenced,
        and the others still agree with each other.
        """
        storage = opened(place)
        for number, order in enumerate(orders()):
            job = storage.job(f"job-{number}")
            commit(job.take_over(), job, 1)
            watched = WatchedStorage(storage)
            older = watched.job(job.job_id).take_over()
            committing = pausing(watched, partial(commit, older, job, 2))
            outcomes = order.run(committing, taking_over(storage, job))
            _agree(place, job, outcomes, order)

    def test_take_overs_agree_in_every_order(self, place: Place) -> None:
        """Two take over at once, in each order of their calls: one owns the job.

        It is the one with the newer epoch; the other is fenced at once or at its first commit.
        """
        storage = opened(place)
        for number, order in enumerate(orders()):
            job = storage.job(f"job-{number}")
            outcomes = order.run(taking_over(storage, job), taking_over(storage, job))
            owners = [each for each in outcomes if isinstance(each, JobOwner)]
            fenced = [each for each in outcomes if isinstance(each, Fenced)]
            same(len(owners) + len(fenced), 2, f"owners and fenced in {order}: {outcomes}")
            require(owners, f"one must own the job in {order}")
            newest = max(owners, key=lambda owner: owner.epoch)
            for owner in owners:
                outcome = outcome_of(partial(commit, owner, job, owner.epoch))
                held = CheckpointMetadata if owner is newest else Fenced
                require(isinstance(outcome, held), f"{held.__name__} owed in {order}: {outcome}")
            same(job.completed(), (newest.epoch,), f"completed after {order}")

    def test_a_late_commit_is_void(self, place: Place) -> None:
        """The older owner was paused in its commit while others took over: its checkpoint is void.

        Its commit point is there, but not completed, now or later, and goes as an orphan.
        """
        storage = opened(place)
        for newer_owners in (1, 2):
            job = storage.job(f"job-{newer_owners}")
            commit(job.take_over(), job, 1)
            newer = _commit_late(place, job, newer_owners, state=True)
            point = metadata_name(job, 2)
            require(point in names_in(storage, job.folder), "the late commit point must be there")
            for _ in range(2):
                same(newer.completed, (1,), "completed for the newer owner")
                same(job.completed(), (1,), "completed for a reader, with a late commit there")
                latest = job.latest()
                same(latest and latest.checkpoint_id, 1, "the latest, with a late commit there")
                with owed(NotFound, "load of a late commit"):
                    job.load(2)
                newer = place.open().job(job.job_id).take_over()
            orphans = newer.orphans()
            late = [name for name in files_kept(job) if f"{2:020d}" in name]
            same(without_owners(orphans), late, "the orphans: all that came late")
            remove(newer, orphans)
            same(without_owners(newer.orphans()), [], "orphans after they were removed")
            checkpoint(newer, job, 2)
            is_whole(job, (1, 2), "the number used again")

    def test_a_number_with_a_late_commit_is_not_used(self, place: Place) -> None:
        """The newer owner could not know of the late commit, and gets Taken for its number.

        It goes on with the next one, and what it then commits counts.
        """
        job = opened(place).job("job")
        commit(job.take_over(), job, 1)
        newer = _commit_late(place, job, 1, state=False)
        same(newer.next_checkpoint_id, 2, "the number that the newer owner would use")
        with owed(Taken, "commit under a number that a late commit has taken"):
            commit(newer, job, 2)
        same(job.completed(), (1,), "completed after it was refused")
        number = newer.next_checkpoint_id
        require(number > 2, "the next number must lead past the late commit")
        checkpoint(newer, job, number)
        same((newer.completed, job.completed()), ((1, number), (1, number)), "completed then")
        is_whole(job, (number,), "the checkpoint under the next number")

    def test_of_many_threads_one_owns_the_job(self, place: Place) -> None:
        """Sixteen that take over at once: no epoch is given twice, and one can commit."""
        storage = opened(place, "atomic_create")
        for round_number in range(_ROUNDS):
            job = storage.job(f"job-{round_number}")
            outcomes = at_once([partial(outcome_of, job.take_over)] * _THREADS)
            owners = [each for each in outcomes if isinstance(each, JobOwner)]
            require(owners, f"one of {_THREADS} must own the job: {outcomes}")
            epochs = sorted(owner.epoch for owner in owners)
            same(epochs, sorted(set(epochs)), "epochs, each given once")
            commits = [partial(commit, owner, job, owner.epoch) for owner in owners]
            held = [
                each.epoch
                for each in at_once([partial(outcome_of, each) for each in commits])
                if isinstance(each, CheckpointMetadata)
            ]
            same(held, epochs[-1:], "epochs that could commit")
            same(job.completed(), tuple(held), "completed")

    def test_commits_of_several_processes_are_kept(self, place: Place) -> None:
        """Processes take the job from each other: every commit that was acknowledged is there.

        And each was committed by the owner that acknowledged it.
        """
        storage = opened(place, "atomic_create", "shared_between_processes")
        held: dict[int, int] = {}
        for mine in other_processes.at_once(other_processes.commit_until_fenced, storage, "job", 8):
            twice = sorted(set(held) & set(mine))
            same(twice, [], "numbers acknowledged to two processes")
            held |= mine
        require(held, "some commits must have held")
        job = place.open().job("job")
        missing = sorted(set(held) - set(job.completed()))
        same(missing, [], "acknowledged checkpoints that are not completed")
        found = {number: job.load(number).epoch for number in held}
        same(found, held, "the owners of acknowledged checkpoints")


def _begin_garbage(job: JobStorage) -> list[str]:
    before = set(names_in(job.storage, job.folder))
    write_files(job, 9)
    return sorted(set(names_in(job.storage, job.folder)) - before)


def _commit_late(place: Place, job: JobStorage, newer_owners: int, *, state: bool) -> JobOwner:
    """Let an owner's commit of checkpoint 2 arrive only after so many others took over."""
    newer: list[JobOwner] = []

    def take_over() -> None:
        newer.extend(place.open().job(job.job_id).take_over() for _ in range(newer_owners))

    watched = WatchedStorage(place.open())
    older_job = watched.job(job.job_id)
    older = older_job.take_over()
    metadata = document(job, 2, write_files(older_job, 2) if state else None)
    with (
        owed(Fenced, "a commit, when others took over in the middle of it"),
        watched.asking(once("create", "_metadata", take_over)),
    ):
        older.commit(metadata)
    return newer[-1]


def _agree(place: Place, job: JobStorage, outcomes: list[object], order: Order) -> None:
    committed, newer = outcomes[0], an_owner(outcomes[1], order)
    held = isinstance(committed, CheckpointMetadata)
    fair = held or isinstance(committed, Fenced)
    require(fair, f"the commit must hold or be fenced in {order}: {committed!r}")
    completed = newer.completed
    allowed = [(1, 2)] if held else [(1, 2), (1,)]
    require(completed in allowed, f"owed is one of {allowed} in {order}, found {completed}")
    same(job.completed(), completed, f"completed for a reader after {order}")
    loaded = outcome_of(partial(job.load, 2))
    same(isinstance(loaded, CheckpointMetadata), 2 in completed, f"load after {order}: {loaded}")
    same(place.open().job(job.job_id).take_over().completed, completed, f"a later owner: {order}")
