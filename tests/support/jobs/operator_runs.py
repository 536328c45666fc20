"""Operators in slots for tests: opened, fed with rows, stopped with a checkpoint, restored."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.backends import KeyGroupRange, key_groups_of_slots, load_backend
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_groups
from holdfast.runtime.operators import KeyedBatchSpec, KeyedProcessSpec
from holdfast.runtime.operators.key_columns import KeyColumns
from holdfast.runtime.protocol.elements import EVENT_TIME
from holdfast.runtime.protocol.operator import Operator, OperatorContext, OperatorSpec
from holdfast.runtime.sinks.testing.sink_jobs import CommitsAtOnce
from holdfast.storage import JobStorage, ManualClock, StateSnapshot, load_storage

MAX_PARALLELISM = 128
ORDERS = pa.schema([("user", pa.string()), ("amount", pa.int64())])
Row = tuple[Any, ...]


@dataclass
class Collected:
    """What came out of an operator: rows as tuples, by output, and the marks that it made."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    sides: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    marks: list[int | str] = field(default_factory=list)
    shows_times: bool = True

    def emit(self, batch: pa.RecordBatch) -> None:
        assert batch.num_rows
        batch.validate(full=True)
        self.batches.append(batch)

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        assert batch.num_rows
        batch.validate(full=True)
        self.sides.setdefault(tag, []).append(batch)

    def advance(self, watermark: int) -> None:
        self.marks.append(watermark)

    def idle(self) -> None:
        self.marks.append("idle")

    def active(self) -> None:
        self.marks.append("active")

    def collect(self, uid: str, part: str, rows: bytes) -> None:
        raise AssertionError("nothing here is a collecting sink")

    def taken(self) -> list[Row]:
        """The rows since the last time, and none of them again."""
        batches, self.batches = self.batches, []
        if not self.shows_times:
            batches = [batch.drop_columns([EVENT_TIME]) for batch in batches]
        return tuples(batches)

    def taken_side(self, tag: str) -> list[Row]:
        return tuples(self.sides.pop(tag, []))


def tuples(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [
        row
        for batch in batches
        for row in zip(*map(pa.Array.to_pylist, batch.columns), strict=True)
    ]


@dataclass
class Slot:
    """One operator in one slot."""

    operator: Operator
    output: Collected
    clock: ManualClock
    spec: OperatorSpec
    key_groups: KeyGroupRange

    def feed(self, rows: Sequence[Row], times: Sequence[int | None] | None = None) -> list[Row]:
        """Process rows as one batch, and take what comes of them."""
        self.operator.process(batch_of(self.spec, rows, times), 0)
        return self.output.taken()

    def advance(self, watermark: int) -> list[Row]:
        """All that follows from a watermark, whatever it takes."""
        while self.operator.advance(watermark):
            pass
        return self.output.taken()

    def tick(self, now_ms: int) -> list[Row]:
        self.clock.advance(now_ms - self.clock.now_ms())
        self.operator.tick(now_ms)
        while (due_ms := self.operator.next_tick_ms()) is not None and due_ms <= now_ms:
            self.operator.tick(now_ms)
        return self.output.taken()


def batch_of(
    spec: OperatorSpec, rows: Sequence[Row], times: Sequence[int | None] | None = None
) -> pa.RecordBatch:
    schema = spec.input_schema
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)]
    if spec.has_event_time:
        arrays.append(pa.array(range(len(rows)) if times is None else times, pa.int64()))
        schema = schema.append(pa.field(EVENT_TIME, pa.int64()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def keyed(
    function: Any,
    output: pa.Schema = ORDERS,
    *,
    input_schema: pa.Schema = ORDERS,
    keys: tuple[str, ...] = ("user",),
    cls: type[KeyedProcessSpec | KeyedBatchSpec] = KeyedProcessSpec,
    **options: Any,
) -> OperatorSpec:
    """The spec of a function over orders by user, unless something else is said."""
    return cls(
        uid="op",
        name="process",
        input_schema=input_schema,
        output_schema=output,
        function=pickle.dumps(function),
        key_columns=keys,
        **options,
    )


def context_of(output: Collected, clock: ManualClock, **options: Any) -> OperatorContext:
    slot, parallelism = options.get("slot", 0), options.get("parallelism", 1)
    settings = {
        "uid": "op",
        "slot": slot,
        "parallelism": parallelism,
        "max_parallelism": MAX_PARALLELISM,
        "attempt": 0,
        "epoch": 0,
        "key_groups": key_groups_of_slots(parallelism, MAX_PARALLELISM)[slot],
        "job": options.get("job") or load_storage("memory://").job("job"),
        "backend": options.get("backend") or load_backend("hashmap"),
        "first_checkpoint_id": 1,
        "clock": clock,
        "output": output,
        "collect": output.collect,
        "committer": CommitsAtOnce(clock),
    }
    return OperatorContext(**{**settings, **options})


def opened(
    spec: OperatorSpec,
    clock: ManualClock | None = None,
    output: Collected | None = None,
    *,
    shows_times: bool = True,
    **options: Any,
) -> Slot:
    """The operator in a slot; `shows_times` says whether results have their event time."""
    output, clock = output or Collected(), clock or ManualClock(1_000)
    output.shows_times = shows_times
    context = context_of(output, clock, **options)
    operator = spec.build()
    try:
        operator.open(context)
    except BaseException:
        operator.close()
        raise
    return Slot(operator, output, clock, spec, context.key_groups)


@contextmanager
def running(spec: OperatorSpec, clock: ManualClock | None = None, **options: Any) -> Iterator[Slot]:
    slot = opened(spec, clock, **options)
    try:
        yield slot
    finally:
        slot.operator.close()


def snapshots_of(slots: Iterable[Slot], checkpoint_id: int, job: JobStorage) -> list[StateSnapshot]:
    futures: list[Future[StateSnapshot]] = []
    for slot in slots:
        slot.operator.prepare(checkpoint_id)
        futures += slot.operator.snapshot(checkpoint_id, job)
    return [future.result(30) for future in futures]


class Fleet:
    """A keyed operator in several slots, which get the rows that are theirs."""

    def __init__(
        self,
        spec: OperatorSpec,
        parallelism: int,
        job: JobStorage,
        restored: Sequence[StateSnapshot] = (),
        **options: Any,
    ) -> None:
        self.spec = spec
        self.job = job
        options = {"parallelism": parallelism, "job": job, "restored": restored, **options}
        self.slots = [opened(spec, slot=slot, **options) for slot in range(parallelism)]

    def feed(self, rows: Sequence[Row], times: Sequence[int] | None = None) -> list[Row]:
        batch = batch_of(self.spec, rows, times)
        assert isinstance(self.spec, KeyedProcessSpec | KeyedBatchSpec)
        columns = KeyColumns(self.spec.input_schema, self.spec.key_columns, "op")
        hashes = key_codec_for(columns.key_type).hash_column(columns.of(batch))
        groups = key_groups(hashes, MAX_PARALLELISM)
        found = []
        for slot in self.slots:
            is_its = np.isin(groups, list(slot.key_groups))
            slot.operator.process(batch.filter(pa.array(is_its)), 0)
            found += slot.output.taken()
        return found

    def advance(self, watermark: int) -> list[Row]:
        return [row for slot in self.slots for row in slot.advance(watermark)]

    def tick(self, now_ms: int) -> list[Row]:
        return [row for slot in self.slots for row in slot.tick(now_ms)]

    def stop(self, checkpoint_id: int) -> list[StateSnapshot]:
        snapshots = snapshots_of(self.slots, checkpoint_id, self.job)
        for slot in self.slots:
            slot.operator.completed(checkpoint_id)
            slot.operator.close()
        return snapshots
