"""Writing tables as a snapshot of keyed state, in any form, without a job.

The neutral and the canonical form are written block by block. For files of a store, a store is
opened, filled and closed, in the memory that its backend is configured for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.backends.blocks.block import Block
from holdfast.backends.interface import StateBackend
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.canonical import CanonicalWriter
from holdfast.backends.snapshots.neutral import (
    ENTRIES_KIND,
    KeyedAttributes,
    SnapshotForm,
    SnapshotFuture,
    SnapshotTarget,
    TableInfo,
    TableToWrite,
    keyed_snapshot,
    write_tables,
)
from holdfast.backends.snapshots.raw_tables import raw_spec
from holdfast.backends.snapshots.snapshotter import (
    FrozenTable,
    SnapshotContent,
    SnapshotRequest,
    Snapshotter,
)
from holdfast.backends.tables.contract import Table
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import Invalid, StateSnapshot

__all__ = ["KeyedWriter", "check_holds", "load_in_bulk"]

_BULK_ROWS = 128 * 1024
_BULK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedWriter:
    """Writes the keyed state of an operator in some key groups.

    `backend` is the one that will restore it, or None for the canonical form, which any restores.
    """

    uid: str
    key_groups: KeyGroupRange
    max_parallelism: int
    keys: Schema | None
    target: SnapshotTarget
    backend: StateBackend | None
    checkpoint_id: int
    compression: str = ""

    def write(self, tables: Sequence[TableToWrite]) -> StateSnapshot:
        """Write the tables; the returned snapshot is complete.

        Raises:
            Invalid: the backend cannot hold a table.
            Corrupt: a row does not fit the description of its table.
            Unavailable: the storage failed, or this machine cannot open the store.
        """
        if self.backend is None:
            return self._canonical(tables)
        if self.backend.capabilities.own_snapshots:
            return self._files(self.backend, tables)
        return self._entries(tables)

    def _canonical(self, tables: Sequence[TableToWrite]) -> StateSnapshot:
        writer = CanonicalWriter(
            uid=self.uid,
            key_groups=self.key_groups,
            max_parallelism=self.max_parallelism,
            keys=self.keys,
            target=self.target,
            checkpoint_id=self.checkpoint_id,
        )
        return writer.write(tables, SnapshotFuture())

    def _entries(self, tables: Sequence[TableToWrite]) -> StateSnapshot:
        with self.target.segments(
            self.checkpoint_id, self.uid, compression=self.compression
        ) as segments:
            handles, infos = write_tables(segments, tables, SnapshotFuture())
        attributes = KeyedAttributes(
            uid=self.uid, max_parallelism=self.max_parallelism, keys=self.keys, tables=infos
        )
        return keyed_snapshot(ENTRIES_KIND, attributes, handles, self.key_groups)

    def _files(self, backend: StateBackend, tables: Sequence[TableToWrite]) -> StateSnapshot:
        store = backend.open_store(self.uid, self.key_groups, self.max_parallelism)
        try:
            frozen = []
            for number, each in enumerate(tables):
                spec = raw_spec(f"_written/{number}/{each.info.name}", each.info, self.keys)
                load_in_bulk(store.table(spec), each.blocks())
                frozen.append(FrozenTable(spec, each.info))
            snapshots = Snapshotter(store, self.uid, self.key_groups, self.max_parallelism)
            request = SnapshotRequest(
                checkpoint_id=self.checkpoint_id,
                target=self.target,
                content=lambda: SnapshotContent(frozen, ()),
                infos=dict,
                keys=self.keys,
                changed=0,
                compression=self.compression,
                form=SnapshotForm.NATIVE,
            )
            try:
                return snapshots.begin(request).result()
            finally:
                snapshots.close()
        finally:
            store.close()


def load_in_bulk(table: Table, blocks: Iterable[Block]) -> None:
    """Load blocks, sorted by key group, in large batches that end at key groups if possible.

    A store that sorts each batch then writes key ranges that do not overlap.
    """
    waiting: list[Block] = []
    rows = size_bytes = 0
    for block in blocks:
        if not block.count:
            continue
        if rows >= _BULK_ROWS or size_bytes >= _BULK_BYTES:
            begun = int(block.group_array[0])
            is_new = begun != int(waiting[-1].group_array[-1])
            if is_new or rows >= 4 * _BULK_ROWS or size_bytes >= 4 * _BULK_BYTES:
                table.load_together(waiting)
                waiting, rows, size_bytes = [], 0, 0
        waiting.append(block)
        rows += block.count
        size_bytes += len(block.keys.data) + len(block.values)
    if waiting:
        table.load_together(waiting)


def check_holds(
    backend: StateBackend,
    uid: str,
    max_parallelism: int,
    keys: Schema | None,
    infos: Iterable[TableInfo],
) -> None:
    """Make sure that a backend can hold these tables.

    Raises:
        Invalid: it cannot hold a table; names it.
        Unavailable: this machine cannot open a store of the backend.
    """
    store = backend.open_store(uid, KeyGroupRange(0, max_parallelism - 1), max_parallelism)
    try:
        for number, info in enumerate(infos):
            try:
                store.table(raw_spec(f"_tried/{number}/{info.name}", info, keys))
            except Invalid as error:
                raise error.replaced(
                    what=f"the backend cannot hold state {info.name!r} of operator {uid!r}: "
                    f"{error.what}",
                    fix=error.fix or "Convert it to another backend, or to the canonical format",
                ) from error
    finally:
        store.close()
