"""Who may commit, what counts as completed, what may be deleted: decisions, and nothing else.

These functions take facts that were already read and answer what follows from them. They import
no storage, so every combination of facts can be tested. `holdfast.storage.owner` does the reading
and the writing, in the order that makes the answers hold:

- A new owner first creates its claim, then lists the checkpoints, then records in its start
  document which of them count, and then looks whether it is still the newest.
- An owner that commits first creates `_metadata`, then looks whether it is still the newest, and
  only then tells anybody.

So either the new owner's listing shows the old owner's last checkpoint, and both take it to be
completed; or the old owner sees the claim and stops before anything followed from its checkpoint.
What it created too late is not among those that the start document accepts and has another epoch
than its owner's, by which every reader knows that it is void.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec

__all__ = [
    "Claim",
    "Created",
    "Facts",
    "Held",
    "Judgement",
    "Start",
    "Stored",
    "borrowed",
    "fenced_by",
    "is_leftover",
    "is_orphan",
    "judge",
    "judge_create",
    "next_epoch",
    "plan_retention",
    "settled_below",
    "unjudged",
]


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document by which an owner claims a job. That it exists is what counts."""

    epoch: int
    owner: str
    claimed_ms: int


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an owner found when it took over; the newest one decides for every reader."""

    epoch: int
    owner: str
    accepted: tuple[int, ...] = ()
    """The checkpoints of earlier owners that count."""


class Held(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which checkpoint an owner has restored, and its files: they stay, whatever becomes of it."""

    epoch: int
    owner: str
    checkpoint_id: int
    files: tuple[str, ...]


class Created(Enum):
    """What became of an attempt to create the commit point."""

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

    An owner whose own claim has gone may not go on: somebody has deleted the folder, or the file
    system is no longer mounted, and the next owner would count its epochs from one again.
    """
    newest = max(claimed, default=0)
    return newest if newest != mine else None


def unjudged(listed: Iterable[int], start: Start | None) -> list[int]:
    """The checkpoints whose epoch must be read before `judge` can decide.

    None while there has been one owner only, so that a long listing costs no reading.
    """
    if start is None or start.epoch == 1:
        return []
    accepted = frozenset(start.accepted)
    return [checkpoint_id for checkpoint_id in listed if checkpoint_id not in accepted]


def judge(
    listed: Collection[int], start: Start | None, epochs: Mapping[int, int | None]
) -> Judgement:
    """Decide which of the listed checkpoints count.

    `start` is the newest start document. `epochs` has the epoch of each `unjudged` one, None if
    its metadata cannot be read: it is kept, so that loading it names the damage.
    """
    void: set[int] = set()
    if start is not None:
        late = unjudged(listed, start)
        void = {number for number in late if epochs[number] not in (None, start.epoch)}
    return Judgement(tuple(sorted(set(listed) - void)), tuple(sorted(void)))


def judge_create(mine: bytes, existing: bytes | None) -> Created:
    """What happened, given what `create` answered.

    Finding one's own bytes is success: an earlier call took effect and its answer was lost.
    """
    return Created.COMMITTED if existing is None or existing == mine else Created.TAKEN


def borrowed(writers: Mapping[str, int | None], checkpoint_id: int) -> frozenset[str]:
    """Of the files that a checkpoint refers to those that it has not written itself.

    `writers` has for each file the number in its name. Such a file is kept as long as a completed
    checkpoint refers to it; one that none refers to may be deleted already.
    """
    return frozenset(file for file, writer in writers.items() if writer != checkpoint_id)


def plan_retention(
    completed: Iterable[int], keep: int, since: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split into `(kept, dropped)`, both in ascending order.

    Kept are the newest `keep`, and all from the number `since` on, if there is one.
    """
    ordered = tuple(sorted(completed))
    split = max(len(ordered) - keep, 0)
    if since is not None:
        split = min(split, bisect_left(ordered, since))
    return ordered[split:], ordered[:split]


@dataclass(frozen=True, slots=True)
class Stored:
    """One object or unfinished write in a job's folder, and what its name says."""

    name: str
    finished: bool
    checkpoint_id: int | None = None
    is_metadata: bool = False
    owner_epoch: int | None = None
    is_shared: bool = False
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read before orphans can be told."""

    epoch: int
    completed: Collection[int]
    referenced: Collection[str]
    in_flight: Collection[int]


def is_orphan(stored: Stored, facts: Facts) -> bool:
    """Whether nobody needs it.

    Kept are: whatever a checkpoint in flight may be writing; commit points of completed
    checkpoints and the files they refer to; the current owner's records and what any newer one
    has written or is writing; and names that this version does not know, which are not ours.
    """
    if stored.owner_epoch is not None:
        newest_dead = facts.epoch - 1 if stored.finished else facts.epoch
        return stored.owner_epoch <= newest_dead
    if stored.checkpoint_id is None or stored.checkpoint_id in facts.in_flight:
        return False
    if not stored.finished:
        return True
    if stored.is_metadata:
        return stored.checkpoint_id not in facts.completed
    return stored.name not in facts.referenced


def settled_below(completed: Collection[int], *, has_ended: bool) -> float:
    """Below which number nobody commits any more, as somebody can tell who does not own the job.

    Owners commit in the order of their numbers, so it is the newest that was `completed` when the
    folder was looked at. A job that has ended commits nothing, unless it is taken over.
    """
    return math.inf if has_ended else max(completed, default=0)


def is_leftover(stored: Stored, *, below: float, referenced: Collection[str]) -> bool:
    """Whether nobody needs it, as somebody can tell who does not own the job.

    `below` is what `settled_below` says of the checkpoints that were completed before the folder
    was listed; `referenced` are the files of those that were completed after that. So of what was
    committed meanwhile, and later, its own files are numbered `below` or higher, and those that it
    borrows belong to it, to such another one, or to one that was read. A commit point is nobody's
    to delete but the owner's, since another one may get its name; nor are owners' records, and
    names that this version does not know.
    """
    if stored.checkpoint_id is None or stored.checkpoint_id >= below:
        return False
    if not stored.finished:
        return True
    return not stored.is_metadata and stored.name not in referenced
