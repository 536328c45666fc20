"""Cleaning a job's folder on request: finding objects that are not needed, and deleting them.

There are two ways. An owner, which has taken the job over, may delete every orphan; that fences a
live run. Other processes may delete leftovers: objects that provably no owner needs, while a run
commits at full speed. `decisions.is_leftover` says what these are. It holds if the folder is read
in this order.

1. The newest owner.
2. The completed checkpoints.
3. Everything in the folder.
4. The completed checkpoints again, repeatedly, until the oldest one is the same three times, and
   their files, those of the oldest one last. `settled_below` takes the checkpoints of step 2, and
   what the newest of step 4 says of files that were begun before their checkpoints.
5. The newest owner again. If it has changed or begun since, the history may have been left, and
   numbers may have been used again: start over.

An owner claims first and begins later, with its start document: it lists what it takes over in
between, and its slots write nothing before. So claim and start document are both read, before and
after. A job has ended only if its newest owner says so: one that has claimed and not yet begun may
be about to open it again.

A listing takes time, and may miss objects that come or go meanwhile. But commit points appear in
the order of their numbers, and go in that order (`Sweeper` guarantees it). So if the oldest one
existed before the second listing, and still does after the third, then no younger one has gone, and
at the moment when the third listing began exactly those were completed that it shows, and these are
read. At every moment a file that may be referred to later is a file of a completed checkpoint, or
it is open by what the newest completed one then says (`decisions.open_from` gives the reason). So
an object that is neither at that moment is never needed, and all the less if its number is below
those of step 2.

One checkpoint is an exception: the one that the newest owner has restored. An older owner, fenced
while it was deleting, may finish late, and then the commit point is gone though new checkpoints
build on it. So an owner writes a record of it and its files, and checks afterwards that it exists,
else it does not restore it. Cleaning reads that record together with claim and start document. If
the record appears only after the last of these looks, then the commit point existed at that moment,
and was read; otherwise the record tells its files. They are spared until the owner has released the
checkpoint, or has ended the job: from then on nothing is built on it. So the record goes before the
commit point does. If the record is already gone at the first look, the completed checkpoints tell
the files, as ever.

An object once found to be a leftover stays one, because names are never used again. From there on
it does not matter how long the deleting takes, or whether another owner takes the job over
meanwhile.

Two looks at the completed checkpoints were not enough for a restored one: of two checkpoints built
on it in turn, the first may not refer to a file that the second does.
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
from holdfast.storage.jobs.decisions import (
    Facts,
    StoredObject,
    is_leftover,
    is_orphan,
    next_epoch,
    settled_below,
)
from holdfast.storage.jobs.deletion import BATCH_OBJECTS, KnownFiles
from holdfast.storage.jobs.job import JobStorage, job_in
from holdfast.storage.jobs.owner import JobOwner
from holdfast.storage.jobs.owner_records import Start
from holdfast.storage.jobs.ownership import claimed_epochs

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
    """The contents of a job's folder, and the part of them that is not needed."""

    completed: tuple[int, ...]
    has_ended: bool
    objects: int
    size_bytes: int
    """Of all that is there."""
    unneeded: tuple[StoredObject, ...]


@dataclass(frozen=True, slots=True)
class _Standing:
    """The state of a job's ownership at some moment."""

    claimed: int
    """The newest epoch; 0 if none is claimed."""
    start: Start | None
    """The newest start document. Its owner may be older than the newest claim."""
    has_ended: bool
    """Whether the newest owner has ended the job."""
    held: frozenset[str]
    """The files of the checkpoint that the owner of `start` has restored."""


def is_job_folder(storage: ObjectStorage) -> bool:
    """Whether the root of this storage is in fact the folder of one job."""
    return any(
        names.parse_owner(info.name) is not None for info in storage.list(names.OWNERS_PREFIX)
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
    for folder in found:
        if not names.is_cut(folder) and names.unescape(folder) is None:
            continue  # no name of a job
        try:
            jobs.append(job_in(storage, folder).job_id)
        except Unavailable:
            raise
        except HoldfastError as error:  # a folder copied in part, for example; the others are shown
            _logger.warning("the folder of a job is skipped: %s", error)
    return jobs


def jobs_at(url: str, open_storage: Callable[[str], ObjectStorage]) -> list[JobStorage]:
    """The jobs at a URL: all of them if it is a storage's root, one if it is a job's folder.

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
            fix="Check the path: it is the one that the job has as its storage",
        )
    return [JobStorage(storage, job_id) for job_id in jobs]


def find_leftovers(job: JobStorage) -> Found:
    """The objects that no owner needs, as can be told beside a live run. Changes nothing.

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
        if has_ended:  # no more commits; the rest may be being deleted
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
        fix="Try again when it runs without takeovers",
    )


def delete_leftovers(job: JobStorage, found: Found) -> Iterator[int]:
    """Delete what `find_leftovers` found, in batches; answers the size of each batch.

    Stopping in between is safe, and so is doing it twice.

    Raises:
        Invalid, Unavailable: not all could be deleted.
    """
    left = iter(found.unneeded)
    while batch := [*islice(left, BATCH_OBJECTS)]:
        job.storage.delete(f"{job.folder}/{stored.name}" for stored in batch)
        yield len(batch)


def find_orphans(job: JobStorage, owner: JobOwner | None = None) -> Found:
    """The orphans that `owner`, or without it the next owner, may delete. Changes nothing.

    Raises as `find_leftovers` does; if there is an owner, also Fenced.
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
    """Delete what `find_orphans` found for this owner; answers the number deleted by each step.

    Stopping in between is safe, and so is doing it twice.

    Raises:
        Fenced: another process has taken over.
        Corrupt, Invalid, Unavailable: not all could be deleted.
    """
    owner.sweeper.delete(stored.name for stored in found.unneeded)
    while owner.sweeper.owes:
        yield owner.sweeper.step()


def release_held(job: JobStorage, owner: JobOwner, checkpoint_id: int) -> None:
    """Delete, by the owner's sweeper, the files of its restored checkpoint once that is gone.

    For a process that finishes the deletion after `JobStorage.resume`: the record of
    `JobOwner.hold` names the files as the commit point did. Files that a completed checkpoint needs
    stay. Nothing is done if this owner's record is of another checkpoint.

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
        held = None  # the owner has ended the job, so it builds on nothing any more
    files = frozenset(() if held is None else held.files)
    return _Standing(claimed, start, has_begun and result is not None, files)


def _at_one_moment(
    job: JobStorage, before: tuple[int, ...]
) -> tuple[tuple[int, ...], frozenset[str], int | None]:
    """The checkpoints completed at one moment, their files, and `begun_from` of the newest.

    The module's docstring gives the method. With no completed checkpoint every file may be open: 0.
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
        f"job {job.job_id!r} completes and deletes checkpoints faster than they can be read",
        where=job.url,
        expected=f"the oldest to stay for 3 of {_LOOKS} looks",
        fix="Try again, or have it retain more of them, or stop the job and take it over",
    )


def _last_of(job: JobStorage) -> tuple[tuple[int, ...], frozenset[str]]:
    """The existing checkpoints of a job that completes no more, and their files."""
    completed, files = job.completed(), KnownFiles(job)
    referenced = files.of_all(completed)
    return tuple(sorted(set(completed) - files.gone)), referenced


def _found(
    completed: tuple[int, ...],
    there: list[StoredObject],
    unneeded: list[StoredObject],
    *,
    has_ended: bool,
) -> Found:
    return Found(
        completed=completed,
        has_ended=has_ended,
        objects=len(there),
        size_bytes=sum(stored.size_bytes for stored in there),
        unneeded=tuple(unneeded),
    )
