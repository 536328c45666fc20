"""The neutral form of snapshots: blocks of each table in segments, and their description.

A segment ends where a key group ends, so a restore of some key groups fetches little else. Here are
also what all forms share: where snapshots are written to, and their future.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import msgspec
import numpy as np

from holdfast.backends.blocks.block import Block, encode_block
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.values.codec import ValueCodec
from holdfast.backends.values.type_descriptions import Schema, are_alike
from holdfast.storage import (
    Buffer,
    Corrupt,
    Handle,
    Invalid,
    SegmentStream,
    StateFolder,
    StateSnapshot,
)

__all__ = [
    "ENTRIES_KIND",
    "FILES_KIND",
    "PARQUET_KIND",
    "KeyedAttributes",
    "SegmentInfo",
    "Segments",
    "SnapshotForm",
    "SnapshotFuture",
    "SnapshotTarget",
    "TableInfo",
    "TableToWrite",
    "handle_of",
    "keyed_snapshot",
    "keys_not_described",
    "not_as_described",
    "read_attributes",
    "restoring",
    "storage_for",
    "write_table",
    "write_tables",
]

ENTRIES_KIND = "holdfast.keyed-entries/1"
"""The kind of a snapshot in the backend-neutral form."""

FILES_KIND = "holdfast.keyed-files/1"
"""The kind of a snapshot that is files of the store."""

PARQUET_KIND = "holdfast.keyed-parquet/1"
"""The kind of a snapshot in the canonical form: typed columns in Parquet files."""

# A restore of some key groups fetches whole segments; each also has a line in the metadata.
_SEGMENT_BYTES = 4 * 1024 * 1024
# How long a snapshot that waits for another one may not notice that it was cancelled.
_LOOK_S = 0.05
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class SnapshotForm(Enum):
    """The form in which a snapshot is written."""

    OWN = "own"
    """As the backend prefers; it may refer to files of earlier snapshots."""
    NATIVE = "native"
    """Likewise, but complete: it refers to no other snapshot, and no later one refers to it."""
    NEUTRAL = "neutral"
    """As entries that any backend can be restored from; refers to nothing."""
    CANONICAL = "canonical"
    """As Parquet files, one folder a state, that any backend can be restored from, at any max
    parallelism, and that any tool reads (docs/savepoint-format.md); refers to nothing."""


class Segments(Protocol):
    """Where segments are written to, as a context manager; `SegmentWriter` is one."""

    def add(self, data: Buffer) -> Handle:
        """Write one segment that is in memory."""
        ...

    def stream(self) -> SegmentStream:
        """Begin a segment that is written in pieces."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class SnapshotTarget(Protocol):
    """Where a snapshot is written: a job's folder, or a slot's wrapper of it."""

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        """The writer of segments of this checkpoint; they are valid after a normal exit."""
        ...

    def shared_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        """The writer of segments that later checkpoints may refer to, too.

        Each call begins another file; its segments are valid after a normal exit. May be called by
        any thread, and used by several at once.
        """
        ...

    def log_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        """The writer of small segments that later checkpoints may refer to, too.

        All writers of a slot may share one file: segments are valid once the slot has acknowledged
        the checkpoint. So a later checkpoint may refer to them when this one is known to be
        completed, and must write them again before that. Any thread.
        """
        ...

    def table_file(self, checkpoint_id: int, path: str) -> Segments:
        """Begin the file of this name, which has exactly one segment: a Parquet file.

        The name is legal, within the folder of this checkpoint or savepoint, and used by one writer
        only. The file is valid after a normal exit. Any thread, several at once.
        """
        ...


class SegmentInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One segment: the name of its handle, and what is in it."""

    handle: str
    first_group: int
    last_group: int
    rows: int


class TableInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table: how it is written, and its segments in ascending order of key group."""

    name: str
    kind: str
    namespaces: Schema | None = None
    map_keys: Schema | None = None
    values: Schema
    stamped: bool = False
    segments: tuple[SegmentInfo, ...] = ()

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    def is_alike(self, other: TableInfo) -> bool:
        """Whether it is written in the same types, under the same name.

        A renamed class is the same type, since no bytes contain its name.
        """
        same = (self.name, self.stamped) == (other.name, other.stamped)
        return same and self.has_same_rows(other) and are_alike(self.values, other.values)

    def has_same_rows(self, other: TableInfo) -> bool:
        """Whether it is of the same kind, with namespaces and map keys of the same types."""
        return (
            self.kind == other.kind
            and are_alike(self.namespaces, other.namespaces)
            and are_alike(self.map_keys, other.map_keys)
        )


@dataclass(frozen=True, slots=True)
class TableToWrite:
    """A table to be written, with its rows by ascending key group.

    `codec` is that of its values, if the job has declared the state. Without it, `whole` says that
    all records are known to have all their fields. Both count for the canonical form only.
    """

    info: TableInfo
    blocks: Callable[[], Iterator[Block]]
    codec: ValueCodec[Any] | None = None
    whole: bool = False


class KeyedAttributes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attributes of a snapshot of keyed state in the neutral form."""

    uid: str
    max_parallelism: int
    keys: Schema | None
    tables: tuple[TableInfo, ...]


def keyed_snapshot(
    kind: str,
    attributes: KeyedAttributes,
    handles: Mapping[str, Handle],
    key_groups: KeyGroupRange,
    *,
    begun_from: int | None = None,
) -> StateSnapshot:
    """A snapshot of keyed state in some key groups."""
    return StateSnapshot(
        kind=kind,
        handles=dict(handles),
        attributes=msgspec.to_builtins(attributes),
        key_groups=(key_groups.first, key_groups.last),
        begun_from=begun_from,
    )


def read_attributes(
    snapshot: StateSnapshot, kinds: Mapping[str, type[_Struct]], of: str
) -> _Struct:
    """The attributes of a snapshot, in the shape of its kind; `of` names the operator.

    Raises:
        Invalid: it is of none of these kinds.
        Corrupt: its attributes do not have that shape.
    """
    shape = kinds.get(snapshot.kind)
    if shape is None:
        raise Invalid(
            f"{of} cannot be restored from a snapshot of this kind",
            expected=" or ".join(kinds),
            found=snapshot.kind,
        )
    try:
        return msgspec.convert(snapshot.attributes, shape)
    except msgspec.ValidationError as error:
        raise Corrupt(
            f"the attributes of a snapshot of {of} do not have the shape of their kind",
            expected=snapshot.kind,
            found=str(error),
        ) from error


@contextmanager
def restoring(what: str) -> Iterator[None]:
    """Errors from inside say that `what`, some state of an operator, cannot be restored.

    State is read in the middle of a user's `open`, where nothing else names it. Partly loaded
    tables are dropped on such an error, so the backend stays usable.
    """
    try:
        yield
    except (Corrupt, Invalid) as error:
        raise error.replaced(what=f"{what} cannot be restored: {error.what}") from error


def storage_for(storage: StateFolder | None, of: str) -> StateFolder:
    """The storage to restore from, or `Invalid` if there is none; `of` names the operator."""
    if storage is None:
        raise Invalid(
            f"{of} is restored without a storage",
            expected="the job's folder that the snapshots were written to",
            fix="Pass storage=",
        )
    return storage


def handle_of(handles: Mapping[str, Handle], name: str, where: str) -> Handle:
    """The handle of a segment, or `Corrupt` if there is none of this name."""
    if name not in handles:
        raise not_as_described(where, expected=f"a handle {name!r}", found="no such handle")
    return handles[name]


def not_as_described(where: str, *, expected: str, found: str) -> Corrupt:
    """The error of a snapshot that lacks what its attributes list."""
    return Corrupt(
        "a snapshot does not hold what its attributes say",
        where=where,
        expected=expected,
        found=found,
        fix="Restore another checkpoint",
    )


def keys_not_described(where: str) -> Corrupt:
    """The error of a snapshot that has state, but not the type of its keys."""
    return Corrupt(
        "a snapshot has state and does not say of which type its keys are",
        where=where,
        fix="Restore another checkpoint",
    )


class SnapshotFuture(Future[StateSnapshot]):
    """A snapshot in progress. Unlike other futures it can be cancelled while it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._given_up = threading.Event()

    def cancel(self) -> bool:
        """Cancel the snapshot, and discard what was written of it. False if it is done."""
        self._given_up.set()
        return super().cancel() or not self.done()

    def check(self) -> None:
        """For the writer: stop here if the snapshot was cancelled.

        Raises:
            CancelledError: it was.
        """
        if self._given_up.is_set():
            raise CancelledError

    def wait_for(self, other: Future[Any]) -> None:
        """For the writer: wait until another future is done in any way.

        Raises:
            CancelledError: the snapshot was cancelled meanwhile.
        """
        while not other.done():
            self.check()
            wait((other,), _LOOK_S)


def write_table(
    writer: Segments,
    blocks: Iterable[Block],
    name: str,
    future: SnapshotFuture,
    *,
    first_number: int = 0,
) -> tuple[dict[str, Handle], tuple[SegmentInfo, ...]]:
    """Write the blocks of one table; answers the handles by name, and the content of each.

    Handles are numbered from `first_number` on. Rows without keys are said to be of key group 0.
    """
    handles: dict[str, Handle] = {}
    infos: list[SegmentInfo] = []
    remaining = _Remaining(blocks)
    while (block := remaining.take(None)) is not None:
        first = last = _last_group(block.rows(0, 1))
        rows = size_bytes = 0
        with writer.stream() as segment:
            while block is not None:
                future.check()
                data = encode_block(block)
                segment.write(data)
                size_bytes += len(data)
                rows += block.count
                last = _last_group(block)
                block = remaining.take(last if size_bytes >= _SEGMENT_BYTES else None)
        handle = f"{name}/{first_number + len(infos)}"
        handles[handle] = segment.handle
        infos.append(SegmentInfo(handle, first, last, rows))
    return handles, tuple(infos)


def write_tables(
    writer: Segments, tables: Sequence[TableToWrite], future: SnapshotFuture
) -> tuple[dict[str, Handle], tuple[TableInfo, ...]]:
    """Write tables in the neutral form; answers all handles, and their descriptions."""
    handles: dict[str, Handle] = {}
    infos: list[TableInfo] = []
    for number, table in enumerate(tables):
        name = table.info.name
        if any(name == other.name for other in infos):  # no table's name begins with _more/
            name = f"_more/{number}/{name}"
        its_handles, segments = write_table(writer, table.blocks(), name, future)
        handles |= its_handles
        infos.append(msgspec.structs.replace(table.info, segments=segments))
    return handles, tuple(infos)


def _last_group(block: Block) -> int:
    return int(block.group_array[-1]) if block.groups else 0


class _Remaining:
    """The blocks that have rows, taken one by one or up to the end of a key group."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks: Iterator[Block] = (block for block in blocks if block.count)
        self._rest: Block | None = None

    def take(self, group: int | None) -> Block | None:
        """The next block, or only its rows of one key group; None if there are none."""
        block, self._rest = self._rest or next(self._blocks, None), None
        if block is None or group is None or (block.groups and _last_group(block) == group):
            return block
        end = int(np.searchsorted(block.group_array, group, "right"))
        if end == 0:
            self._rest = block
            return None
        self._rest = block.rows(end, block.count)
        return block.rows(0, end)
