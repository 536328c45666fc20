"""The contract between an operator in a slot and the chain that it is part of.

An operator is described on the driver by an `OperatorSpec`, plain data that is pickled once, and
built in each slot. One thread calls everything, in this order: `open`, then as the stream has it
`process`, `advance`, `tick` and, for each checkpoint, `prepare`, `snapshot` and later `completed`
or `aborted`; `finish` after the last row; `close` in any case. `metrics` is called between others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import pyarrow as pa

from holdfast.backends import KeyGroupRange, SnapshotForm, SnapshotTarget, StateBackend
from holdfast.runtime.protocol.metrics import OperatorMetrics
from holdfast.storage import Clock, JobStorage, StateFolder, StateSnapshot

__all__ = ["AttemptFacts", "Committer", "Operator", "OperatorContext", "OperatorSpec", "Output"]


class Output(Protocol):
    """Where an operator's results go: the next in the chain, or channels to other chains."""

    def emit(self, batch: pa.RecordBatch) -> None:
        """Pass rows on, in the operator's output schema (and event time, if the stream has it)."""
        ...

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        """Pass rows of a side output on, likewise; they are dropped if the output is not read."""
        ...

    def advance(self, watermark: int) -> None:
        """Tell all that follow how far event time has got; for operators that make it."""
        ...

    def idle(self) -> None:
        """Tell all that follow not to wait for this operator; likewise.

        It is waited for again after the next `active` or `advance`. Rows may be emitted meanwhile,
        as timers by the clock do, and change nothing.
        """
        ...

    def active(self) -> None:
        """Tell all that follow to wait for this operator again, though it has no new watermark."""
        ...


class Committer(Protocol):
    """What makes the commits of an operator beside the slot's thread, which calls all of this."""

    def commit(
        self,
        call: Callable[[], None],
        done: Callable[[], None] = lambda: None,
        *,
        what: str,
        deadline_s: float = math.inf,
    ) -> None:
        """Have `call` made in another thread, after those before it; `done` in this one after it.

        It is made again while it raises `Unavailable`: so and so often, or until `deadline_s` of
        the context's clock if there is one. If it fails so does the slot, and those behind it are
        never made. `what` is what cannot be done then: "cannot commit to sink 'x'".
        """
        ...

    def wait(self) -> None:
        """Return when all are made; for operators that open.

        Raises:
            Exception: what one has raised.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class AttemptFacts:
    """What one attempt of the job says to all its slots and operators."""

    attempt: int
    """Its number in this run of the job; the run's is `epoch`."""
    epoch: int
    """The owner's of the checkpoints: every run of the job has a higher one than those before it,
    so that (epoch, attempt) is an attempt's place among all attempts of all runs."""
    job: JobStorage
    backend: StateBackend
    restored_from: StateFolder | None = None
    """The folder of the restored state; None: the job's own."""
    allow_pickle: bool = False
    allow_missing_output: bool = False
    """Whether what sinks have prepared for the restored checkpoint may be gone."""
    first_checkpoint_id: int
    """No checkpoint of an earlier attempt has had this number: this one's are numbered from here
    on, and so are files that are begun before a checkpoint refers to them."""
    compression: str = ""
    """That of the job's checkpoints."""


@dataclass(frozen=True, kw_only=True)
class OperatorContext(AttemptFacts):
    """What an operator is opened with."""

    uid: str
    slot: int
    parallelism: int
    max_parallelism: int
    key_groups: KeyGroupRange
    restored: Sequence[StateSnapshot] = ()
    """What all slots of the checkpoint have left of this operator, keyed state and other."""
    clock: Clock
    output: Output
    collect: Callable[[str, str, bytes], None]
    """Hands the driver one part of a collecting sink's rows: the sink's uid, the name of the part,
    the rows. A second part of the same name is the same one."""
    committer: Committer

    @property
    def restored_storage(self) -> StateFolder:
        """The folder that `restored` is read from, perhaps not the job's; never write there."""
        return self.restored_from or self.job

    @property
    def is_restored_from_own(self) -> bool:
        """Whether that is the folder that this job's checkpoints go to."""
        return self.restored_storage.url == self.job.url


class Operator(ABC):
    """One operator in one slot."""

    makes_event_time: ClassVar[bool] = False
    """Whether watermarks begin here: then the chain does not pass on watermarks, nor that its input
    is idle or active; the operator does so where it sees fit, through its output."""

    batch_bytes: ClassVar[int] = 0
    """Batches that wait are joined up to about this size before the first operator of a chain has
    them; 0: each as it came. What costs by the key and not by the row gains by it."""

    @abstractmethod
    def open(self, context: OperatorContext) -> None:
        """Restore state, and get ready."""

    @abstractmethod
    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        """Process rows of the operator's input schema, that have come by this one of its inputs.

        They are numbered from 0. Streams that are united are one input.
        """

    def advance(self, watermark: int) -> bool:
        """Event time has got to here; do a bounded amount of what is due, and answer if more is.

        While more is, the chain reads no rows and calls again with the same watermark; barriers,
        ticks and the news of checkpoints may come between. Then it passes the watermark on.
        """
        del watermark
        return False

    def tick(self, now_ms: int) -> None:
        """The clock has got to here: do a bounded amount of what is due.

        Called about when `next_tick_ms` says, or later; again, as long as that is in the past.
        """

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do; None when it has not."""
        return None

    def tend(self) -> bool:
        """Do what is due for its state, in a moment; called again and again.

        Answers whether it may take rows now.
        """
        return True

    def finish(self) -> bool:
        """All input has ended: emit a bounded amount of what is left, and answer if more is.

        While more is, the chain calls again; barriers and the news of checkpoints may come between,
        so what was emitted must be out of the state. A restore from there finishes again. What
        follows is told of the end after the last call. A final checkpoint comes then.
        """
        return False

    def prepare(self, checkpoint_id: int) -> None:
        """Before the snapshot: emit what belongs before the barrier."""

    def snapshot(
        self,
        checkpoint_id: int,
        target: SnapshotTarget,
        *,
        form: SnapshotForm = SnapshotForm.OWN,
    ) -> Sequence[Future[StateSnapshot]]:
        """Begin a snapshot of all state; the call is what processing waits for.

        Any other form than `OWN` is that of a savepoint: it refers to nothing that was written
        before, and no later one builds on it. `completed` is not called for it, unless the job ends
        with it.
        """
        return ()

    def completed(self, checkpoint_id: int) -> None:
        """The checkpoint is complete; of several, perhaps only the last is told."""

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will not be completed."""

    def metrics(self) -> OperatorMetrics:
        """Metrics of the operator; called about once a second. It changes nothing."""
        return OperatorMetrics()

    @abstractmethod
    def close(self) -> None:
        """Give everything back; what is not in a checkpoint is gone. Also after a failed `open`."""


@dataclass(frozen=True, kw_only=True)
class OperatorSpec(ABC):
    """An operator as the driver plans it. Plain data; functions of users are pickled in it.

    Schemas are as users see them, without the column of event time. `has_event_time` says whether
    the batches that come in have it; those that go out have it then too, and always where the
    operator makes event time. It is null for rows that happened at no time.
    """

    has_side_outputs: ClassVar[bool] = False
    """Whether it can emit rows with a tag."""

    uid: str
    name: str
    input_schema: pa.Schema
    output_schema: pa.Schema
    side_schemas: Mapping[str, pa.Schema] = field(default_factory=dict)
    has_event_time: bool = False

    @abstractmethod
    def build(self) -> Operator:
        """The operator, not yet opened."""
