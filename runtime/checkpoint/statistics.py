"""Statistics of a job's checkpoints: counters, and details of the latest ones.

A `CheckpointHistory` outlives the coordinators that write into it, one for each attempt of the
job. The driver's thread writes, and any thread reads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from holdfast.runtime.api.display import (
    bytes_for_people,
    duration_for_people,
    html_table,
    moment,
    text_table,
)
from holdfast.runtime.checkpoint.commands import Abort, AbortReason, Begin, Trigger
from holdfast.runtime.protocol.checkpoints import OperatorStatistics, SlotStatistics

__all__ = [
    "CheckpointCounts",
    "CheckpointHistory",
    "CheckpointOverview",
    "CheckpointStatistics",
    "CheckpointStatus",
]

_KEPT = 10


class CheckpointStatus(Enum):
    """How far a checkpoint has got."""

    IN_PROGRESS = "in progress"
    STORING = "storing"
    COMPLETED = "completed"
    ABORTED = "aborted"


@dataclass(frozen=True, kw_only=True)
class CheckpointStatistics:
    """One checkpoint."""

    checkpoint_id: int
    trigger: Trigger
    status: CheckpointStatus = CheckpointStatus.IN_PROGRESS
    triggered_ms: int
    ended_ms: int | None = None
    size_bytes: int = 0
    """What its state takes in storage, whether this checkpoint wrote it or an earlier one."""
    written_bytes: int = 0
    """What of it this checkpoint wrote: all of it, unless it is incremental."""
    slots: Mapping[int, SlotStatistics] = field(default_factory=dict)
    """The slots that have answered."""
    reason: AbortReason | None = None
    detail: str = ""
    savepoint: str | None = None
    """Where it is, if it is a savepoint."""

    @property
    def duration_ms(self) -> int | None:
        """From the trigger to the end; None before the end."""
        return None if self.ended_ms is None else self.ended_ms - self.triggered_ms

    @property
    def operators(self) -> Mapping[str, OperatorStatistics]:
        """By uid, over the slots that have answered: the longest times, and sizes in all."""
        found: dict[str, OperatorStatistics] = {}
        for slot in self.slots.values():
            for uid, each in slot.operators.items():
                known = found.get(uid, OperatorStatistics())
                found[uid] = OperatorStatistics(
                    sync_ms=max(known.sync_ms, each.sync_ms),
                    async_ms=max(known.async_ms, each.async_ms),
                    size_bytes=known.size_bytes + each.size_bytes,
                    written_bytes=known.written_bytes + each.written_bytes,
                )
        return dict(sorted(found.items()))


@dataclass(frozen=True, kw_only=True)
class CheckpointCounts:
    """How many there have been, savepoints among them.

    `failed` are those aborts that say that something does not work.
    """

    begun: int = 0
    completed: int = 0
    failed: int = 0
    aborted: int = 0
    """Others that were given up: subsumed, not ready, at the end of input, at a shutdown."""

    @property
    def in_progress(self) -> int:
        return self.begun - self.completed - self.failed - self.aborted

    def __str__(self) -> str:
        others = {
            "failed": self.failed,
            "given up": self.aborted,
            "in progress": self.in_progress,
        }
        told = [f"{self.completed:,} completed"]
        told += [f"{count:,} {what}" for what, count in others.items() if count]
        return f"checkpoints: {', '.join(told)}"


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckpointOverview:
    """A view of a job's checkpoints at one moment; a terminal shows it as a table."""

    counts: CheckpointCounts
    recent: tuple[CheckpointStatistics, ...]
    """Those under way and the last ten of the others, in ascending order."""
    last_completed: CheckpointStatistics | None
    last_savepoint: CheckpointStatistics | None
    """The last one that was completed; no checkpoint."""
    last_failed: CheckpointStatistics | None

    def __repr__(self) -> str:
        shown = text_table(_COLUMNS, map(_cells, self.recent)) if self.recent else ""
        return f"{self.counts}\n{shown}".rstrip()

    def _repr_html_(self) -> str:
        return html_table(str(self.counts), _COLUMNS, map(_cells, self.recent))


_COLUMNS = ("number", "kind", "status", "trigger", "begun (UTC)", "took", "size", "written", "why")


def _cells(known: CheckpointStatistics) -> tuple[str, ...]:
    reason = "" if known.reason is None else known.reason.value
    return (
        str(known.checkpoint_id),
        "checkpoint" if known.savepoint is None else "savepoint",
        known.status.value,
        known.trigger.value,
        moment(known.triggered_ms),
        "" if known.duration_ms is None else duration_for_people(known.duration_ms),
        bytes_for_people(known.size_bytes),
        bytes_for_people(known.written_bytes),
        ": ".join(filter(None, (reason, known.detail))) or known.savepoint or "",
    )


class CheckpointHistory:
    """What coordinators report of their checkpoints. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = CheckpointCounts()
        self._running: dict[int, CheckpointStatistics] = {}
        self._ended: deque[CheckpointStatistics] = deque(maxlen=_KEPT)
        self._last_completed: CheckpointStatistics | None = None
        self._last_savepoint: CheckpointStatistics | None = None
        self._last_failed: CheckpointStatistics | None = None

    def overview(self) -> CheckpointOverview:
        """All there is to see now; does not change afterwards."""
        with self._lock:
            known = (*self._ended, *self._running.values())
            return CheckpointOverview(
                counts=self._counts,
                recent=tuple(sorted(known, key=lambda each: each.checkpoint_id)),
                last_completed=self._last_completed,
                last_savepoint=self._last_savepoint,
                last_failed=self._last_failed,
            )

    def __repr__(self) -> str:
        return repr(self.overview())

    def _repr_html_(self) -> str:
        return self.overview()._repr_html_()

    def begun(self, begun: Begin) -> None:
        with self._lock:
            self._running[begun.checkpoint_id] = CheckpointStatistics(
                checkpoint_id=begun.checkpoint_id,
                trigger=begun.trigger,
                triggered_ms=begun.triggered_ms,
                savepoint=None if begun.savepoint is None else begun.savepoint.url,
            )
            self._counts = replace(self._counts, begun=self._counts.begun + 1)

    def answered(
        self,
        checkpoint_id: int,
        *,
        size_bytes: int,
        written_bytes: int,
        slots: Mapping[int, SlotStatistics],
    ) -> None:
        """So much of it is known."""
        with self._lock:
            self._running[checkpoint_id] = replace(
                self._running[checkpoint_id],
                size_bytes=size_bytes,
                written_bytes=written_bytes,
                slots=dict(slots),
            )

    def storing(self, checkpoint_id: int) -> None:
        """Its metadata is being committed."""
        with self._lock:
            known = self._running[checkpoint_id]
            self._running[checkpoint_id] = replace(known, status=CheckpointStatus.STORING)

    def completed(self, checkpoint_id: int, now_ms: int) -> None:
        with self._lock:
            known = self._running.pop(checkpoint_id)
            ended = replace(known, status=CheckpointStatus.COMPLETED, ended_ms=now_ms)
            self._counts = replace(self._counts, completed=self._counts.completed + 1)
            self._ended.append(ended)
            if ended.savepoint is None:
                self._last_completed = ended
            else:
                self._last_savepoint = ended

    def aborted(self, abort: Abort, now_ms: int) -> None:
        with self._lock:
            ended = replace(
                self._running.pop(abort.checkpoint_id),
                status=CheckpointStatus.ABORTED,
                ended_ms=now_ms,
                reason=abort.reason,
                detail=abort.detail,
            )
            self._ended.append(ended)
            if abort.reason.counts:
                self._counts = replace(self._counts, failed=self._counts.failed + 1)
                self._last_failed = ended
            else:
                self._counts = replace(self._counts, aborted=self._counts.aborted + 1)
