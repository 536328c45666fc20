"""The tables of a snapshot, described from its attributes alone; no state is read.

`readers` reads the rows of these tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.backends.operator_state.snapshots import (
    OPERATOR_KINDS,
    OperatorAttributes,
    OperatorTable,
)
from holdfast.backends.snapshots.file_uploads import FilesAttributes
from holdfast.backends.snapshots.logs import LoggedAttributes, base_of
from holdfast.backends.snapshots.neutral import KeyedAttributes, TableInfo, read_attributes
from holdfast.backends.snapshots.restores import KEYED_KINDS, attributes_of
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import Handle, Invalid, StateSnapshot

__all__ = [
    "KeyedDescription",
    "KeyedTable",
    "UnkeyedTable",
    "describe_keyed",
    "operator_attributes",
    "unkeyed_tables",
]


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table of keyed state, over all slots.

    Several tables have one name if some slots had migrated a state to new types, and others had
    not accessed it yet. `other` numbers the tables of one name from 0.
    """

    info: TableInfo
    """How it is written, without segments."""
    other: int
    rows: int | None
    """The number of values, elements of lists, entries of maps or timers. None if only reading the
    state can tell."""
    size_bytes: int | None
    """Its bytes in storage; None if it shares files with other tables."""

    @property
    def name(self) -> str:
        """The name of the state; timers are `_timers/<name>/event` or `processing`."""
        return self.info.name


@dataclass(frozen=True, slots=True)
class KeyedDescription:
    """The keyed state of an operator, as the snapshots of all slots describe it."""

    uid: str
    max_parallelism: int
    keys: Schema | None
    """The type of keys; None if no slot had a key."""
    tables: tuple[KeyedTable, ...]
    """In order of their names."""

    def named(self, name: str) -> tuple[KeyedTable, ...]:
        return tuple(table for table in self.tables if table.name == name)


@dataclass(frozen=True, slots=True)
class UnkeyedTable:
    """A state without keys, or the part of it that has one of several types, over all slots."""

    info: OperatorTable
    """How it is written, without segments."""
    rows: int
    size_bytes: int

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def as_unordered(self) -> TableInfo:
        """To count rows by: not as a list, since a restore may change the place of an element."""
        info = self.info
        return TableInfo(name=info.name, kind="value", map_keys=info.map_keys, values=info.values)


def describe_keyed(uid: str, parts: Iterable[StateSnapshot]) -> KeyedDescription | None:
    """The keyed state of an operator, from the attributes of its parts; None if it has none.

    Raises:
        Corrupt: a part does not have the shape of its kind.
        Invalid: the parts contradict each other, or belong to another operator.
    """
    max_parallelism, keys = None, None
    tables: list[KeyedTable] = []
    for part in parts:
        if part.kind not in KEYED_KINDS:
            continue
        attributes = attributes_of(part, uid)
        if max_parallelism not in (None, attributes.max_parallelism):
            raise Invalid(
                f"the snapshots of operator {uid!r} differ in max parallelism",
                expected=str(max_parallelism),
                found=str(attributes.max_parallelism),
            )
        max_parallelism = attributes.max_parallelism
        keys = attributes.keys or keys
        for info, rows, size_bytes in _described(part, attributes, uid):
            _add(tables, info, rows, size_bytes)
    if max_parallelism is None:
        return None
    tables.sort(key=lambda table: table.name)
    met = Counter[str]()
    for place, table in enumerate(tables):
        tables[place] = replace(table, other=met[table.name])
        met[table.name] += 1
    return KeyedDescription(uid, max_parallelism, keys, tuple(tables))


def _described(
    part: StateSnapshot, attributes: KeyedAttributes, uid: str
) -> Iterator[tuple[TableInfo, int | None, int | None]]:
    """Each table that a part describes, with its rows and bytes as far as they are known."""
    for info in attributes.tables:
        handles = [segment.handle for segment in info.segments]
        yield info, info.rows, _size_bytes(handles, part.handles)
    match attributes:
        case FilesAttributes():
            for kept in attributes.files:
                yield kept.info, None, None
        case LoggedAttributes():
            base = base_of(part, attributes)
            yield from _described(base, attributes_of(base, uid), uid)
            for log in attributes.logs:
                unknown = None if log.segments else 0
                yield log.info, unknown, unknown


def _add(
    tables: list[KeyedTable], info: TableInfo, rows: int | None, size_bytes: int | None
) -> None:
    """Add what a part has of a table to what others have of it."""
    for place, there in enumerate(tables):
        if there.info.is_alike(info):
            rows, size_bytes = _sum(there.rows, rows), _sum(there.size_bytes, size_bytes)
            tables[place] = replace(there, rows=rows, size_bytes=size_bytes)
            return
    tables.append(KeyedTable(msgspec.structs.replace(info, segments=()), 0, rows, size_bytes))


def unkeyed_tables(uid: str, parts: Iterable[StateSnapshot]) -> tuple[UnkeyedTable, ...]:
    """The states without keys of an operator, in order of their names, from its parts' attributes.

    Raises:
        Corrupt: a part does not have the shape of its kind.
    """
    listed: dict[tuple[Any, ...], UnkeyedTable] = {}
    for part in parts:
        if part.kind not in OPERATOR_KINDS:
            continue
        for table in operator_attributes(uid, part).states:
            key = (table.name, table.mode.value, str(table.map_keys), str(table.values))
            names = (segment.handle for segment in table.segments)
            rows, size_bytes = table.elements, _size_bytes(names, part.handles)
            there = listed.get(key)
            listed[key] = UnkeyedTable(
                msgspec.structs.replace(table, segments=()),
                rows + (there.rows if there else 0),
                size_bytes + (there.size_bytes if there else 0),
            )
    return tuple(listed[key] for key in sorted(listed))


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _size_bytes(names: Iterable[str], handles: dict[str, Handle]) -> int:
    return sum(handles[name].size_bytes for name in names if name in handles)


def operator_attributes(uid: str, part: StateSnapshot) -> OperatorAttributes:
    """The attributes of one slot's snapshot of state without keys.

    Raises:
        Corrupt: it does not have the shape of its kind.
    """
    shapes = dict.fromkeys(OPERATOR_KINDS, OperatorAttributes)
    return read_attributes(part, shapes, f"operator {uid!r}")
