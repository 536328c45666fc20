"""Reading snapshots of keyed state: what is in them, and the blocks of some key groups.

State is loaded when the job asks for it by name, since only then its types are known. Until then it
is pending; what nobody asks for stays so, and goes unread into the next snapshot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from holdfast.backends.entries import Block, decode_blocks
from holdfast.backends.file_snapshots import FilesAttributes
from holdfast.backends.key_groups import KeyGroupRange
from holdfast.backends.logs import LOGGED_KIND, LoggedAttributes, PendingChanges, base_of
from holdfast.backends.snapshots import ENTRIES_KIND, FILES_KIND, KeyedAttributes, TableInfo
from holdfast.backends.tables import TableSpec
from holdfast.storage import Corrupt, Handle, Invalid, JobStorage, StateSnapshot

__all__ = ["FilesToRestore", "PendingEntries", "PendingTable", "Restored", "read_snapshots"]


@dataclass(frozen=True, slots=True)
class _Source:
    """One table in one snapshot."""

    info: TableInfo
    handles: dict[str, Handle]


class PendingTable(ABC):
    """A table that was in the snapshots and that the job has not asked for yet.

    There are several of one name where some slots had asked for a state by its new types, and
    others had not asked for it yet.
    """

    info: TableInfo

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """The blocks, with the rows of the key groups that are wanted."""

    @abstractmethod
    def claim(self, spec: TableSpec) -> bool:
        """Make it the table of this spec, with which it was written; False if it must be loaded."""

    @abstractmethod
    def loaded(self) -> None:
        """All blocks are where they are wanted: it is needed no more."""


@dataclass(slots=True)
class PendingEntries(PendingTable):
    """One that is in storage still, in the neutral form; its blocks are in order of key group."""

    info: TableInfo
    storage: JobStorage
    key_groups: KeyGroupRange
    sources: list[_Source] = field(default_factory=list)
    held: list[Block] | None = None

    def blocks(self) -> Iterator[Block]:
        if self.held is not None:
            yield from self.held
            return
        where = f"{self.storage.url}: table {self.info.name!r}"
        first, last = self.key_groups.first, self.key_groups.last
        wanted = [
            self._handle(source, segment.handle, where)
            for source in self.sources
            for segment in source.info.segments
            if segment.first_group <= last and segment.last_group >= first
        ]
        for pieces in self.storage.stream_all(wanted):
            for block in decode_blocks(pieces, where=where):
                yield from block.within(first, last)

    def claim(self, spec: TableSpec) -> bool:
        return False

    def loaded(self) -> None:
        self.held = None

    def _handle(self, source: _Source, name: str, where: str) -> Handle:
        if name not in source.handles:
            raise Corrupt(
                "a snapshot does not hold what its attributes say",
                where=where,
                expected=f"a handle {name!r}",
                found="no such handle",
                fix="Restore another checkpoint",
            )
        return source.handles[name]

    def hold(self) -> None:
        """Keep the blocks in memory: the files may be deleted from now on."""
        if self.held is None:
            self.held = sorted(self.blocks(), key=lambda block: int(block.group_array[0]))


@dataclass(frozen=True, slots=True)
class FilesToRestore:
    """A snapshot that is files of a store."""

    snapshot: StateSnapshot
    attributes: FilesAttributes
    key_groups: KeyGroupRange


@dataclass(slots=True)
class Restored:
    """What the snapshots say."""

    keys: dict[str, object] | None = None
    """The description of keys."""
    tables: dict[str, list[PendingEntries]] = field(default_factory=dict)
    """Those in the neutral form, by name."""
    files: list[FilesToRestore] = field(default_factory=list)
    changes: dict[str, list[PendingChanges]] = field(default_factory=dict)
    """What has changed in tables since, by name."""


def read_snapshots(
    snapshots: Sequence[StateSnapshot],
    storage: JobStorage | None,
    *,
    uid: str,
    key_groups: KeyGroupRange,
    max_parallelism: int,
) -> Restored:
    """What these snapshots hold of the key groups; nothing is read from storage yet.

    Raises:
        Invalid: they are no snapshots of keyed state of this operator, or do not fit each other.
        Corrupt: one does not have what it says.
    """
    restored = Restored()
    seen: list[KeyGroupRange] = []
    for snapshot in snapshots:
        if storage is None:
            raise Invalid(
                f"operator {uid!r} is restored without a storage",
                expected="the job's folder that the snapshot was written to",
                fix="Pass storage=",
            )
        reader = _Reader(restored, storage, uid, key_groups, max_parallelism)
        reader.read(snapshot)
        _check_apart(snapshot, seen, uid)
    if snapshots:
        _check_whole(seen, key_groups, uid)
    return restored


@dataclass(frozen=True, slots=True)
class _Reader:
    """Adds to `restored` what a snapshot says."""

    restored: Restored
    storage: JobStorage
    uid: str
    key_groups: KeyGroupRange
    max_parallelism: int

    def read(self, snapshot: StateSnapshot) -> None:
        attributes = _attributes(snapshot, self.uid)
        _check_fit(snapshot, attributes, self.uid, self.max_parallelism)
        self._check_keys(attributes)
        for info in attributes.tables:
            pending = _alike(self.restored.tables.setdefault(info.name, []), info)
            if pending is None:
                pending = PendingEntries(info, self.storage, self.key_groups)
                self.restored.tables[info.name].append(pending)
            pending.sources.append(_Source(info, snapshot.handles))
        match attributes:
            case FilesAttributes() if snapshot.key_groups is not None:
                groups = KeyGroupRange(*snapshot.key_groups)
                if groups.intersection(self.key_groups):
                    self.restored.files.append(FilesToRestore(snapshot, attributes, groups))
            case LoggedAttributes():
                self.read(base_of(snapshot, attributes))
                self._read_logs(snapshot, attributes)

    def _read_logs(self, snapshot: StateSnapshot, attributes: LoggedAttributes) -> None:
        types: dict[str, TableInfo] = {}
        for log in attributes.logs:
            if not types.setdefault(log.info.name, log.info).is_alike(log.info):
                raise Corrupt(
                    f"a snapshot of operator {self.uid!r} has logs of one table in other types",
                    where=f"table {log.info.name!r}",
                    expected=str(types[log.info.name]),
                    found=str(log.info),
                    fix="Restore another checkpoint",
                )
            changes = _alike(self.restored.changes.setdefault(log.info.name, []), log.info)
            if changes is None:
                changes = PendingChanges(log.info, self.storage, self.key_groups)
                self.restored.changes[log.info.name].append(changes)
            changes.add(log, snapshot.handles)

    def _check_keys(self, attributes: KeyedAttributes) -> None:
        if attributes.keys is None:
            return
        keys = self.restored.keys
        if keys is not None and keys != attributes.keys:
            raise Invalid(
                f"snapshots of operator {self.uid!r} differ in the type of keys",
                expected=str(keys),
                found=str(attributes.keys),
            )
        self.restored.keys = attributes.keys


_Pending = TypeVar("_Pending", PendingEntries, PendingChanges)


def _alike(pending: Sequence[_Pending], info: TableInfo) -> _Pending | None:
    """The one that was written in the same types."""
    return next((each for each in pending if each.info.is_alike(info)), None)


_SHAPES: dict[str, type[KeyedAttributes]] = {
    ENTRIES_KIND: KeyedAttributes,
    FILES_KIND: FilesAttributes,
    LOGGED_KIND: LoggedAttributes,
}


def _attributes(snapshot: StateSnapshot, uid: str) -> KeyedAttributes:
    shape = _SHAPES.get(snapshot.kind)
    if shape is None:
        raise Invalid(
            f"operator {uid!r} cannot be restored from a snapshot of this kind",
            expected=" or ".join(_SHAPES),
            found=snapshot.kind,
        )
    try:
        return msgspec.convert(snapshot.attributes, shape)
    except msgspec.ValidationError as error:
        raise Corrupt(
            f"the attributes of a snapshot of operator {uid!r} have not the shape of their kind",
            expected=snapshot.kind,
            found=str(error),
        ) from error


def _check_fit(
    snapshot: StateSnapshot, attributes: KeyedAttributes, uid: str, max_parallelism: int
) -> None:
    if attributes.uid != uid:
        raise Invalid(
            "a snapshot belongs to another operator", expected=f"uid {uid!r}", found=attributes.uid
        )
    if snapshot.key_groups is not None and snapshot.key_groups[1] >= attributes.max_parallelism:
        raise Corrupt(
            f"a snapshot of operator {uid!r} has key groups that there are not",
            expected=f"key groups below {attributes.max_parallelism}, its max parallelism",
            found="key groups {} to {}".format(*snapshot.key_groups),
            fix="Restore another checkpoint",
        )
    if attributes.max_parallelism != max_parallelism:
        raise Invalid(
            f"the max parallelism of operator {uid!r} is not that of its snapshot",
            expected=str(attributes.max_parallelism),
            found=str(max_parallelism),
            fix="It decides to which key group a key belongs: keep it, or restore from a savepoint",
        )


def _check_apart(snapshot: StateSnapshot, seen: list[KeyGroupRange], uid: str) -> None:
    """Add the snapshot's key groups to those of the others."""
    if snapshot.key_groups is None:
        return
    groups = KeyGroupRange(*snapshot.key_groups)
    both = next((other for other in seen if other.intersection(groups)), None)
    if both is not None:
        raise Invalid(
            f"two snapshots of operator {uid!r} have the same key groups",
            expected="each key group in one snapshot, or its lists would be twice as long",
            found=f"key groups {both} and {groups}",
        )
    seen.append(groups)


def _check_whole(seen: list[KeyGroupRange], wanted: KeyGroupRange, uid: str) -> None:
    """Make sure that the snapshots have all key groups that are wanted."""
    reached = wanted.first
    for groups in sorted(seen, key=lambda each: each.first):
        if groups.first <= reached <= groups.last:
            reached = groups.last + 1
    if reached <= wanted.last:
        raise Invalid(
            f"the snapshots of operator {uid!r} do not have all key groups",
            expected=f"key groups {wanted}",
            found=f"none that has key group {reached}",
            fix="Restore from the snapshots of all slots of a checkpoint",
        )
