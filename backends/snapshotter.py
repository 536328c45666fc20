"""The background thread of a backend: writes snapshots one after the other, and settles between."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.backends.key_groups import KeyGroupRange
from holdfast.backends.restores import PendingTable
from holdfast.backends.snapshots import (
    ENTRIES_KIND,
    KeyedAttributes,
    SnapshotFuture,
    SnapshotTarget,
    TableInfo,
    write_table,
)
from holdfast.backends.tables import FrozenTables, TableSpec, TableStore
from holdfast.storage import Handle, SegmentWriter, StateSnapshot

__all__ = ["FrozenTable", "Snapshotter"]


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A table in a snapshot: the kind of state it is, and the oldest stamp to keep."""

    spec: TableSpec
    kind: str
    keep_from_ms: int | None


@dataclass(frozen=True, slots=True)
class _Task:
    future: SnapshotFuture
    frozen: FrozenTables
    checkpoint_id: int
    target: SnapshotTarget
    tables: Sequence[FrozenTable]
    pending: Sequence[PendingTable]
    keys: dict[str, Any] | None
    compression: str


class Snapshotter:
    """Writes the snapshots of one backend. `begin` and `close` belong to the owner's thread."""

    def __init__(
        self, store: TableStore, uid: str, key_groups: KeyGroupRange, max_parallelism: int
    ) -> None:
        self._store = store
        self._uid = uid
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._worker: ThreadPoolExecutor | None = None
        self._waiting: list[SnapshotFuture] = []

    def begin(
        self,
        checkpoint_id: int,
        target: SnapshotTarget,
        tables: Sequence[FrozenTable],
        pending: Sequence[PendingTable],
        *,
        keys: dict[str, Any] | None,
        compression: str,
    ) -> SnapshotFuture:
        """Freeze the tables and leave the rest to the background."""
        future = SnapshotFuture()
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, f"snapshots of {self._uid}")
        self._waiting.append(future)
        task = _Task(
            future,
            self._store.freeze(),
            checkpoint_id,
            target,
            tables,
            pending,
            keys,
            compression,
        )
        self._worker.submit(self._run, task)
        return future

    def close(self) -> None:
        """Give up what is on its way, and wait until nothing is touched any more."""
        for future in list(self._waiting):
            future.cancel()
        if self._worker is not None:
            self._worker.shutdown(wait=True)

    def _run(self, task: _Task) -> None:
        future = task.future
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(self._write(task))
        except CancelledError as error:
            future.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
            future.set_exception(error)
        finally:
            task.frozen.release()
            self._waiting.remove(future)
        self._store.settle(lambda: bool(self._waiting))

    def _write(self, task: _Task) -> StateSnapshot:
        handles: dict[str, Handle] = {}
        infos: list[TableInfo] = []
        with task.target.segments(
            task.checkpoint_id, self._uid, compression=task.compression
        ) as writer:
            infos.extend(self._write_frozen(task, table, writer, handles) for table in task.tables)
            for pending in task.pending:
                its_handles, segments = write_table(
                    writer, pending.blocks(), pending.info.name, task.future
                )
                handles |= its_handles
                infos.append(msgspec.structs.replace(pending.info, segments=segments))
            task.future.check()
        attributes = KeyedAttributes(
            uid=self._uid,
            max_parallelism=self._max_parallelism,
            keys=task.keys,
            tables=tuple(infos),
        )
        return StateSnapshot(
            kind=ENTRIES_KIND,
            handles=handles,
            attributes=msgspec.to_builtins(attributes),
            key_groups=(self._key_groups.first, self._key_groups.last),
        )

    def _write_frozen(
        self,
        task: _Task,
        table: FrozenTable,
        writer: SegmentWriter,
        handles: dict[str, Handle],
    ) -> TableInfo:
        spec = table.spec
        blocks = task.frozen.blocks(spec, table.keep_from_ms)
        its_handles, segments = write_table(writer, blocks, spec.name, task.future)
        handles |= its_handles
        return TableInfo(
            name=spec.name,
            kind=table.kind,
            namespaces=None if spec.namespaces is None else spec.namespaces.describe(),
            map_keys=None if spec.map_keys is None else spec.map_keys.describe(),
            values=spec.values.describe(),
            stamped=spec.stamped,
            segments=segments,
        )
