"""Which owner may commit, what counts as completed, what may be deleted: decisions, without I/O.

These functions take facts that were already read and answer what follows from them. They import no
storage, so every combination of facts can be tested. `holdfast.storage.jobs.owner` does the reading
and the writing, in the order that makes the answers hold:

- A new owner first creates its claim, then lists the checkpoints, then records in its start
  document which of them count, and then checks whether it is still the newest.
- An owner that commits first creates `_metadata`, then checks whether it is still the newest, and
  only then reports success.

So there are two cases. Either the new owner's listing shows the old owner's last checkpoint, and
both take it to be completed. Or the old owner sees the claim and stops before anything followed
from its checkpoint. A checkpoint that it created too late is not among those that the start
document accepts, and bears another epoch than that document's owner: by that every reader knows
that it is void.

A create whose answer was lost may be carried out late, even after the checkpoint that it made was
completed by a repeated create, and deleted: then its commit point exists again, without the files.
So where that can happen (`Capabilities.late_creates`) an owner records which numbers are void
before it deletes their commit points. Only the void records of the owner with the newest start
document count. Those of older owners are not needed: checkpoints that the newest owner has not
accepted, and that bear another epoch, are void in any case. Readers look for these records after
commit points.

Which shared files may still be needed follows from one rule for writers. A checkpoint X refers to
files that bear its number; to files of its base, a completed checkpoint that is kept; and to files
that were begun before X, which some writers do, such as the log of a running job. Such a file bears
a number above all barriers that its possible users have seen, and a part that does not refer to it
yet says `begun_from`. Now let C be completed, and older than X. If the file was begun after the
writer's snapshot for C, its number is above C. If before, then that snapshot refers to it, or C's
`begun_from` is not above its number; a file that the snapshot neither refers to nor covers by
`begun_from` is given up by the writer for good. So once C is completed, files below `open_from` of
it that no kept checkpoint refers to are never needed again. All this holds within one attempt: the
next attempt begins with nothing under way, and with numbers above all that were begun.

A claim alone would not be enough: the next restore could take a late commit for the newest
checkpoint, and that could list transactions which the restore in between has aborted. Void numbers
do not depend on a live writer, as SlateDB's boundary for its collector does (RFC 0026): here no
writer may be left.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from holdfast.storage.jobs.owner_records import Start

__all__ = [
    "Created",
    "Facts",
    "Judgement",
    "Spared",
    "StoredObject",
    "among",
    "borrowed",
    "fenced_by",
    "is_leftover",
    "is_orphan",
    "judge",
    "judge_create",
    "next_epoch",
    "open_from",
    "plan_retention",
    "settled_below",
    "unjudged",
]


class Created(Enum):
    """The outcome of an attempt to create the commit point."""

    COMMITTED = "committed"
    TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Which of the listed checkpoints count, both in ascending order."""

    completed: tuple[int, ...]
    void: tuple[int, ...]


def next_epoch(claimed: Collection[int]) -> int:
    """The epoch to claim when these are claimed."""
    return max(claimed, default=0) + 1


def fenced_by(mine: int, claimed: Collection[int]) -> int | None:
    """The newest epoch claimed, if it is not `mine`; 0 when none is claimed.

    An owner whose own claim is gone may not go on: the folder was deleted, or the file system is no
    longer mounted, and the next owner would count its epochs from one again.
    """
    newest = max(claimed, default=0)
    return newest if newest != mine else None


def unjudged(listed: Iterable[int], start: Start | None) -> list[int]:
    """The checkpoints whose epoch must be read before `judge` can decide.

    None while there has been one owner only, so that a long listing costs no reads.
    """
    if start is None or start.epoch == 1:
        return []
    accepted = frozenset(start.accepted)
    return [checkpoint_id for checkpoint_id in listed if checkpoint_id not in accepted]


def judge(
    listed: Collection[int],
    start: Start | None,
    epochs: Mapping[int, int | None],
    void_numbers: Collection[range] = (),
) -> Judgement:
    """Decide which of the listed checkpoints count.

    `start` is the newest start document. `void_numbers` come from that owner's records; the epochs
    of these need not be known. `epochs` has the epoch of each other `unjudged` checkpoint, None if
    its metadata cannot be read: it is kept, so that loading it names the damage.
    """
    void = set(among(listed, void_numbers))
    if start is not None:
        late = unjudged(set(listed) - void, start)
        void |= {number for number in late if epochs[number] not in (None, start.epoch)}
    return Judgement(tuple(sorted(set(listed) - void)), tuple(sorted(void)))


def among(numbers: Iterable[int], ranges: Collection[range]) -> list[int]:
    """The numbers that lie in one of these ranges."""
    return [number for number in numbers if any(number in each for each in ranges)]


def judge_create(mine: bytes, existing: bytes | None) -> Created:
    """The outcome, given the answer of `create`.

    Finding one's own bytes is success: an earlier call took effect and its answer was lost.
    """
    return Created.COMMITTED if existing is None or existing == mine else Created.TAKEN


def borrowed(writers: Mapping[str, int | None], checkpoint_id: int) -> frozenset[str]:
    """The files that a checkpoint refers to and has not written itself.

    `writers` has for each file the number in its name. A borrowed file is kept as long as a
    completed checkpoint refers to it; otherwise it may be deleted already.
    """
    return frozenset(file for file, writer in writers.items() if writer != checkpoint_id)


def plan_retention(
    completed: Iterable[int], keep: int, since: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split into `(kept, dropped)`, both in ascending order.

    The newest `keep` are kept, and all from the number `since` on, if it is given.
    """
    ordered = tuple(sorted(completed))
    split = max(len(ordered) - keep, 0)
    if since is not None:
        split = min(split, bisect_left(ordered, since))
    return ordered[split:], ordered[:split]


def open_from(completed: int, begun_from: int | None) -> int:
    """The lowest number of files that later checkpoints may need, beyond those already referred to.

    `completed` is the newest completed checkpoint, `begun_from` is what its metadata says.
    """
    return completed + 1 if begun_from is None else min(completed + 1, begun_from)


@dataclass(frozen=True, slots=True)
class Spared:
    """The numbers of files that cannot have been deleted, though no checkpoint refers to them.

    Files of released checkpoints are an exception that is not checked: a writer that has dropped a
    file from a completed checkpoint does not refer to it again.

    Each search for orphans spares some numbers, and cleaning beside the owner spares those that are
    open since some checkpoint was completed. This is what all of them have spared.
    """

    first: int
    end: float = math.inf
    only: frozenset[int] | None = None
    """If set, only these: a search has spared single numbers."""

    def __contains__(self, number: int) -> bool:
        is_within = self.first <= number < self.end
        return is_within and (self.only is None or number in self.only)

    def from_number(self, first: int) -> Spared:
        """The rest if only numbers from this one on were spared."""
        return replace(self, first=max(self.first, first))

    def by(self, in_flight: Collection[int]) -> Spared:
        """The rest after a search that has spared these."""
        if isinstance(in_flight, range) and in_flight.step == 1:
            end = min(self.end, in_flight.stop)
            return replace(self, first=max(self.first, in_flight.start), end=end)
        only = frozenset(in_flight)
        return replace(self, only=only if self.only is None else self.only & only)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object or unfinished write in a job's folder, and the facts that its name gives."""

    name: str
    finished: bool
    checkpoint_id: int | None = None
    is_metadata: bool = False
    owner_epoch: int | None = None
    is_claim: bool = False
    is_shared: bool = False
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that must be read before orphans can be found."""

    epoch: int
    completed: Collection[int]
    referenced: Collection[str]
    in_flight: Collection[int]


def is_orphan(stored: StoredObject, facts: Facts) -> bool:
    """Whether an object is not needed, as the owner of the job can tell.

    Kept are: what a checkpoint in flight may be writing; commit points of completed checkpoints and
    the files they refer to; the current owner's records; everything that a newer owner has written
    or is writing; and names that this version does not know, which other programs may have made.
    """
    if stored.owner_epoch is not None:
        # The current owner's claim is written; another record of it may be under way now.
        newest_dead = facts.epoch if stored.is_claim and not stored.finished else facts.epoch - 1
        return stored.owner_epoch <= newest_dead
    if stored.checkpoint_id is None or stored.checkpoint_id in facts.in_flight:
        return False
    if not stored.finished:
        return True
    if stored.is_metadata:
        return stored.checkpoint_id not in facts.completed
    return stored.name not in facts.referenced


def settled_below(
    completed: Collection[int], *, has_ended: bool, begun_from: int | None = None
) -> float:
    """The number below which no file can come to be needed, as others than the owner can tell.

    Owners commit in the order of their numbers, so nothing is committed below the newest that was
    `completed` when the folder was listed; `begun_from` is what that one says. A job that has ended
    commits nothing, unless it is taken over.
    """
    if has_ended:
        return math.inf
    newest = max(completed, default=0)
    return min(newest, open_from(newest, begun_from))


def is_leftover(stored: StoredObject, *, below: float, referenced: Collection[str]) -> bool:
    """Whether an object is not needed, as others than the owner can tell.

    `below` is what `settled_below` says of the checkpoints that were completed before the folder
    was listed; `referenced` are the files of those that were completed after that. So for every
    checkpoint committed meanwhile or later: its own files, and those begun before it, are numbered
    `below` or higher; other files that it borrows belong to it, to another such checkpoint, or to
    one that was read. Only the owner may delete a commit point, since another one may get its name.
    Owners' records, and names that this version does not know, stay too.
    """
    if stored.checkpoint_id is None or stored.checkpoint_id >= below:
        return False
    if not stored.finished:
        return True
    return not stored.is_metadata and stored.name not in referenced
