"""Commands of the coordinator of checkpoints to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from holdfast.runtime.checkpoint.savepoint_orders import SavepointRequest
from holdfast.storage import StateSnapshot

__all__ = [
    "Abort",
    "AbortReason",
    "Begin",
    "Command",
    "FailJob",
    "Notify",
    "Retain",
    "Store",
    "Trigger",
]


class Trigger(Enum):
    """Why a checkpoint was begun."""

    PERIODIC = "periodic"
    REQUESTED = "requested"
    FINAL = "final"
    SAVEPOINT = "savepoint"


class AbortReason(Enum):
    """Why a checkpoint will not be completed."""

    DECLINED = "declined"
    EXPIRED = "expired"
    IO = "i/o failed"
    """Barriers could not be sent, or state or the position of a source not be written."""
    FINALIZE = "not committed"
    """All was there, but `_metadata` could not be written."""
    SUBSUMED = "subsumed"
    """A later one was completed before."""
    SHUTDOWN = "shutdown"
    """The coordinator has stopped, because the job has."""

    @property
    def counts(self) -> bool:
        """Whether it is a failure in the sense of `tolerable_failures`."""
        return self not in (AbortReason.SUBSUMED, AbortReason.SHUTDOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AboutOne:
    """What `Begin` and `Store` say of the checkpoint."""

    checkpoint_id: int
    triggered_ms: int
    trigger: Trigger
    savepoint: SavepointRequest | None = None
    """If it is a savepoint: whose, and where it goes."""

    @property
    def is_final(self) -> bool:
        """Whether it is the one after the end of all input."""
        return self.trigger is Trigger.FINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(_AboutOne):
    """Send barriers into the sources' channels of every slot, and take down the positions there."""

    base: int | None
    """The newest checkpoint in the job's folder that is complete by now. Slots may build on it, or
    on one that is complete later; `Retain` keeps what they may refer to. A savepoint builds on
    nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(_AboutOne):
    """Commit `_metadata`; answer with `stored` or `store_failed` once that is decided.

    There is one at a time, beside savepoints with which the job goes on. One that is stored is
    above all that were stored before, but for such a savepoint.
    """

    operators: Mapping[str, tuple[StateSnapshot, ...]]
    """What each operator left, by uid; its parts in the order of slots."""
    sources: Mapping[str, StateSnapshot]
    """The position of each source, by uid."""
    in_flight: tuple[StateSnapshot, ...] = ()
    """Rows that barriers have overtaken, in the order of slots."""


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell every slot that the checkpoint is complete, and so are those before it."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Retain:
    """Delete older checkpoints than are to be retained, but none from the number `since` on.

    Those under way may refer to the files of all that are complete from there on. It may be carried
    out late: what begins after it builds on a newer one.
    """

    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Tell every slot that the checkpoint will not be completed; its files are not needed."""

    checkpoint_id: int
    reason: AbortReason
    detail: str = ""
    savepoint: SavepointRequest | None = None
    """If it is a savepoint: whose; nothing of it shall be left."""


@dataclass(frozen=True, slots=True)
class FailJob:
    """Stop this attempt of the job; the restart strategy has the word. The last command."""

    reason: str


Command: TypeAlias = Begin | Store | Notify | Retain | Abort | FailJob
