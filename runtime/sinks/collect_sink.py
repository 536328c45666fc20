"""Rows that go to the driver: for tests and notebooks, with results that fit into its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.runtime.api.sinks import SinkWriter, TwoPhaseCommitSink, WriterContext
from holdfast.runtime.columns.types import detached
from holdfast.storage import Invalid
from holdfast.storage.names import escape

__all__ = ["CollectSink", "CollectedPart", "collected_table"]


@dataclass(frozen=True, slots=True)
class CollectedPart:
    """What one slot wrote for one checkpoint, as a stream of Arrow's IPC format."""

    part: str
    rows: bytes


class CollectSink(TwoPhaseCommitSink[CollectedPart]):
    """Hands rows to the driver, exactly once, when the checkpoint that holds them is complete.

    Until then they are part of the checkpoint. Names of parts, in order, are in the order of
    checkpoints; `collected_table` makes a table of them. A driver that is started anew begins with
    nothing, and gets what its checkpoint holds and what follows.
    """

    committable_type = CollectedPart

    def __repr__(self) -> str:
        return "CollectSink()"

    def check(self, schema: pa.Schema) -> None:
        if not schema.names:
            raise Invalid(
                "a sink cannot collect rows without columns",
                expected="one column or more",
                found="none",
            )

    def open_writer(self, context: WriterContext) -> SinkWriter[CollectedPart]:
        return _CollectWriter(context)

    def commit(self, committables: Sequence[CollectedPart], context: WriterContext) -> None:
        for each in committables:
            context.collect(each.part, each.rows)

    def clean(self, keep: Sequence[CollectedPart], context: WriterContext) -> None:
        """Nothing: what no checkpoint lists went with the process that held it."""


class _CollectWriter(SinkWriter[CollectedPart]):
    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(detached(batch))

    def prepare(self, checkpoint_id: int) -> Sequence[CollectedPart]:
        batches, self._batches = self._batches, []
        if not any(batch.num_rows for batch in batches):
            return []
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, self._context.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        attempt = escape(self._context.attempt)
        part = f"{checkpoint_id:020d}-{self._context.slot:05d}-{attempt}"
        return [CollectedPart(part, stream.getvalue().to_pybytes())]

    def close(self) -> None:
        self._batches.clear()


def collected_table(parts: Mapping[str, bytes], schema: pa.Schema) -> pa.Table:
    """All rows of the parts that the driver was handed, by name, in order of checkpoints."""
    tables = [schema.empty_table()]
    for name in sorted(parts):
        with pa.ipc.open_stream(parts[name]) as reader:
            tables.append(reader.read_all())
    return pa.concat_tables(tables)
