"""The tables of a snapshot, described from its attributes alone; no state is read.

`readers` reads the rows of these tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.backends.operator_state.snapshots import (
    OPERATOR_KINDS,
    OperatorAttributes,
    OperatorTable,
)
from holdfast.backends.snapshots.file_uploads import FilesAttributes
from holdfast.backends.snapshots.logs import LoggedAttributes, base_of
from holdfast.backends.snapshots.neutral import KeyedAttributes, TableInfo
from holdfast.backends.snapshots.restores import KEYED_KINDS, attributes_of
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import Corrupt, Handle, Invalid, StateSnapshot

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
    found = _Keyed(uid)
    for part in parts:
        if part.kind in KEYED_KINDS:
            found.add(part)
    return found.described()


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


class _Keyed:
    """Collects the descriptions in the parts of one operator."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._infos: list[TableInfo] = []
        self._rows: list[int | None] = []
        self._size_bytes: list[int | None] = []
        self._keys: Schema | None = None
        self._max_parallelism: int | None = None

    def add(self, part: StateSnapshot) -> None:
        attributes = attributes_of(part, self._uid)
        if self._max_parallelism not in (None, attributes.max_parallelism):
            raise Invalid(
                f"the snapshots of operator {self._uid!r} differ in max parallelism",
                expected=str(self._max_parallelism),
                found=str(attributes.max_parallelism),
            )
        self._max_parallelism = attributes.max_parallelism
        self._keys = attributes.keys or self._keys
        self._add_tables(part, attributes)

    def described(self) -> KeyedDescription | None:
        if self._max_parallelism is None:
            return None
        tables = []
        order = sorted(range(len(self._infos)), key=lambda place: self._infos[place].name)
        names: list[str] = []
        for place in order:
            info = self._infos[place]
            tables.append(
                KeyedTable(info, names.count(info.name), self._rows[place], self._size_bytes[place])
            )
            names.append(info.name)
        return KeyedDescription(self._uid, self._max_parallelism, self._keys, tuple(tables))

    def _add_tables(self, part: StateSnapshot, attributes: KeyedAttributes) -> None:
        for info in attributes.tables:
            handles = [segment.handle for segment in info.segments]
            self._add(info, info.rows, _size_bytes(handles, part.handles))
        match attributes:
            case FilesAttributes():
                for kept in attributes.files:
                    self._add(kept.info, None, None)
            case LoggedAttributes():
                base = base_of(part, attributes)
                self._add_tables(base, attributes_of(base, self._uid))
                for log in attributes.logs:
                    self._add(log.info, None if log.segments else 0, None if log.segments else 0)

    def _add(self, info: TableInfo, rows: int | None, size_bytes: int | None) -> None:
        place = next((at for at, each in enumerate(self._infos) if each.is_alike(info)), None)
        if place is None:
            self._infos.append(msgspec.structs.replace(info, segments=()))
            self._rows.append(rows)
            self._size_bytes.append(size_bytes)
            return
        self._rows[place] = _sum(self._rows[place], rows)
        self._size_bytes[place] = _sum(self._size_bytes[place], size_bytes)


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _size_bytes(names: Iterable[str], handles: dict[str, Handle]) -> int:
    return sum(handles[name].size_bytes for name in names if name in handles)


def operator_attributes(uid: str, part: StateSnapshot) -> OperatorAttributes:
    """The attributes of one slot's snapshot of state without keys.

    Raises:
        Corrupt: it does not have the shape of its kind.
    """
    try:
        return msgspec.convert(part.attributes, OperatorAttributes)
    except msgspec.ValidationError as error:
        raise Corrupt(
            f"the attributes of a snapshot of operator {uid!r} have not the shape of their kind",
            expected=part.kind,
            found=str(error),
        ) from error
