"""The snapshots of keyed state: frozen and pending tables into segments, in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.backends.key_groups import KeyGroupRange
from holdfast.backends.restores import PendingTable
from holdfast.backends.snapshot_worker import SnapshotWorker
from holdfast.backends.snapshots import (
    ENTRIES_KIND,
    KeyedAttributes,
    SegmentInfo,
    SnapshotFuture,
    SnapshotTarget,
    TableInfo,
    write_table,
)
from holdfast.backends.tables import FrozenTables, TableSpec, TableStore
from holdfast.storage import Handle, StateSnapshot

__all__ = ["FrozenTable", "Snapshotter"]


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A table in a snapshot: the kind of state it is, and the oldest stamp to keep."""

    spec: TableSpec
    kind: str
    keep_from_ms: int | None


@dataclass(frozen=True, slots=True)
class _Task:
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
        self._worker = SnapshotWorker(uid)

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
        frozen = self._store.freeze()
        task = _Task(frozen, checkpoint_id, target, tables, pending, keys, compression)

        def ended(stop: Callable[[], bool]) -> None:
            frozen.release()
            self._store.settle(stop)

        return self._worker.submit(lambda future: self._write(task, future), ended)

    def close(self) -> None:
        """Give up what is on its way, and wait until nothing is touched any more."""
        self._worker.close()

    def _write(self, task: _Task, future: SnapshotFuture) -> StateSnapshot:
        handles: dict[str, Handle] = {}
        infos: list[TableInfo] = []
        with task.target.segments(
            task.checkpoint_id, self._uid, compression=task.compression
        ) as writer:
            for table in task.tables:
                blocks = task.frozen.blocks(table.spec, table.keep_from_ms)
                its_handles, segments = write_table(writer, blocks, table.spec.name, future)
                handles |= its_handles
                infos.append(_info(table, segments))
            names = [pending.info.name for pending in task.pending]
            for number, pending in enumerate(task.pending):
                name = names[number]
                if number != names.index(name):  # no state and no timers have such a name
                    name = f"_more/{number}/{name}"
                its_handles, segments = write_table(writer, pending.blocks(), name, future)
                handles |= its_handles
                infos.append(msgspec.structs.replace(pending.info, segments=segments))
            future.check()
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


def _info(table: FrozenTable, segments: tuple[SegmentInfo, ...]) -> TableInfo:
    spec = table.spec
    return TableInfo(
        name=spec.name,
        kind=table.kind,
        namespaces=None if spec.namespaces is None else spec.namespaces.describe(),
        map_keys=None if spec.map_keys is None else spec.map_keys.describe(),
        values=spec.values.describe(),
        stamped=spec.stamped,
        segments=segments,
    )
