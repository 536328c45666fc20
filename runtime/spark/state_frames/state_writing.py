"""Runs in tasks of Spark that write a savepoint: rows to their key groups, and files of them.

A task writes files under names that no other attempt has, and returns a part of a snapshot. The
driver joins the parts, deletes files that none of them names, and commits. State that is kept from
an older savepoint is written anew and not copied, since the names of states and operators are in
the files. State without keys is small, and is written by the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise

import msgspec
import numpy as np
import pyarrow as pa

from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.groups import KeyGroupRange, key_groups_of_slot
from holdfast.backends.snapshots.canonical import CanonicalWriter
from holdfast.backends.snapshots.neutral import SnapshotFuture, TableInfo, TableToWrite
from holdfast.backends.state.from_descriptors import shape_of
from holdfast.backends.values.type_descriptions import Schema
from holdfast.runtime.spark.launching.pickling import ByValue
from holdfast.savepoints.reading.columns import KeyedColumns
from holdfast.savepoints.reading.readers import KeyedReader
from holdfast.savepoints.reading.tables import KeyedTable
from holdfast.savepoints.writing.assembly import AttemptTarget
from holdfast.savepoints.writing.changes import NewState
from holdfast.savepoints.writing.keyed_rows import RowEncoder, blocks_of
from holdfast.storage import SavepointFolder, StateSnapshot, SystemClock

__all__ = ["SHUFFLED_DDL", "WRITTEN_DDL", "Carrier", "Maker", "OperatorTarget", "Writer"]

SHUFFLED_DDL = (
    "part int, key_group int, key binary, namespace binary, map_key binary, position long, "
    "value binary, last_used_ms long"
)
WRITTEN_DDL = "part int, snapshot binary"


@dataclass(frozen=True, kw_only=True)
class OperatorTarget:
    """Where the state of an operator is written, how it is divided, and the type of its keys."""

    uid: str
    keys: Schema
    parallelism: int
    max_parallelism: int
    folder: SavepointFolder
    checkpoint_id: int

    def writer(self, part: int) -> CanonicalWriter:
        return CanonicalWriter(
            uid=self.uid,
            key_groups=self.key_groups(part),
            max_parallelism=self.max_parallelism,
            keys=self.keys,
            target=AttemptTarget.begin(self.folder),
            checkpoint_id=self.checkpoint_id,
        )

    def key_groups(self, part: int) -> KeyGroupRange:
        return key_groups_of_slot(part, self.parallelism, self.max_parallelism)


@dataclass(frozen=True)
class Maker:
    """Encodes the rows of a DataFrame as bytes, with their key groups."""

    to: OperatorTarget
    state: ByValue[NewState]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        state = self.state.value
        assert isinstance(state.table, TableInfo)
        maker = RowEncoder(
            state.table,
            self.to.keys,
            state.columns,
            parallelism=self.to.parallelism,
            max_parallelism=self.to.max_parallelism,
            descriptor=state.descriptor,
        )
        for batch in batches:
            if batch.num_rows:
                yield maker.rows(batch)


@dataclass(frozen=True)
class Writer:
    """Writes such rows, which arrive sorted; returns a snapshot for each part."""

    to: OperatorTarget
    state: ByValue[NewState]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part, its in groupby(_by_part(batches), lambda each: each[0]):
            yield _answer(part, self._write(part, (batch for _, batch in its)))

    def _write(self, part: int, batches: Iterable[pa.RecordBatch]) -> StateSnapshot:
        info = self.state.value.table
        assert isinstance(info, TableInfo)
        codec = None
        if self.state.value.descriptor is not None:
            codec = shape_of(self.state.value.descriptor, allow_pickle=False).values
        now_ms = SystemClock().now_ms()
        blocks: Iterator[Block] = blocks_of(batches, info, self.to.keys, now_ms=now_ms)
        table = TableToWrite(info, lambda: blocks, codec)
        return self.to.writer(part).write([table], SnapshotFuture())


@dataclass(frozen=True)
class Carrier:
    """Writes the kept state of a stored operator for some parts, given their numbers."""

    to: OperatorTarget
    reader: KeyedReader
    tables: tuple[tuple[KeyedTable, TableInfo], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield _answer(part, self._write(part))

    def _write(self, part: int) -> StateSnapshot:
        with self.reader.open(self.to.key_groups(part)) as opened:
            tables = [
                TableToWrite(
                    info,
                    partial(opened.blocks, table),
                    whole=KeyedColumns(self.reader, table).is_complete,
                )
                for table, info in self.tables
            ]
            return self.to.writer(part).write(tables, SnapshotFuture())


def _by_part(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each part by themselves; those of a part lie together."""
    for batch in batches:
        parts = batch.column("part").to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
        for first, end in pairwise(cuts):
            if first < end:
                yield int(parts[first]), batch.slice(first, end - first)


def _answer(part: int, snapshot: StateSnapshot) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "part": pa.array([part], pa.int32()),
            "snapshot": pa.array([msgspec.msgpack.encode(snapshot)], pa.binary()),
        }
    )
