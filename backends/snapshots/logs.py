"""Snapshots that are a base and a log: another snapshot, and what has changed since.

Any backend can be restored from one if it can be from the base. The log is in the neutral form, so
the base is restored first, and the changes are applied to it as they were made.

Replay is here and not in the room of the changelog, so a changelog is switched off by leaving it
out, and readers of snapshots need to know nothing of it. Base and log of a table are in the same
types: where a state is asked for in others, the next checkpoint has a new base.
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
    not_as_described,
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
"""What the names of the base's handles begin with."""


class LogSegment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of a log: some sets of changes, from the number `first` on."""

    handle: str
    first: int
    sets: int
    first_group: int
    last_group: int
    rows: int


class LogInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was logged of one table: how it is written, and the pieces in their order.

    `log` is a word that no other log has. One table may have several, one after the other, of
    which each goes on where the one before has ended.
    """

    info: TableInfo
    log: str
    segments: tuple[LogSegment, ...]


class LoggedAttributes(KeyedAttributes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attributes of a snapshot that is a base and a log; its own `tables` are none."""

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
    """What was logged of a table, in the same types, and the job has not asked for yet."""

    info: TableInfo
    storage: StateFolder
    key_groups: KeyGroupRange
    sources: list[_Source] = field(default_factory=list)

    def add(self, log: LogInfo, handles: Mapping[str, Handle]) -> None:
        """A log of one more snapshot, or one that goes on where the last one has ended.

        Raises:
            Corrupt: pieces of it are missing, or not in their order.
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
            if segment.handle not in handles:
                expected = f"a handle {segment.handle!r}"
                raise not_as_described(where, expected=expected, found="no such handle")
        self.sources.append(_Source(log, handles))

    def changes(self) -> Iterator[Change]:
        """The changes in the key groups that are wanted, in their order.

        Raises:
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer.
        """
        groups = self.key_groups
        for source in self.sources:
            wanted = [each for each in source.log.segments if self._is_wanted(each)]
            contents = self.storage.read_all([source.handles[each.handle] for each in wanted])
            for segment, content in zip(wanted, contents, strict=True):
                head = SetHead(source.log.log, self.info.name, segment.first)
                where = f"{self.storage.url}: log of table {self.info.name!r}"
                where += f", piece {segment.handle!r}"
                for change in decode_sets((content,), head, segment.sets, where=where):
                    for block in change.block.within(groups.first, groups.last):
                        yield Added(block) if isinstance(change, Added) else Removed(block)

    def _is_wanted(self, segment: LogSegment) -> bool:
        wanted = self.key_groups
        return segment.first_group <= wanted.last and segment.last_group >= wanted.first
