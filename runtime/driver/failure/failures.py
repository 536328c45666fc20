"""The failures of a run, and whether the same one repeats so often that the job gives up."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.runtime.driver.outcomes import FailureKind, Unsuccessful
from holdfast.storage import CheckpointMetadata

__all__ = ["Failure", "Positions", "Repeat", "RepeatedFailures", "positions_of"]

Positions = Mapping[str, Any]
"""The position of each source by uid, as the newest checkpoint has it."""
_ENDED = "has_ended"
_WAITED_OUT_S = 3600.0
"""Backoffs are short: without it a storage that is down for a minute would end each job."""
_ANOTHER_EACH_TIME = re.compile(r"[0-9a-f-]*[0-9][0-9a-f-]*")
"""Numbers, ports, processes, and ids of Spark's queries and runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt has failed."""

    attempt: int
    failed_ms: int
    """When, in milliseconds since 1970."""
    summary: str
    """In one line."""
    count: int = 1
    """How often in a row it has occurred, with no checkpoint that got past it."""
    uid: str | None = None
    """The operator or source that failed; None if neither did."""
    traceback: str = ""
    """The traceback of the user's code, or the error of Spark; empty if there is none."""

    def __str__(self) -> str:
        return f"{self.summary}\n\n{self.traceback}" if self.traceback else self.summary


@dataclass(frozen=True, slots=True)
class Repeat:
    """How often the same failure has occurred in a row."""

    count: int
    told: str = ""
    """A note for the message; empty the first time."""
    is_final: bool = False
    """Whether the job gives up."""


class RepeatedFailures:
    """The failures of one run of a job. The same one counts while no checkpoint leads past it.

    `limit` is how often a failure may come before the job is given up; None: without limit. What
    may pass by itself, such as an outage, must also have gone on for an hour. An attempt that ran
    for `ran_well_s` begins the count anew, except for a function that raises at the same row: the
    positions of sources say nothing of why a slot died or a network failed after weeks idle.
    """

    def __init__(self, limit: int | None, ran_well_s: float = math.inf) -> None:
        self._limit = limit
        self._ran_well_s = ran_well_s
        self._last: Hashable = None
        self._positions: Positions = {}
        self._count = 0
        self._first_s = 0.0

    def failed(
        self, outcome: Unsuccessful, positions: Positions, *, ran_s: float = 0.0, now_s: float = 0.0
    ) -> Repeat:
        """An attempt has failed. `positions` are those of the newest checkpoint that it left."""
        what = _what(outcome)
        is_same = what == self._last and _is_stuck(outcome.kind, positions, self._positions)
        if outcome.kind is not FailureKind.USER_CODE and ran_s >= self._ran_well_s:
            is_same = False
        if not is_same:
            self._count, self._first_s = 0, now_s
        self._count += 1
        self._last, self._positions = what, positions
        is_final = self._limit is not None and self._count >= self._limit
        if outcome.kind is FailureKind.OTHER and now_s - self._first_s < _WAITED_OUT_S:
            is_final = False
        told = _told(outcome.kind, self._count) if self._count > 1 else ""
        if is_final:
            told += f". Given up after {self._count} (max-same-failures of the restart strategy)"
        return Repeat(self._count, told, is_final)


def positions_of(metadata: CheckpointMetadata | None) -> Positions:
    """Where the sources are in a checkpoint; nothing if there is none."""
    if metadata is None:
        return {}
    return {uid: source.attributes for uid, source in metadata.sources.items()}


def _what(outcome: Unsuccessful) -> Hashable:
    # Which slot it is, and its process, are others each time: a batch that kills one by its size
    # may come to any.
    if outcome.kind is FailureKind.SLOT_KILLED:
        return outcome.kind
    # Of the rows of a source's batch that fail, another one may come first each time.
    if outcome.kind is FailureKind.OTHER:
        return outcome.kind, outcome.uid, _ANOTHER_EACH_TIME.sub("", outcome.reason)
    return outcome.kind, outcome.uid, outcome.fault or outcome.reason


def _is_stuck(kind: FailureKind, now: Positions, before: Positions) -> bool:
    """Whether the job has not got past where it failed before.

    An error of a user's names its row, so it is enough that one source did not get on: checkpoints
    may be completed before that row, and others go on. Slots may die anywhere, so there none may.
    """
    if kind is not FailureKind.USER_CODE or now == before:
        return now == before
    return any(
        uid in before and before[uid] == at and not _has_ended(at) for uid, at in now.items()
    )


def _has_ended(position: Any) -> bool:
    return isinstance(position, Mapping) and bool(position.get(_ENDED))


def _told(kind: FailureKind, count: int) -> str:
    so_often = f" ({count} times in a row, and no checkpoint has got past it)"
    if kind is FailureKind.SLOT_KILLED:
        return (
            f"{so_often}: probably a batch needs more memory than there is. Bound batches, such as "
            "by maxOffsetsPerTrigger or maxFilesPerTrigger of the source, or give more to executors"
            " (spark.executor.memoryOverhead)"
        )
    return so_often
