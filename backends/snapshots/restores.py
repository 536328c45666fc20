"""Reading snapshots of keyed state: their description, and the blocks of some key groups.

State is loaded when the job declares it by name, since only then its types are known. Until then it
is pending. State that is never declared is copied undecoded into the next snapshot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from holdfast.backends.arrow.rows import TypedTable
from holdfast.backends.blocks.block import Block, decode_blocks
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.canonical import typed_table
from holdfast.backends.snapshots.file_uploads import FilesAttributes
from holdfast.backends.snapshots.logs import LOGGED_KIND, LoggedAttributes, PendingChanges, base_of
from holdfast.backends.snapshots.neutral import (
    ENTRIES_KIND,
    FILES_KIND,
    PARQUET_KIND,
    KeyedAttributes,
    TableInfo,
    handle_of,
    read_attributes,
    storage_for,
)
from holdfast.backends.snapshots.parquet import read_part
from holdfast.backends.snapshots.regrouping import Regrouping, in_order
from holdfast.backends.tables.contract import TableSpec
from holdfast.backends.values.type_descriptions import are_alike
from holdfast.storage import Corrupt, Handle, Invalid, StateFolder, StateSnapshot

__all__ = [
    "KEYED_KINDS",
    "FilesToRestore",
    "PendingEntries",
    "PendingOutside",
    "PendingTable",
    "Restored",
    "attributes_of",
    "can_be_regrouped",
    "has_some_of",
    "read_snapshots",
]


@dataclass(frozen=True, slots=True)
class _Source:
    """One table in one snapshot; `typed` describes its files, if they are Parquet."""

    info: TableInfo
    handles: dict[str, Handle]
    typed: TypedTable | None = None


class PendingTable(ABC):
    """A table of the snapshots that the job has not declared yet.

    There are several of one name if some slots had declared a state with its new types, and others
    had not declared it yet.
    """

    info: TableInfo

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows, so that its types do not matter.

        Slots that have no rows of a state and have not declared it keep describing it by its old
        types, beside tables that other slots have written in newer types.
        """
        return not any(block.count for block in self.blocks())

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """The blocks, with the rows of the wanted key groups."""

    def claim(self, spec: TableSpec) -> bool:
        """Turn it into the table of this spec, if its bytes fit; False if it must be loaded."""
        del spec
        return False

    @abstractmethod
    def loaded(self) -> None:
        """Release it: all its blocks have been loaded."""


class PendingOutside(PendingTable):
    """A pending table outside of the job's store."""

    @abstractmethod
    def hold(self) -> None:
        """Read its blocks into memory: its source may be deleted from now on."""


@dataclass(slots=True)
class PendingEntries(PendingOutside):
    """A pending table in storage, in the neutral or the canonical form.

    Its blocks are in order of key group. With `regrouping` it was written with another max
    parallelism, and only the rows within each block are in that order.
    """

    info: TableInfo
    storage: StateFolder
    key_groups: KeyGroupRange
    sources: list[_Source] = field(default_factory=list)
    held: list[Block] | None = None
    regrouping: Regrouping | None = None

    @property
    def is_empty(self) -> bool:
        return not any(source.info.segments for source in self.sources)

    def blocks(self) -> Iterator[Block]:
        if self.held is not None:
            yield from self.held
            return
        wanted, regrouping = self.key_groups, self.regrouping
        for block in self._stored():
            if regrouping is None:
                yield from block.within(wanted.first, wanted.last)
            else:
                yield from regrouping.regrouped(block, wanted)

    def loaded(self) -> None:
        self.held = None

    def hold(self) -> None:
        if self.held is None:
            blocks = list(self.blocks())
            if self.regrouping is None:  # sources come slot by slot, each with its own key groups
                self.held = sorted(blocks, key=lambda block: int(block.group_array[0]))
            else:  # in their order: a list may continue in the next block
                self.held = in_order(blocks)

    def _stored(self) -> Iterator[Block]:
        """The blocks in storage; sources of one form are read together."""
        where = f"{self.storage.url}: table {self.info.name!r}"
        regrouping, wanted = self.regrouping, self.key_groups
        groups = None if regrouping else (wanted.first, wanted.last)
        listed = [
            (source, segment)
            for source in self.sources
            for segment in source.info.segments
            if regrouping or wanted.meets(segment.first_group, segment.last_group)
        ]
        for typed, found in groupby(listed, lambda each: each[0].typed):
            if typed is None:
                handles = [
                    handle_of(source.handles, segment.handle, where) for source, segment in found
                ]
                for pieces in self.storage.stream_all(handles):
                    yield from decode_blocks(pieces, where=where)
                continue
            for source, segment in found:
                handle = handle_of(source.handles, segment.handle, where)
                yield from read_part(self.storage, handle, typed, rows=segment.rows, groups=groups)


@dataclass(frozen=True, slots=True)
class FilesToRestore:
    """A snapshot that is files of a store."""

    snapshot: StateSnapshot
    attributes: FilesAttributes
    key_groups: KeyGroupRange

    @property
    def backend(self) -> str:
        """The name of the backend that wrote the files."""
        return self.attributes.format.partition("/")[0]


@dataclass(slots=True)
class Restored:
    """The content of snapshots, by their descriptions."""

    keys: dict[str, object] | None = None
    """The description of keys."""
    tables: dict[str, list[PendingEntries]] = field(default_factory=dict)
    """Tables in the neutral or the canonical form, by name."""
    files: list[FilesToRestore] = field(default_factory=list)
    changes: dict[str, list[PendingChanges]] = field(default_factory=dict)
    """Logged changes of tables, by name."""


def can_be_regrouped(snapshot: StateSnapshot) -> bool:
    """Whether it can be restored at another max parallelism."""
    return snapshot.key_groups is None or snapshot.kind == PARQUET_KIND


def has_some_of(snapshot: StateSnapshot, key_groups: KeyGroupRange, max_parallelism: int) -> bool:
    """Whether a snapshot of keyed state is needed to restore these key groups."""
    if snapshot.key_groups is None:
        return False
    if can_be_regrouped(snapshot) and snapshot.attributes["max_parallelism"] != max_parallelism:
        return True
    return bool(KeyGroupRange(*snapshot.key_groups).intersection(key_groups))


def read_snapshots(
    snapshots: Sequence[StateSnapshot],
    storage: StateFolder | None,
    *,
    uid: str,
    key_groups: KeyGroupRange,
    max_parallelism: int,
) -> Restored:
    """The content of these snapshots for the key groups; nothing is read from storage yet.

    Raises:
        Invalid: they are no snapshots of keyed state of this operator, or do not fit each other.
        Corrupt: one does not have what its attributes describe.
    """
    restored = Restored()
    seen: list[KeyGroupRange] = []
    wanted = key_groups
    for snapshot in snapshots:
        folder = storage_for(storage, f"operator {uid!r}")
        reader = _Reader(restored, folder, uid, key_groups, max_parallelism)
        attributes = reader.read(snapshot)
        _check_apart(snapshot, seen, uid)
        if attributes.max_parallelism != max_parallelism:  # a key of any group may be this slot's
            wanted = KeyGroupRange(0, attributes.max_parallelism - 1)
    _check_alike(snapshots, uid)
    if snapshots:
        _check_whole(seen, wanted, uid)
    return restored


@dataclass(frozen=True, slots=True)
class _Reader:
    """Adds the content of a snapshot to `restored`."""

    restored: Restored
    storage: StateFolder
    uid: str
    key_groups: KeyGroupRange
    max_parallelism: int

    def read(self, snapshot: StateSnapshot) -> KeyedAttributes:
        """Add a snapshot; answers its attributes."""
        attributes = attributes_of(snapshot, self.uid)
        _check_fit(snapshot, attributes, self.uid, self.max_parallelism)
        self._check_keys(attributes)
        for info in attributes.tables:
            pending = _alike(self.restored.tables.setdefault(info.name, []), info)
            if pending is None:
                pending = PendingEntries(info, self.storage, self.key_groups)
                self.restored.tables[info.name].append(pending)
            pending.sources.append(self._source(snapshot, attributes, info, pending))
        match attributes:
            case FilesAttributes() if snapshot.key_groups is not None:
                groups = KeyGroupRange(*snapshot.key_groups)
                if groups.intersection(self.key_groups):
                    self.restored.files.append(FilesToRestore(snapshot, attributes, groups))
            case LoggedAttributes():
                self.read(base_of(snapshot, attributes))
                self._read_logs(snapshot, attributes)
        return attributes

    def _source(
        self,
        snapshot: StateSnapshot,
        attributes: KeyedAttributes,
        info: TableInfo,
        pending: PendingEntries,
    ) -> _Source:
        typed = None
        written, keys = attributes.max_parallelism, attributes.keys
        if snapshot.kind == PARQUET_KIND and info.segments:
            typed = typed_table(self.uid, written, keys, info)
            if keys is not None and written != self.max_parallelism:
                pending.regrouping = Regrouping(keys, self.max_parallelism)
        return _Source(info, snapshot.handles, typed)

    def _read_logs(self, snapshot: StateSnapshot, attributes: LoggedAttributes) -> None:
        infos: dict[str, TableInfo] = {}
        for log in attributes.logs:
            info = log.info
            if not infos.setdefault(info.name, info).has_same_rows(info):
                raise Corrupt(
                    f"a snapshot of operator {self.uid!r} has logs of one table that have other "
                    "rows",
                    where=f"table {info.name!r}",
                    expected=str(infos[info.name]),
                    found=str(info),
                    fix="Restore another checkpoint",
                )
            # Logs stay in order: one in other types continues where the one before ends.
            pending = self.restored.changes.setdefault(info.name, [])
            if not pending or not pending[-1].info.is_alike(info):
                pending.append(PendingChanges(info, self.storage, self.key_groups))
            pending[-1].add(log, snapshot.handles)

    def _check_keys(self, attributes: KeyedAttributes) -> None:
        if attributes.keys is None:
            return
        keys = self.restored.keys
        if keys is not None and not are_alike(keys, attributes.keys):
            raise Invalid(
                f"snapshots of operator {self.uid!r} differ in the type of keys",
                expected=str(keys),
                found=str(attributes.keys),
            )
        self.restored.keys = attributes.keys


def _alike(pending: Sequence[PendingEntries], info: TableInfo) -> PendingEntries | None:
    """The pending table that was written in the same types."""
    return next((each for each in pending if each.info.is_alike(info)), None)


_SHAPES: dict[str, type[KeyedAttributes]] = {
    ENTRIES_KIND: KeyedAttributes,
    PARQUET_KIND: KeyedAttributes,
    FILES_KIND: FilesAttributes,
    LOGGED_KIND: LoggedAttributes,
}


KEYED_KINDS = frozenset(_SHAPES)
"""All kinds of snapshots of keyed state."""


def attributes_of(snapshot: StateSnapshot, uid: str) -> KeyedAttributes:
    """The attributes of a snapshot of keyed state.

    Raises:
        Invalid: it is of another kind.
        Corrupt: it does not have the shape of its kind.
    """
    return read_attributes(snapshot, _SHAPES, f"operator {uid!r}")


def _check_fit(
    snapshot: StateSnapshot, attributes: KeyedAttributes, uid: str, max_parallelism: int
) -> None:
    if attributes.uid != uid:
        raise Invalid(
            "a snapshot belongs to another operator", expected=f"uid {uid!r}", found=attributes.uid
        )
    if snapshot.key_groups is not None and snapshot.key_groups[1] >= attributes.max_parallelism:
        raise Corrupt(
            f"a snapshot of operator {uid!r} has key groups that do not exist",
            expected=f"key groups below {attributes.max_parallelism}, its max parallelism",
            found="key groups {} to {}".format(*snapshot.key_groups),
            fix="Restore another checkpoint",
        )
    if attributes.max_parallelism != max_parallelism and snapshot.kind != PARQUET_KIND:
        raise Invalid(
            f"the max parallelism of operator {uid!r} is not that of its snapshot",
            expected=str(attributes.max_parallelism),
            found=str(max_parallelism),
            fix="It decides to which key group a key belongs: keep it, or restore from a canonical "
            "savepoint",
        )


def _check_alike(snapshots: Sequence[StateSnapshot], uid: str) -> None:
    """Check that all snapshots have one max parallelism."""
    found = sorted({str(each.attributes.get("max_parallelism")) for each in snapshots})
    if len(found) > 1:
        raise Invalid(
            f"the snapshots of operator {uid!r} differ in max parallelism",
            expected="the snapshots of all slots of one savepoint",
            found=" and ".join(found),
        )


def _check_apart(snapshot: StateSnapshot, seen: list[KeyGroupRange], uid: str) -> None:
    """Add the snapshot's key groups to those seen; they must not overlap."""
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
    """Check that the snapshots have all wanted key groups."""
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
