"""Deleting what an owner has released: in batches, in an order that leaves no half checkpoint.

`JobOwner` decides at once and in memory. Deletions are carried out here, at once or later, in the
same thread or another: a slow storage does not delay decisions.

A decision stays right: from then on the owner refuses to commit a reference to a file of a released
checkpoint. A search for orphans spares the files of all checkpoints that are known when it runs,
not just of those known when it was requested: meanwhile a newer checkpoint may have taken over a
file of a released one. A test found that.

While a newer owner restores, only a commit point is in danger. Files go after a check of the claim
that followed the deletion of their commit point; if that check saw no newer claim, the new owner's
listing did not show the point. One request may still be under way and cannot be recalled: it
deletes a commit point just after the new owner has chosen it, see `JobOwner.hold`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from holdfast.storage import names
from holdfast.storage.errors import Corrupt, Fenced, Invalid, NotFound
from holdfast.storage.jobs.decisions import Facts, StoredObject, among, is_orphan
from holdfast.storage.jobs.folder import JobFolder
from holdfast.storage.jobs.metadata import CheckpointMetadata
from holdfast.storage.jobs.ownership import Ownership

__all__ = ["BATCH_OBJECTS", "KnownFiles", "Search", "Sweeper"]

_Key = TypeVar("_Key", int, str)

_logger = logging.getLogger(__name__)

# The name of such a record holds all facts; the content is for people who open it.
_VOID = b"The name says it.\n"
BATCH_OBJECTS = 1000
"""The most that S3 deletes by one request."""


class KnownFiles:
    """The files that completed checkpoints refer to. Any thread; each checkpoint is read once."""

    def __init__(self, job: JobFolder) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._files: dict[int, frozenset[str]] = {}
        self._gone: set[int] = set()

    @property
    def gone(self) -> frozenset[int]:
        """Checkpoints that no longer exist though this owner has not deleted them.

        An older owner that was fenced while it was deleting may finish after this one had listed
        them.
        """
        with self._lock:
            return frozenset(self._gone)

    def add(self, metadata: CheckpointMetadata) -> None:
        """Take the files from metadata that is at hand, so that they need not be read."""
        with self._lock:
            self._files[metadata.checkpoint_id] = metadata.files()
            self._gone.discard(metadata.checkpoint_id)

    def of(self, number: int) -> frozenset[str]:
        """The files of one checkpoint; none if it is gone.

        Raises:
            Corrupt: it cannot be read; names the file.
            Invalid: it was written in a newer format.
            Unavailable: the storage did not answer.
        """
        with self._lock:
            known = self._files.get(number)
        if known is not None:
            return known
        try:
            metadata = self._job.read_metadata(number)
        except NotFound:
            with self._lock:
                self._gone.add(number)
            return frozenset()
        self.add(metadata)
        return metadata.files()

    def of_all(self, numbers: Iterable[int]) -> frozenset[str]:
        return frozenset().union(*map(self.of, numbers))

    def of_known(self) -> frozenset[str]:
        """The files of all checkpoints in memory; reads nothing."""
        with self._lock:
            return frozenset().union(*self._files.values())

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop these from memory."""
        with self._lock:
            for number in numbers:
                self._files.pop(number, None)


@dataclass(frozen=True, slots=True)
class Search:
    """The facts of the moment when a search for orphans was requested; they suffice later."""

    completed: Collection[int]
    in_flight: Collection[int]
    """The numbers of checkpoints that are being written then, or may be written later."""


class Sweeper:
    """Deletes what an owner has released. Safe to use from any thread.

    Guarantees:

    - A commit point goes before every file that it refers to. So a crash leaves orphans, never a
      checkpoint that looks whole.
    - The claim is checked before each batch. So a newer owner finds at most one batch under way,
      and none of its own files in it.
    - As long as any checkpoint is kept, commit points go one by one, the oldest first. From this
      order a process that cleans beside the owner concludes which it has not seen (`cleaning`).
    - Where a create may be late, the numbers of commit points are recorded as void before they go.
      One that appears again does not count.
    - What could not be deleted is kept, and tried again at a later call. So a commit point that
      cannot be deleted blocks everything after it: the log names it, at first and then ever more
      rarely.
    """

    def __init__(self, ownership: Ownership, files: KnownFiles) -> None:
        self._ownership = ownership
        self._files = files
        self._lock = threading.Lock()
        self._stepping = threading.Lock()
        self._dropped: set[int] = set()
        self._kept: frozenset[int] = frozenset()
        self._records: dict[str, None] = {}
        self._points: dict[int, bool] = {}
        """Commit points to delete; the value tells those released from those found as orphans."""
        self._void: list[range] = []
        """Numbers that this sweeper has recorded as void."""
        self._names: dict[str, None] = {}
        self._search: Search | None = None
        self._has_failed_to_learn = False
        self._stuck = 0
        """How many times in a row a commit point could not be deleted."""

    @property
    def owes(self) -> bool:
        """Whether anything is to be done."""
        with self._lock:
            known = self._dropped or self._records or self._points or self._names
            return bool(known or self._search)

    def owes_point(self, number: int) -> bool:
        """Whether the commit point of this number is to be deleted, or is void by a record."""
        with self._lock:
            owed = number in self._dropped or number in self._points
            return owed or bool(among([number], self._void))

    def drop(self, numbers: Iterable[int], *, kept: Iterable[int]) -> None:
        """Delete these checkpoints, and those of their files that no kept one needs.

        Nothing may be built any more on a checkpoint that is not kept, now or at an earlier call.
        """
        with self._lock:
            self._dropped.update(numbers)
            self._kept = frozenset(kept)

    def delete_first(self, record: str) -> None:
        """Delete this record, named within the job's folder, before any commit point."""
        with self._lock:
            self._records[record] = None

    def delete(self, orphans: Iterable[str]) -> None:
        """Delete these orphans, named within the job's folder."""
        with self._lock:
            for name in orphans:
                found = names.parse_checkpoint_object(name)
                if found is not None and found.is_metadata:
                    self._points.setdefault(found.checkpoint_id, False)
                else:
                    self._names[name] = None

    def search(self, wanted: Search) -> None:
        """Find orphans, and delete them. A search that has not begun is replaced by a later one."""
        with self._lock:
            self._search = wanted

    def run(self) -> None:
        """Do everything that is owed; raises as `step` does, and goes on at the next call."""
        while self.owes:
            self.step()

    def step(self, most: int = BATCH_OBJECTS) -> int:
        """Do the next thing, and answer how many objects it has deleted, at most so many.

        Raises:
            Fenced: a newer owner has taken over. Everything owed was forgotten: it is that owner's
                task.
            Corrupt, Invalid: a kept checkpoint cannot be read, so what it needs is not known; or a
                name cannot be deleted. It is tried again after the other tasks.
            Unavailable: the storage did not answer, or not for all. It is tried again likewise.
        """
        with self._stepping:
            try:
                return self._step(most)
            except Fenced:
                self._forget()
                raise

    def orphans(self, wanted: Search) -> Iterator[StoredObject]:
        """Find what is not needed, and delete nothing. Raises as `step` does."""
        # In this order: a checkpoint forgotten meanwhile was dropped, and those that build on it
        # were committed before that, and are known.
        referenced = self._files.of_all(wanted.completed)
        referenced |= self._files.of_known()
        facts = Facts(
            epoch=self._ownership.epoch,
            completed=wanted.completed,
            referenced=referenced,
            in_flight=wanted.in_flight,
        )
        found = self._ownership.job.stored_objects()
        return (stored for stored in found if is_orphan(stored, facts))

    def _step(self, most: int) -> int:
        with self._lock:
            dropped, kept = frozenset(self._dropped), self._kept
            records = [*islice(self._records, most)]
            # One by one while any is kept: cleaning beside this owner relies on their order.
            points = [*islice(self._points, most if not kept else 1)]
            owed = [*islice(self._names, most)]
            wanted = self._search
        if records:
            return self._delete(self._records, records, str)
        # A checkpoint that cannot be read must not block what is already known to be unneeded.
        may_learn = not self._has_failed_to_learn or not (points or owed)
        if dropped and may_learn:
            self._has_failed_to_learn = True
            self._learn(dropped, kept)
        self._has_failed_to_learn = False
        if dropped and may_learn:
            return 0
        if points:
            return self._delete_points(points, kept)
        if owed:
            return self._delete(self._names, owed, str)
        if wanted is not None:
            self._ownership.check()
            self.delete(stored.name for stored in self.orphans(wanted))
            with self._lock:
                if self._search is wanted:
                    self._search = None
        return 0

    def _learn(self, dropped: frozenset[int], kept: frozenset[int]) -> None:
        """Find out which files go, before the commit points go that name them."""
        needed = self._files.of_all(kept)
        lost: set[str] = set()
        for number in sorted(dropped):
            with suppress(Corrupt, Invalid):  # unreadable: its files become orphans
                lost |= self._files.of(number)
        with self._lock:
            self._dropped -= dropped
            self._points.update(dict.fromkeys(sorted(dropped), True))
            self._names.update(dict.fromkeys(sorted(lost - needed)))
        self._files.forget(dropped)

    def void(self, numbers: Iterable[range]) -> None:
        """Record that these checkpoints no longer count, even if their commit points appear again.

        Raises:
            Unavailable: the storage did not answer; calling again is safe.
        """
        job, ownership = self._ownership.job, self._ownership
        if not job.storage.capabilities.late_creates:
            return
        for each in numbers:
            if any(each[0] in known and each[-1] in known for known in self._void):
                continue
            record = names.void(ownership.epoch, ownership.token, each)
            job.storage.create(job.name_of(record), _VOID)
            within = [known for known in self._void if known[0] in each and known[-1] in each]
            self._void = [known for known in self._void if known not in within] + [each]
            with self._lock:
                for known in within:
                    self._names[names.void(ownership.epoch, ownership.token, known)] = None

    def _delete_points(self, points: list[int], kept: Collection[int]) -> int:
        """Record that these are void, and then delete them.

        Commit points found as orphans are not recorded: their epoch or an earlier record already
        makes them void, and this owner may still use their numbers.
        """
        with self._lock:
            dropped = [number for number in points if self._points[number]]
        lowest = min(kept, default=math.inf)
        below = [number for number in dropped if number < lowest]
        numbers = [range(max(below) + 1)] if below else []
        numbers += [range(each, each + 1) for each in dropped if not among([each], numbers)]
        try:
            self.void(numbers)
        except Exception as error:
            self._tell_stuck([*map(names.metadata, points)], error)
            raise
        return self._delete(self._points, points, names.metadata)

    def _delete(
        self, owed: dict[_Key, Any], batch: list[_Key], named: Callable[[_Key], str]
    ) -> int:
        """Delete a batch, after a check that no newer owner has taken over.

        A newer owner may restore one of these checkpoints.
        """
        self._ownership.check()
        job = self._ownership.job
        try:
            job.storage.delete(f"{job.folder}/{named(each)}" for each in batch)
        except Exception as error:
            if owed is self._names:
                self._put_last(batch)
            else:
                self._tell_stuck([named(each) for each in batch], error)
            raise
        if owed is not self._names:
            self._stuck = 0
        with self._lock:
            for each in batch:
                owed.pop(each, None)
        return len(batch)

    def _tell_stuck(self, points: list[str], error: Exception) -> None:
        self._stuck += 1
        if self._stuck.bit_count() == 1:  # the 1st, 2nd, 4th, 8th … try: the log stays readable
            which = points[0] if len(points) == 1 else f"{points[0]} to {points[-1]}"
            _logger.warning(
                "%s of job %r at %s could not be deleted in %d tries in a row; it blocks all other "
                "deletions of this job: %s",
                which,
                self._ownership.job.job_id,
                self._ownership.job.url,
                self._stuck,
                error,
            )

    def _put_last(self, batch: list[_Key]) -> None:
        """Move these to the end of the queue: a name that cannot go must not block others."""
        with self._lock:
            for each in map(str, batch):
                if each in self._names:
                    del self._names[each]
                    self._names[each] = None

    def _forget(self) -> None:
        with self._lock:
            self._dropped.clear()
            self._records.clear()
            self._points.clear()
            self._names.clear()
            self._search = None
