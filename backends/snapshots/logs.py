"""Snapshots that are a base and a log: another snapshot, and the changes since.

A backend that can be restored from the base can be restored from such a snapshot. The log is in the
neutral form: the base is restored first, then the changes are applied in their order.

Replay is here and not in the changelog room, so a changelog can be switched off, and readers of
snapshots do not depend on it. Base and log of a table are in the same types: when a state is
declared with other types, the next checkpoint has a new base.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from holdfast.backends.blocks.changes import Added, Change, Removed, SetHead, decode_sets
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.neutral import (
    ENTRIES_KIND,
    KeyedAttributes,
    TableInfo,
    handle_of,
)
from holdfast.storage import Corrupt, Handle, StateFolder, StateSnapshot

__all__ = [
    "BASE_HANDLES",
    "LOGGED_KIND",
    "LogInfo",
    "LogSegment",
    "LoggedAttributes",
    "PendingChanges",
    "base_of",
]

LOGGED_KIND = "holdfast.keyed-log/1"
"""The kind of a snapshot that is a base and a log."""

BASE_HANDLES = "_base/"
"""The prefix of the names of the base's handles."""


class LogSegment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of a log: some sets of changes, from the number `first` on."""

    handle: str
    first: int
    sets: int
    first_group: int
    last_group: int
    rows: int


class LogInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log of one table: how it is written, and its pieces in order.

    `log` is a unique word. One table may have several logs in sequence; each continues where the
    one before ends.
    """

    info: TableInfo
    log: str
    segments: tuple[LogSegment, ...]


class LoggedAttributes(KeyedAttributes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attributes of a snapshot that is a base and a log; its own `tables` are empty."""

    base_kind: str = ENTRIES_KIND
    base: dict[str, Any]
    """The attributes of the base."""
    logs: tuple[LogInfo, ...]


def base_of(snapshot: StateSnapshot, attributes: LoggedAttributes) -> StateSnapshot:
    """The base of a snapshot, as a snapshot."""
    return StateSnapshot(
        kind=attributes.base_kind,
        handles={
            name.removeprefix(BASE_HANDLES): handle
            for name, handle in snapshot.handles.items()
            if name.startswith(BASE_HANDLES)
        },
        attributes=attributes.base,
        slot=snapshot.slot,
        key_groups=snapshot.key_groups,
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """One log of a table in one snapshot."""

    log: LogInfo
    handles: Mapping[str, Handle]


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """Logged changes of a table, all in the same types, which the job has not declared yet."""

    info: TableInfo
    storage: StateFolder
    key_groups: KeyGroupRange
    sources: list[_Source] = field(default_factory=list)

    def add(self, log: LogInfo, handles: Mapping[str, Handle]) -> None:
        """Add the log of another snapshot, or one that continues the last one.

        Raises:
            Corrupt: pieces of it are missing, or out of order.
        """
        where = f"{self.storage.url}: log of table {self.info.name!r}"
        for before, after in pairwise(log.segments):
            if after.first != before.first + before.sets:
                raise Corrupt(
                    "the pieces of a log do not follow one another",
                    where=where,
                    expected=f"one that begins with set {before.first + before.sets}",
                    found=f"one that begins with set {after.first}",
                    fix="Restore another checkpoint",
                )
        for segment in log.segments:
            handle_of(handles, segment.handle, where)
        self.sources.append(_Source(log, handles))

    def changes(self) -> Iterator[Change]:
        """The changes in the wanted key groups, in order."""
        groups = self.key_groups
        for source in self.sources:
            wanted = [
                each
                for each in source.log.segments
                if groups.meets(each.first_group, each.last_group)
            ]
            contents = self.storage.read_all([source.handles[each.handle] for each in wanted])
            for segment, content in zip(wanted, contents, strict=True):
                head = SetHead(source.log.log, self.info.name, segment.first)
                where = f"{self.storage.url}: log of table {self.info.name!r}"
                where += f", piece {segment.handle!r}"
                for change in decode_sets((content,), head, segment.sets, where=where):
                    for block in change.block.within(groups.first, groups.last):
                        yield Added(block) if isinstance(change, Added) else Removed(block)
