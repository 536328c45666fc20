"""The contracts of sinks.

Exactly once needs two phases: what was written between two barriers is *prepared* at the second
one, travels with the checkpoint as *committables*, and is *committed* once that is complete. All
that can go wrong between is answered by commits that may be repeated, also by another process.

    write … write, prepare → committables in the checkpoint → complete → commit
                                              └── a crash ──→ restored ──→ commit again
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from holdfast.storage import Clock

__all__ = ["Sink", "SinkWriter", "TwoPhaseCommitSink", "WriterContext"]

_C = TypeVar("_C")


@dataclass(frozen=True, kw_only=True)
class WriterContext:
    """Identifies a writer: a slot of an operator, in one attempt of a job."""

    job_id: str
    uid: str
    slot: int
    parallelism: int
    attempt: str
    """Unique among all attempts of all runs of this job; sorts by age."""
    schema: pa.Schema
    clock: Clock
    allow_missing: bool = False
    """Commits are those of a restored checkpoint, and what was prepared for it may be gone: say so
    in a warning, and go on. Only if a user asks for that."""
    collect: Callable[[str, bytes], None]
    """Sends a named part to the driver, which keeps it once; for sinks that collect there."""


class Sink(ABC):
    """Where results go. Plain data and picklable; writers are opened from it in the slots."""

    @abstractmethod
    def check(self, schema: pa.Schema) -> None:
        """On the driver, before the job starts: refuse what cannot be honoured.

        Raises:
            Invalid: an option or a column does not fit.
        """


class SinkWriter(ABC, Generic[_C]):
    """Writes in one slot. One thread; an error of it fails the attempt."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows. Readers of the sink do not see them yet."""

    @abstractmethod
    def prepare(self, checkpoint_id: int) -> Sequence[_C]:
        """Called at a barrier: make durable what was written since the previous one.

        Answers what `commit` needs to make it seen. Nothing was written: nothing is answered.
        """

    @abstractmethod
    def close(self) -> None:
        """Abandon what was not prepared, and remove it if possible."""


class TwoPhaseCommitSink(Sink, Generic[_C]):
    """A sink whose readers see exactly what completed checkpoints hold."""

    committable_type: Any
    """The type of committables, as descriptors of state take it."""
    commit_within_s: float = math.inf
    """How long after `prepare` a commit still comes in time, such as the timeout of a transaction.

    The job fails when it has passed, before anything is lost without a word. Without it a commit is
    tried so and so often."""

    @abstractmethod
    def open_writer(self, context: WriterContext) -> SinkWriter[_C]:
        """A writer for this slot and attempt."""

    @abstractmethod
    def commit(self, committables: Sequence[_C], context: WriterContext) -> None:
        """Make prepared writes visible. A repetition, by any process, has no effect.

        A thread beside that of the writer calls it, for one checkpoint after the other.

        Raises:
            Unavailable: the place did not answer; the caller tries again.
        """

    @abstractmethod
    def clean(self, keep: Sequence[_C], context: WriterContext) -> None:
        """Remove what earlier attempts of this job left and `keep` does not name.

        Called by one slot of an attempt, before anything is written, after `keep` was read from
        the checkpoint that is restored; others may be committing these already.
        """
