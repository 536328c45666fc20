"""The operator at the end of a stream: a two-phase-commit sink in one slot.

What was prepared and not committed yet is operator state, with the number of its checkpoint, so a
completed checkpoint lists every file, transaction or part that is to be seen because of it:

- *A crash before the checkpoint is complete*: no checkpoint lists what was prepared for it; the
  next attempt's `clean` removes it, and its rows are read again.
- *A crash after that, before or during the commit*: the run that restores the checkpoint commits
  all that it lists before it takes a row. That may be for the second time, or at the same time as a
  slot of the old attempt that still lives: both do the same, and commits may be repeated.
- *A notification that never comes*: the next one commits what is due by then, oldest first.
- *A snapshot while a commit goes on*: it lists what is not known to be committed, so a restore may
  commit it again.
- *An aborted checkpoint*: what was prepared for it stays pending, since its rows belong to every
  later checkpoint too, which lists it.
- *A slot of an old attempt that still writes*: no checkpoint lists that any more. If it begins
  to clean only now, it spares what newer attempts have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from types import GenericAlias
from typing import Any

import pyarrow as pa

from holdfast.backends import (
    ListStateDescriptor,
    OperatorListState,
    OperatorStateBackend,
    SnapshotForm,
    SnapshotTarget,
)
from holdfast.runtime.api.sinks import SinkWriter, TwoPhaseCommitSink, WriterContext
from holdfast.runtime.columns.types import listed
from holdfast.runtime.operators.user_code import unpickled
from holdfast.runtime.protocol.elements import EVENT_TIME
from holdfast.runtime.protocol.metrics import OperatorMetrics
from holdfast.runtime.protocol.operator import Committer, Operator, OperatorContext, OperatorSpec
from holdfast.storage import Invalid, StateSnapshot, Unavailable

__all__ = ["SinkOperator", "SinkSpec"]

_STATE = "committables"

_Pending = tuple[int, Any]
"""The number of the checkpoint that it was prepared for, and a committable."""


@dataclass(frozen=True, kw_only=True)
class SinkSpec(OperatorSpec):
    """A sink as the driver plans it; `sink.check` was called there. Nothing comes out of it.

    A slot gets the sink as `pickled`, so that one that cannot be unpickled there has a name.
    """

    output_schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    sink: TwoPhaseCommitSink[Any] | None
    """The sink itself, on the driver; None where the spec was unpickled and `pickled` is there."""
    pickled: bytes = b""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "sink": None} if self.pickled else vars(self)

    def build(self) -> SinkOperator:
        """The operator, not yet opened.

        Raises:
            Invalid: the sink cannot be unpickled here.
        """
        sink = self.sink
        if sink is None:
            sink = unpickled(self.pickled, f"the sink {self.uid!r}")
        return SinkOperator(self, sink)


class SinkOperator(Operator):
    """Writes rows, prepares at barriers, and commits what completed checkpoints list."""

    def __init__(self, spec: SinkSpec, sink: TwoPhaseCommitSink[Any]) -> None:
        self._spec = spec
        self._sink = sink
        self._pending: list[_Pending] = []
        """In order of their checkpoints, since those come in order."""
        self._prepared_s: dict[int, float] = {}
        """When, by checkpoint that has any. What was restored gets a new deadline."""
        self._begun = -1
        """The newest checkpoint whose commits were begun."""
        self._writer: SinkWriter[Any] | None = None
        self._backend: OperatorStateBackend | None = None
        self._state: OperatorListState[_Pending]
        self._context: WriterContext
        self._committer: Committer

    def open(self, context: OperatorContext) -> None:
        """Commit what the restored checkpoint lists, and remove what it does not.

        Raises:
            Unavailable: the place of the sink did not answer, often enough.
            Corrupt: what the checkpoint lists is not there any more, or damaged.
        """
        self._context, self._committer = _writer_context(self._spec, context), context.committer
        self._backend = OperatorStateBackend.open(
            uid=context.uid,
            slot=context.slot,
            parallelism=context.parallelism,
            restore=context.restored,
            storage=context.restored_storage,
            allow_pickle=context.allow_pickle,
        )
        element = GenericAlias(tuple, (int, self._sink.committable_type))
        # A union: to clean, one slot must know what all had; each commits a part of it.
        self._state = self._backend.get_union_list_state(ListStateDescriptor(_STATE, element))
        restored = self._state.get()
        self._state.clear()
        own = restored[context.slot :: context.parallelism]
        committing = replace(self._context, allow_missing=context.allow_missing_output)
        self._commit(sorted(own, key=_checkpoint_of), committing)
        if context.slot == 0:
            keep = [committable for _, committable in restored]
            clean = partial(self._sink.clean, keep, self._context)
            self._committer.commit(clean, what=f"cannot clean up for sink {context.uid!r}")
        # A row that is taken before could be committed before what the checkpoint lists.
        self._committer.wait()
        self._writer = self._sink.open_writer(self._context)

    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        if self._spec.has_event_time:
            batch = batch.drop_columns([EVENT_TIME])
        self._opened().write(_fitted(batch, self._spec))

    def tend(self) -> bool:
        """See `Operator.tend`.

        Raises:
            Unavailable: what was prepared was not committed in time.
        """
        if self._pending and self._deadline_s(self._pending[0][0]) < self._now_s():
            number, _ = self._pending[0]
            raise Unavailable(
                f"what was prepared for checkpoint {number} is not committed in time",
                where=f"sink {self._context.uid!r}",
                expected=f"within {self._sink.commit_within_s:g} s",
                fix="Take checkpoints more often, see why they do not complete, or have the sink "
                "wait longer, such as by the timeout of its transactions",
            )
        return True

    def prepare(self, checkpoint_id: int) -> None:
        now_s = self._now_s()
        committables = self._opened().prepare(checkpoint_id)
        # Only a commit removes the time: a sink without rows would keep one for each checkpoint.
        if committables:
            self._prepared_s[checkpoint_id] = now_s
        self._pending += [(checkpoint_id, each) for each in committables]

    def snapshot(
        self,
        checkpoint_id: int,
        target: SnapshotTarget,
        *,
        form: SnapshotForm = SnapshotForm.OWN,
    ) -> Sequence[Future[StateSnapshot]]:
        """All committables that are not known to be committed."""
        assert self._backend is not None
        self._state.update(self._pending)
        return [self._backend.snapshot(checkpoint_id, target, form=form)]

    def completed(self, checkpoint_id: int) -> None:
        """Begin to commit, in another thread, what was prepared for it and for those before."""
        due = [each for each in self._pending if self._begun < each[0] <= checkpoint_id]
        self._begun = checkpoint_id
        self._commit(due, self._context)

    def metrics(self) -> OperatorMetrics:
        return OperatorMetrics(operator_states={_STATE: {"entries": float(len(self._pending))}})

    def close(self) -> None:
        writer, self._writer = self._writer, None
        backend, self._backend = self._backend, None
        try:
            if writer is not None:
                writer.close()
        finally:
            if backend is not None:
                backend.close()

    def _opened(self) -> SinkWriter[Any]:
        assert self._writer is not None, "the chain opens an operator first"
        return self._writer

    def _commit(self, due: Sequence[_Pending], context: WriterContext) -> None:
        """One checkpoint after the other, so that readers never see a later one alone."""
        for number, group in groupby(due, _checkpoint_of):
            committables = [committable for _, committable in group]
            self._committer.commit(
                partial(self._sink.commit, committables, context),
                partial(self._committed, number),
                what=f"cannot commit to sink {context.uid!r}",
                deadline_s=self._deadline_s(number),
            )

    def _committed(self, checkpoint_id: int) -> None:
        self._pending = [each for each in self._pending if each[0] > checkpoint_id]
        self._prepared_s = {
            number: at_s for number, at_s in self._prepared_s.items() if number > checkpoint_id
        }

    def _deadline_s(self, checkpoint_id: int) -> float:
        return self._prepared_s.get(checkpoint_id, self._now_s()) + self._sink.commit_within_s

    def _now_s(self) -> float:
        return self._context.clock.monotonic_s()


def _fitted(batch: pa.RecordBatch, spec: SinkSpec) -> pa.RecordBatch:
    """The batch with the schema of the sink, from which it may differ in what may be null.

    Raises:
        Invalid: it has other columns.
    """
    schema = spec.input_schema
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if batch.schema.names != schema.names or batch.schema.types != schema.types:
        raise Invalid(
            "rows do not have the columns of the sink that they come to",
            where=f"operator {spec.uid!r}",
            expected=listed(schema),
            found=listed(batch.schema),
        )
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _checkpoint_of(pending: _Pending) -> int:
    return pending[0]


def _writer_context(spec: SinkSpec, context: OperatorContext) -> WriterContext:
    return WriterContext(
        job_id=context.job.job_id,
        uid=context.uid,
        slot=context.slot,
        parallelism=context.parallelism,
        attempt=f"{context.epoch:020d}.{context.attempt:010d}",
        schema=spec.input_schema,
        clock=context.clock,
        collect=partial(context.collect, context.uid),
    )
