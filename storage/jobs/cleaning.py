"""Cleaning a job's folder on request: finding what nobody needs, and deleting it.

There are two ways. Who takes the job over may delete every orphan; a run that lives is fenced by
that. Who does not may delete what is provably nobody's, beside a run that commits at full speed:
`commit.is_leftover` says what that is. It holds if the folder is read in this order.

1. Which owner is the newest. 2. Which checkpoints are completed. 3. All that is there. 4. Which are
completed, once more and again, until the oldest is the same three times, and their files, the
oldest one's last; `settled_below` is of 2, and of what the newest of these says of files that were
begun before their checkpoints. 5. Whether the newest owner is still the same, and has not begun
since: else a history may have been left, and numbers may have been used again.

An owner claims first and begins later, with its start document: what it takes over it has listed
in between, and its slots write nothing before. So who has claimed and begun is looked at, both
before and after. A job has ended only if its newest owner says so: one that has claimed and not yet
begun may be about to open it again.

A listing takes its time, and may miss what comes or goes meanwhile. But commit points come in the
order of their numbers, and go in that order (`Sweeper` sees to it). So if the oldest one was there
before the second listing, and still is after the third, then none that is younger has gone, and at
the moment when the third began those that were completed were just those that it shows, which are
read. At every moment a file that may be referred to later is one of a completed checkpoint, or it
is open, as the newest that is completed then has it (`commit.open_from`; the reason is there). So
whatever is neither at that moment is nobody's, and all the less if it is below those of 2.

But for one checkpoint: that which the newest owner has restored. An older one, fenced while it was
deleting, may end that late, and then the commit point is gone though what comes is built on it. So
an owner leaves a record of it and its files, and looks afterwards whether it is there, else it does
not restore it. Who cleans looks for the record with who has claimed and begun. If it appears only
after the last of these looks, then the commit point was there at that moment, and was read;
otherwise its files are known by it. They are spared until the owner has released it, or has ended
the job: from then on nothing is built on it. So the record goes before the commit point does, and
who finds it gone, and did so at its first look, finds the files by what is there, as ever.

What was found once to be nobody's stays so, because names are never used again: from there on it
does not matter how long the deleting takes, or who takes the job over meanwhile.

To look twice at the checkpoints was not enough for what was restored: of two that are built on it
one at a time, the first may do without a file that the second has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from holdfast.storage import names
from holdfast.storage.errors import HoldfastError, NotFound, Unavailable
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.jobs.claiming import claimed_epochs
from holdfast.storage.jobs.decisions import (
    Facts,
    Stored,
    is_leftover,
    is_orphan,
    next_epoch,
    settled_below,
)
from holdfast.storage.jobs.deletion import BATCH_OBJECTS, KnownFiles
from holdfast.storage.jobs.job import JobStorage, job_in
from holdfast.storage.jobs.owner import JobOwner
from holdfast.storage.jobs.owner_records import Start

__all__ = [
    "Found",
    "delete_leftovers",
    "delete_orphans",
    "find_leftovers",
    "find_orphans",
    "is_job_folder",
    "jobs_at",
    "jobs_in",
    "release_held",
]

_logger = logging.getLogger(__name__)

_LOOKS = 30


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a job's folder, and what of it nobody needs."""

    completed: tuple[int, ...]
    has_ended: bool
    objects: int
    size_bytes: int
    """Of all that is there."""
    unneeded: tuple[Stored, ...]


@dataclass(frozen=True, slots=True)
class _Standing:
    """Whose a job is at some moment."""

    claimed: int
    """The newest epoch; 0 if none is claimed."""
    start: Start | None
    """What the newest owner that has begun began with. It may be an older one than has claimed."""
    has_ended: bool
    """Whether the job has ended in the hands of the newest owner."""
    held: frozenset[str]
    """The files of the checkpoint that the owner who has begun has restored."""


def is_job_folder(storage: ObjectStorage) -> bool:
    """Whether the root of this storage is in fact the folder of one job."""
    return any(
        names.parse_owner(info.name) is not None for info in storage.list(names.owners_prefix())
    )


def jobs_in(storage: ObjectStorage) -> list[str]:
    """The names of all jobs that ever had an owner here, in order of their folders.

    Raises:
        Unavailable: the storage did not answer.
    """
    found: dict[str, None] = {}
    for info in storage.list(""):
        folder, _, rest = info.name.partition("/")
        if names.parse_owner(rest) is not None:
            found[folder] = None
    jobs = []
    for folder in filter(_is_of_a_job, found):
        try:
            jobs.append(job_in(storage, folder).job_id)
        except Unavailable:
            raise
        except HoldfastError as error:  # it was half copied, say; the others are shown
            _logger.warning("a folder of a job is passed over: %s", error)
    return jobs


def jobs_at(url: str, open_storage: Callable[[str], ObjectStorage]) -> list[JobStorage]:
    """Those at a URL: of a storage's root, all of them; of a job's folder, that one.

    Raises:
        NotFound: there is no job.
        Invalid: the storage cannot be opened.
        Unavailable: the storage did not answer.
    """
    storage = open_storage(url)
    if is_job_folder(storage):
        root, _, folder = url.rstrip("/").rpartition("/")
        return [job_in(open_storage(root or "/"), folder)]
    jobs = jobs_in(storage)
    if not jobs:
        raise NotFound(
            "there are no checkpoints of any job",
            where=url,
            expected="the root of a storage, with a folder for each job, or the folder of one",
            fix="Look whether the path is right: it is what the job has as its storage",
        )
    return [JobStorage(storage, job_id) for job_id in jobs]


def find_leftovers(job: JobStorage) -> Found:
    """What is nobody's, as can be told beside a run that lives. Changes nothing.

    Raises:
        Corrupt: a completed checkpoint, or a record, cannot be read, so what it needs is not known.
        Invalid: it was written in a newer format.
        Unavailable: the storage did not answer, or the job was taken over again and again.
    """
    for _ in range(_LOOKS):
        standing = _standing(job)
        has_ended = standing.has_ended
        before = job.completed()
        there = [*job.stored_objects()]
        begun_from = None
        if has_ended:  # nothing is committed any more, and what is there is being deleted
            completed, referenced = _last_of(job)
        else:
            completed, referenced, begun_from = _at_one_moment(job, before)
        below = settled_below(before, has_ended=has_ended, begun_from=begun_from)
        if _standing(job) == standing:
            unneeded = [
                stored
                for stored in there
                if is_leftover(stored, below=below, referenced=referenced | standing.held)
            ]
            return _found(completed, there, unneeded, has_ended=has_ended)
    raise Unavailable(
        f"job {job.job_id!r} is taken over again and again",
        where=job.url,
        expected=f"one owner during one of {_LOOKS} looks",
        fix="Try again when it runs",
    )


def delete_leftovers(job: JobStorage, found: Found) -> Iterator[int]:
    """Delete what `find_leftovers` found, in batches; answers after each how many that were.

    Stopping in between is safe, and so is doing it twice.

    Raises:
        Invalid, Unavailable: not all could be deleted.
    """
    left = iter(found.unneeded)
    while batch := [*islice(left, BATCH_OBJECTS)]:
        job.storage.delete(f"{job.folder}/{stored.name}" for stored in batch)
        yield len(batch)


def find_orphans(job: JobStorage, owner: JobOwner | None = None) -> Found:
    """The orphans that its owner may delete; or would, if somebody took it over. Changes nothing.

    Raises as `find_leftovers` does, and of an owner Fenced.
    """
    has_ended = job.result() is not None
    if owner is not None:
        owner.check()
        epoch = owner.epoch
    else:
        epoch = next_epoch(claimed_epochs(job.owner_records()))
    completed, referenced = _last_of(job)
    facts = Facts(epoch=epoch, completed=completed, referenced=referenced, in_flight=())
    there = [*job.stored_objects()]
    unneeded = [stored for stored in there if is_orphan(stored, facts)]
    return _found(completed, there, unneeded, has_ended=has_ended)


def delete_orphans(owner: JobOwner, found: Found) -> Iterator[int]:
    """Delete what `find_orphans` found for this owner; answers after each batch how many that were.

    Stopping in between is safe, and so is doing it twice.

    Raises:
        Fenced: somebody else has taken over.
        Corrupt, Invalid, Unavailable: not all could be deleted.
    """
    owner.sweeper.delete(stored.name for stored in found.unneeded)
    while owner.sweeper.owes:
        yield owner.sweeper.step()


def release_held(job: JobStorage, owner: JobOwner, checkpoint_id: int) -> None:
    """Leave it to an owner's sweeper to delete the files of what it has restored, which is gone.

    For who goes on with deleting it, by `JobStorage.resume`: of the commit point, which says what
    they are, nothing is left, but the record of `JobOwner.hold` says so too. What a completed
    checkpoint needs stays. Nothing is done if this owner's record is of another checkpoint.

    Raises:
        Corrupt: the record, or a completed checkpoint, cannot be read.
        Invalid: it was written in a newer format.
        Unavailable: the storage did not answer.
    """
    held = job.held_by(job.newest_start())
    if held is not None and (held.epoch, held.checkpoint_id) == (owner.epoch, checkpoint_id):
        needed = KnownFiles(job).of_all(owner.completed)
        owner.sweeper.delete(sorted(set(held.files) - needed))


def _standing(job: JobStorage) -> _Standing:
    claimed = max(claimed_epochs(job.owner_records()), default=0)
    start = job.newest_start()
    has_begun = start is not None and start.epoch == claimed
    result, held = job.result_of(start), job.held_by(start)
    if result is not None and start is not None and result.epoch == start.epoch:
        held = None  # whoever has ended the job builds on nothing any more
    files = frozenset(() if held is None else held.files)
    return _Standing(claimed, start, has_begun and result is not None, files)


def _at_one_moment(
    job: JobStorage, before: tuple[int, ...]
) -> tuple[tuple[int, ...], frozenset[str], int | None]:
    """The checkpoints that were completed at some moment, their files, and what the newest says.

    See above. If none is completed, none says anything: then all may be open.
    """
    files = KnownFiles(job)
    oldest = [before[:1]]
    for _ in range(_LOOKS):
        completed = job.completed()
        oldest.append(completed[:1])
        if len(oldest) < 3 or oldest[-3:] != [completed[:1]] * 3:
            continue
        if not completed:
            return (), frozenset(), 0
        files.of_all(completed)
        if not files.gone.isdisjoint(completed):
            continue
        with suppress(NotFound):
            begun_from = job.read_metadata(completed[-1]).begun_from
            job.read_metadata(completed[0])
            return completed, files.of_known(), begun_from
    raise Unavailable(
        f"job {job.job_id!r} completes checkpoints, and deletes them, faster than they can be read",
        where=job.url,
        expected=f"the oldest to stay for 3 of {_LOOKS} looks",
        fix="Try again, or have it retain more of them, or stop the job and take it over",
    )


def _last_of(job: JobStorage) -> tuple[tuple[int, ...], frozenset[str]]:
    """The checkpoints that are there of a job that completes no more, and their files."""
    completed, files = job.completed(), KnownFiles(job)
    referenced = files.of_all(completed)
    return tuple(sorted(set(completed) - files.gone)), referenced


def _is_of_a_job(folder: str) -> bool:
    """Whether it is the name of a folder as jobs have it, and not of another's."""
    return names.is_cut(folder) or names.unescape(folder) is not None


def _found(
    completed: tuple[int, ...], there: list[Stored], unneeded: list[Stored], *, has_ended: bool
) -> Found:
    return Found(
        completed=completed,
        has_ended=has_ended,
        objects=len(there),
        size_bytes=sum(stored.size_bytes for stored in there),
        unneeded=tuple(unneeded),
    )
