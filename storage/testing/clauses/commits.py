"""Clauses about one owner's checkpoints: committed as a whole, or not there."""

from __future__ import annotations

from itertools import count

from holdfast.storage import names
from holdfast.storage.errors import NotFound, Unavailable
from holdfast.storage.jobs.owner import JobOwner
from holdfast.storage.testing.checks import names_in, owed, require, same
from holdfast.storage.testing.example_jobs import (
    checkpoint,
    commit,
    document,
    files_kept,
    is_whole,
    metadata_name,
    remove,
    without_owners,
    write_files,
)
from holdfast.storage.testing.place import Place, opened
from holdfast.storage.testing.watched_storage import Kill, Killed, WatchedStorage, lose_answer

__all__ = ["CommitClauses"]


class CommitClauses:
    """What `JobStorage` and `JobOwner` owe on this storage, while one owner is at work."""

    def test_a_committed_checkpoint_is_completed(self, place: Place) -> None:
        """Committed checkpoints are listed, loaded and read as they were written.

        For its owner, for other readers and after reopening; another job does not see it.
        """
        job = opened(place).job("job / 1")
        same((job.completed(), job.latest()), ((), None), "what a new job has completed")
        owner = job.take_over()
        first, second = checkpoint(owner, job, 1), checkpoint(owner, job, 2)
        same(owner.completed, (1, 2), "what the owner knows to be completed")
        for again in (job, place.open().job("job / 1")):
            same(again.completed(), (1, 2), "the completed checkpoints")
            same([again.load(1), again.load(2)], [first, second], "what was committed")
            same(again.latest(), second, "the latest checkpoint")
            is_whole(again, (1, 2), "after the commit")
        same(place.open().job("job / 1").take_over().completed, (1, 2), "what the next owner finds")
        same(place.open().job("job").completed(), (), "the checkpoints of another job")

    def test_a_checkpoint_is_absent_before_its_commit(self, place: Place) -> None:
        """Killed between data and metadata: there is no checkpoint, only files to clean up.

        They are found and removed, but for those of a checkpoint that is being written now.
        """
        job = opened(place, "keeps_segment_files").job("job")
        owner = job.take_over()
        checkpoint(owner, job, 1)
        kept = files_kept(job)
        for number in (2, 3):
            write_files(job, number)
        later = place.open().job("job")
        same(later.completed(), (1,), "the completed checkpoints, before the commit of others")
        with owed(NotFound, "load of a checkpoint that was not committed"):
            later.load(2)
        left = sorted(set(files_kept(job)) - set(kept))
        newer = later.take_over()
        require(newer.next_checkpoint_id > 3, "a number that was begun must not be used again")
        same(without_owners(newer.orphans()), left, "the files of what was not committed")
        of_two = [name for name in left if f"{2:020d}" in name]
        orphans = newer.orphans(in_flight=[3])
        same(without_owners(orphans), of_two, "orphans while checkpoint 3 is in flight")
        remove(newer, orphans)
        remove(newer, newer.orphans())
        same(files_kept(job), kept, "files after the orphans were removed")
        is_whole(later, (1,), "after the orphans were removed")

    def test_an_ambiguous_commit_is_repeated(self, place: Place) -> None:
        """Unavailable from a commit that took effect: the same call again ends it well.

        Whichever of its calls lost its answer, there is one checkpoint in the end.
        """
        storage = opened(place)
        for number, verb in enumerate(("create", "list"), start=1):
            job = storage.job(f"job-{number}")
            part = "_metadata" if verb == "create" else "owner-"
            watched = WatchedStorage(storage)
            owner = watched.job(job.job_id).take_over()
            metadata = document(job, 1, write_files(job, 1))
            watched.after = lose_answer(verb, part)
            with owed(Unavailable, f"commit while {verb} loses its answer"):
                owner.commit(metadata)
            for _ in range(2):
                written = owner.commit(metadata)
                same(job.load(1), written, "what a repeated commit wrote")
            same((owner.completed, job.completed()), ((1,), (1,)), "completed after repeating")
            listed = [name for name in names_in(storage, f"{job.folder}/chk-") if "_meta" in name]
            same(listed, [metadata_name(job, 1)], "commit points after repeating")
            same(without_owners(owner.orphans()), [], "orphans after repeating")

    def test_an_ambiguous_take_over_is_repeated(self, place: Place) -> None:
        """Unavailable at any call of it, after it took effect: calling again makes an owner."""
        storage = opened(place)
        owner = storage.job("job").take_over()
        commit(owner, storage.job("job"), 1)
        lost = [("prepare", ""), ("list", "owner-"), ("create", "owner-"), ("create", ".start")]
        for verb, part in [*lost, ("list", "chk-")]:
            watched = WatchedStorage(storage, after=lose_answer(verb, part))
            with owed(Unavailable, f"take_over while {verb} {part} loses its answer"):
                watched.job("job").take_over()
            job = watched.job("job")
            newer = job.take_over()
            newer.check()
            same(newer.completed, owner.completed, f"completed after {verb} {part} was lost")
            commit(newer, job, newer.next_checkpoint_id)
            same(job.completed(), newer.completed, "completed by the new owner")
            owner = newer

    def test_a_kill_leaves_each_checkpoint_whole_or_absent(self, place: Place) -> None:
        """Killed before each single call: what was acknowledged is there, and all is whole.

        Taking over, writing and committing are tried. What is left besides can be removed.
        """
        storage = opened(place)
        for after in count():
            job_id = f"job-{after}"
            held: list[int] = []
            watched = WatchedStorage(storage, before=Kill(after))
            try:
                _work(watched, job_id, held)
            except Killed:
                _is_sound_after_a_kill(place, job_id, held, f"killed after {after} calls")
                continue
            same(held, [1, 2], "what was acknowledged without a kill")
            require(after > 10, "the kills must have fallen between the calls")
            return

    def test_checkpoints_are_in_order_of_number(self, place: Place) -> None:
        """As numbers, however many digits they have and in whatever order they came."""
        job = opened(place).job("job")
        owner = job.take_over()
        numbers = [0, 9, 10, 11, 99, 100, 4_294_967_296, 10**19, 2, 10**20 - 2]
        for number in numbers:
            commit(owner, job, number)
        again = place.open().job("job")
        same(again.completed(), tuple(sorted(numbers)), "the completed checkpoints")
        latest = again.latest()
        same(latest and latest.checkpoint_id, max(numbers), "the latest one")
        same(owner.next_checkpoint_id, max(numbers) + 1, "the next number")
        same(job.take_over().next_checkpoint_id, max(numbers) + 1, "the next owner's next number")
        longest = max(len(names.metadata(number)) for number in numbers)
        same(longest, len(names.metadata(0)), "the length of every commit point's name")


def _work(storage: WatchedStorage, job_id: str, held: list[int]) -> None:
    job = storage.job(job_id)
    owner = job.take_over()
    for number in (1, 2):
        checkpoint(owner, job, number)
        held.append(number)


def _is_sound_after_a_kill(place: Place, job_id: str, held: list[int], what: str) -> None:
    job = place.open().job(job_id)
    completed = job.completed()
    require(set(held) <= set(completed), f"{what}: of the acknowledged {held}, {completed} stayed")
    is_whole(job, completed, what)
    owner: JobOwner = job.take_over()
    same(owner.completed, completed, f"{what}: what the next owner found")
    remove(owner, owner.orphans())
    same(list(job.storage.unfinished(f"{job.folder}/")), [], f"{what}: unfinished writes")
    same(without_owners(owner.orphans()), [], f"{what}: orphans after they were removed")
    is_whole(job, completed, f"{what}, after the orphans were removed")
    if place.count is not None:
        same(place.count(), len(names_in(job.storage)), f"{what}: files at the place")
    needed = {file for number in completed for file in job.load(number).files()}
    points = {names.metadata(number) for number in completed}
    same(files_kept(job), sorted(needed | points), f"{what}: files that are kept")
    number = owner.next_checkpoint_id
    checkpoint(owner, job, number)
    is_whole(job, job.completed(), f"{what}, and one checkpoint further")
