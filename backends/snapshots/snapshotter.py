"""The snapshots of keyed state: writing frozen tables to storage in the background.

`Snapshots` is the contract that keyed state uses; `Snapshotter` implements it by writing all tables
of a store. The changelog has another implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.canonical import CanonicalWriter
from holdfast.backends.snapshots.file_uploads import (
    ConfirmedFiles,
    FilesAttributes,
    KeptInfo,
    handle_name,
    write_files,
)
from holdfast.backends.snapshots.neutral import (
    ENTRIES_KIND,
    FILES_KIND,
    KeyedAttributes,
    Segments,
    SnapshotForm,
    SnapshotFuture,
    SnapshotTarget,
    TableInfo,
    TableToWrite,
    keyed_snapshot,
    write_tables,
)
from holdfast.backends.snapshots.raw_tables import is_raw
from holdfast.backends.snapshots.restores import PendingTable
from holdfast.backends.snapshots.workers import SnapshotWorker
from holdfast.backends.tables.contract import TableSpec, TableStore
from holdfast.backends.tables.files import TablesInFiles
from holdfast.storage import Handle, StateSnapshot

__all__ = [
    "FrozenTable",
    "Restoration",
    "SnapshotContent",
    "SnapshotRequest",
    "Snapshots",
    "Snapshotter",
    "info_of",
]


_OWN_FORMS = (SnapshotForm.OWN, SnapshotForm.NATIVE)


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A table of the store, its description in a snapshot, and the oldest stamp to keep."""

    spec: TableSpec
    info: TableInfo
    keep_from_ms: int | None = None


def info_of(spec: TableSpec, kind: str) -> TableInfo:
    """The description, in a snapshot, of a table of this spec and kind of state."""
    return TableInfo(
        name=spec.name,
        kind=kind,
        namespaces=None if spec.namespaces is None else spec.namespaces.describe(),
        map_keys=None if spec.map_keys is None else spec.map_keys.describe(),
        values=spec.values.describe(),
        stamped=spec.stamped,
    )


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """Everything that a snapshot of the current state must contain."""

    tables: Sequence[FrozenTable]
    pending: Sequence[PendingTable]
    """Tables that are not declared yet, and that the store does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """The content of a snapshot to be taken, and where it is written."""

    checkpoint_id: int
    target: SnapshotTarget
    content: Callable[[], SnapshotContent]
    """Answers the content; the owner's thread calls it at most once.

    Reads tables that are still in storage, so the files of a restored checkpoint are not needed any
    more.
    """
    infos: Callable[[], Mapping[str, TableInfo]]
    """Answers the description of each declared table, by name."""
    keys: dict[str, Any] | None
    changed: int
    """How many declared tables differ in types or name from the restored snapshots."""
    compression: str
    form: SnapshotForm = SnapshotForm.OWN
    begun_from: int | None = None
    """`StateSnapshot.begun_from` of the snapshot: about files that later ones may refer to."""

    @property
    def is_savepoint(self) -> bool:
        """Whether it is a savepoint, so that no checkpoint waits for it."""
        return self.form is not SnapshotForm.OWN


@dataclass(frozen=True, slots=True)
class Restoration:
    """What keyed state was restored from: the snapshots, and handles of files in use.

    `files` has, by name, the files of the snapshots that the store continues to use.
    """

    snapshots: Sequence[StateSnapshot]
    files: Mapping[str, Handle]


class Snapshots(ABC):
    """The snapshots of one backend. Belongs to the owner's thread."""

    @abstractmethod
    def begin(self, request: SnapshotRequest) -> SnapshotFuture:
        """Take the snapshot; processing waits for this call only, the rest runs in background."""

    @abstractmethod
    def build_on(self, restored: Restoration) -> None:
        """Later snapshots may refer to the files of these; called before the first."""

    @abstractmethod
    def completed(self, checkpoint_id: int) -> None:
        """The checkpoint is completed: later snapshots may build on it."""

    @abstractmethod
    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will not be completed."""

    def tend(self, request: Callable[[int, SnapshotTarget], SnapshotRequest]) -> bool:
        """Do work that is due between checkpoints; False if state must not be changed for now.

        `request` makes the request of a snapshot of the state as it is now.
        """
        del request
        return True

    def metrics(self) -> Mapping[str, float]:
        """Metrics of snapshots, beside those of the store."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Cancel all snapshots, and wait until their threads have ended."""


class Snapshotter(Snapshots):
    """Writes all tables of the store."""

    def __init__(
        self, store: TableStore, uid: str, key_groups: KeyGroupRange, max_parallelism: int
    ) -> None:
        self._store = store
        self._uid = uid
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._worker = SnapshotWorker(uid)
        self._confirmed = ConfirmedFiles()

    def begin(self, request: SnapshotRequest) -> SnapshotFuture:
        base = self._confirmed.begin(request.checkpoint_id)
        if request.form is SnapshotForm.NATIVE:
            base = {}
        content = request.content()  # before the freeze: it may put pending tables into the store
        files = self._store.files
        if files is not None and files.is_preferred and request.form in _OWN_FORMS:
            there = files.freeze()
            write = partial(self._write_files, request, content, there, base, files.format)
            return self._submit(request, write, there.frozen.release)
        frozen = self._store.freeze()
        tables = [
            TableToWrite(
                table.info,
                partial(frozen.blocks, table.spec, table.keep_from_ms),
                None if is_raw(table.spec) else table.spec.values,
            )
            for table in content.tables
        ]
        tables += _pending(content)
        is_canonical = request.form is SnapshotForm.CANONICAL
        writes = self._write_canonical if is_canonical else self._write_entries
        return self._submit(request, partial(writes, request, tables), frozen.release)

    def build_on(self, restored: Restoration) -> None:
        self._confirmed = ConfirmedFiles(restored.files)

    def completed(self, checkpoint_id: int) -> None:
        self._confirmed.completed(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        self._confirmed.aborted(checkpoint_id)

    def close(self) -> None:
        self._worker.close()

    def _submit(
        self,
        request: SnapshotRequest,
        write: Callable[[SnapshotFuture], StateSnapshot],
        release: Callable[[], None],
    ) -> SnapshotFuture:
        def ended(stop: Callable[[], bool]) -> None:
            release()
            self._store.settle(stop)

        return self._worker.submit(write, ended, is_savepoint=request.is_savepoint)

    def _write_entries(
        self, request: SnapshotRequest, tables: Sequence[TableToWrite], future: SnapshotFuture
    ) -> StateSnapshot:
        with self._segments(request) as writer:
            handles, infos = write_tables(writer, tables, future)
            future.check()
        return self._snapshot(ENTRIES_KIND, handles, self._attributes(request, infos), request)

    def _write_canonical(
        self, request: SnapshotRequest, tables: Sequence[TableToWrite], future: SnapshotFuture
    ) -> StateSnapshot:
        writer = CanonicalWriter(
            uid=self._uid,
            key_groups=self._key_groups,
            max_parallelism=self._max_parallelism,
            keys=request.keys,
            target=request.target,
            checkpoint_id=request.checkpoint_id,
        )
        written = writer.write(tables, future)
        return msgspec.structs.replace(written, begun_from=request.begun_from)

    def _write_files(
        self,
        request: SnapshotRequest,
        content: SnapshotContent,
        there: TablesInFiles,
        base: Mapping[str, Handle],
        file_format: str,
        future: SnapshotFuture,
    ) -> StateSnapshot:
        number, compression = request.checkpoint_id, request.compression
        with self._segments(request) as writer:
            handles, infos = write_tables(writer, _pending(content), future)
            shared = partial(
                request.target.shared_segments, number, self._uid, compression=compression
            )
            lasting, others = write_files(
                there.frozen.files, base, own=writer, shared=shared, check=future.check
            )
            future.check()
        if request.form is SnapshotForm.OWN:
            self._confirmed.written(number, lasting)
        handles |= {handle_name(file): handle for file, handle in (others | lasting).items()}
        attributes = FilesAttributes(
            **msgspec.structs.asdict(self._attributes(request, infos)),
            format=file_format,
            files=tuple(
                KeptInfo(info=table.info, kept=there.tables[table.spec.name])
                for table in content.tables
            ),
        )
        return self._snapshot(FILES_KIND, handles, attributes, request)

    def _segments(self, request: SnapshotRequest) -> Segments:
        return request.target.segments(
            request.checkpoint_id, self._uid, compression=request.compression
        )

    def _attributes(
        self, request: SnapshotRequest, infos: tuple[TableInfo, ...]
    ) -> KeyedAttributes:
        return KeyedAttributes(
            uid=self._uid, max_parallelism=self._max_parallelism, keys=request.keys, tables=infos
        )

    def _snapshot(
        self,
        kind: str,
        handles: dict[str, Handle],
        attributes: KeyedAttributes,
        request: SnapshotRequest,
    ) -> StateSnapshot:
        return keyed_snapshot(
            kind, attributes, handles, self._key_groups, begun_from=request.begun_from
        )


def _pending(content: SnapshotContent) -> list[TableToWrite]:
    return [TableToWrite(pending.info, pending.blocks) for pending in content.pending]
