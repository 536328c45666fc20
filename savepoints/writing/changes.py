"""Changes to a savepoint: operators and states that are kept, dropped, renamed or added.

Collects and checks them without reading or writing state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.backends.operator_state.snapshots import OperatorTable
from holdfast.backends.snapshots.in_flight import in_flight_parts
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.backends.values.type_descriptions import Schema
from holdfast.savepoints.finding import KEYED, OPERATOR, StoredSnapshot, kind_of
from holdfast.savepoints.reading.readers import KeyedReader, OperatorReader
from holdfast.savepoints.reading.tables import KeyedTable, UnkeyedTable
from holdfast.savepoints.writing.keyed_rows import RowColumns
from holdfast.savepoints.writing.unkeyed_rows import UnkeyedRows
from holdfast.storage import Invalid, NotFound, StateSnapshot

__all__ = ["NewState", "OperatorChanges", "SavepointChanges"]

_State = tuple[str, str]
"""A stored state: its kind and its stored name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewState:
    """A state that is written from a DataFrame."""

    frame: Any
    table: TableInfo | OperatorTable
    columns: RowColumns
    descriptor: Any = None
    rows: UnkeyedRows | None = None
    """The encoder of its rows, for a state without keys."""

    @property
    def name(self) -> str:
        return self.table.name


@dataclass
class OperatorChanges:
    """The changes to one operator: states to keep, and under which names, and new states."""

    uid: str
    keyed: KeyedReader | None = None
    unkeyed: OperatorReader | None = None
    where: str = ""
    keys: Schema | None = None
    """The type of its keys; None if unknown."""
    dropped: set[_State] = field(default_factory=set)
    renamed: dict[_State, str] = field(default_factory=dict)
    new_keyed: dict[str, NewState] = field(default_factory=dict)
    new_unkeyed: dict[str, NewState] = field(default_factory=dict)

    @property
    def kept_tables(self) -> list[tuple[KeyedTable, TableInfo]]:
        """The stored tables to keep, each with its new description.

        Raises:
            Invalid: a key group is missing from the stored parts, or in two of them.
        """
        names = self._names(KEYED)
        kept = [
            (table, msgspec.structs.replace(table.info, name=names[table.name]))
            for table in self._tables
            if table.name in names
        ]
        if kept and self.keyed is not None:
            self.keyed.check_covers()
        return kept

    @property
    def kept_unkeyed(self) -> list[tuple[UnkeyedTable, OperatorTable]]:
        """The stored states without keys to keep, each with its new description."""
        names, tables = self._names(OPERATOR), self._unkeyed_tables
        return [
            (table, msgspec.structs.replace(table.info, name=names[table.name]))
            for table in tables
            if table.name in names
        ]

    def put(self, state: NewState) -> None:
        """Add a new state, in place of any state of this name.

        Raises:
            Invalid: the new state has no time to live, and the one that it replaces has.
        """
        is_keyed = isinstance(state.table, TableInfo)
        kind = KEYED if is_keyed else OPERATOR
        before = self._called(state.name, kind)
        if isinstance(state.table, TableInfo) and not state.table.stamped:
            for table in self._tables:
                if (KEYED, table.name) in before and table.info.stamped:
                    raise Invalid(
                        f"state {state.name!r} of operator {self.uid!r} would lose when its "
                        "entries were last used",
                        where=self.where,
                        expected="a descriptor with ttl=, as the job has it",
                        found="one without",
                        fix="If it is to have none from now on, drop the stored state first",
                    )
        self.dropped |= before
        (self.new_keyed if is_keyed else self.new_unkeyed)[state.name] = state

    def drop(self, name: str, kind: str | None = None) -> None:
        """Drop a state, stored or new.

        Raises:
            NotFound: there is no state of this name and kind; names the known ones.
            Invalid: a state with keys and one without have this name, or there is no such kind.
        """
        its_kind = self._kind_of(name, kind)
        self.dropped |= self._called(name, its_kind)
        self._new(its_kind).pop(name, None)
        if not self.new_keyed:
            self.keys = None if self.keyed is None else self.keyed.description.keys

    def rename(self, old: str, new: str, kind: str | None = None) -> None:
        """Rename a stored state.

        Raises:
            NotFound: there is no state of the old name.
            Invalid: the new name is taken or not allowed, or the state is a new one; or as `drop`.
        """
        its_kind = self._kind_of(old, kind)
        if old.startswith("_") or new.startswith("_") or not new:
            raise Invalid(
                "timers cannot be renamed, and no state can have such a name",
                where=f"operator {self.uid!r}",
                expected="names that do not begin with an underscore",
                found=f"{old!r} to {new!r}",
            )
        if old in self._new(its_kind):
            raise Invalid(
                f"state {old!r} of operator {self.uid!r} is new, and named by its descriptor",
                where=self.where,
                expected="a stored state to rename",
                fix="Change the name in the descriptor, and drop the stored state",
            )
        if new in (*self._all(KEYED), *self._all(OPERATOR)):
            raise Invalid(
                f"operator {self.uid!r} has a state {new!r}",
                where=self.where,
                fix="Drop or rename that one first",
            )
        self.renamed |= dict.fromkeys(self._called(old, its_kind), new)

    @property
    def _tables(self) -> Sequence[KeyedTable]:
        return () if self.keyed is None else self.keyed.description.tables

    @property
    def _unkeyed_tables(self) -> Sequence[UnkeyedTable]:
        return () if self.unkeyed is None else self.unkeyed.tables()

    def _new(self, kind: str) -> dict[str, NewState]:
        return self.new_keyed if kind == KEYED else self.new_unkeyed

    def _names(self, kind: str) -> dict[str, str]:
        """The current names of the kept states of a kind, by their stored names."""
        tables = self._tables if kind == KEYED else self._unkeyed_tables
        names = dict.fromkeys(table.name for table in tables)
        return {
            name: self.renamed.get((kind, name), name)
            for name in names
            if (kind, name) not in self.dropped
        }

    def _called(self, name: str, kind: str) -> set[_State]:
        """The stored states that have this name now."""
        return {(kind, old) for old, now in self._names(kind).items() if now == name}

    def _all(self, kind: str) -> list[str]:
        """The names of all states of a kind, stored and new."""
        return list(dict.fromkeys([*self._names(kind).values(), *self._new(kind)]))

    def _kind_of(self, name: str, kind: str | None) -> str:
        there = {each: self._all(each) for each in (KEYED, OPERATOR)}
        return kind_of(name, kind, there, uid=self.uid, where=self.where)


class SavepointChanges:
    """The changes to all operators and sources of a savepoint."""

    def __init__(self, source: StoredSnapshot | None = None) -> None:
        """Start from a stored checkpoint or savepoint, or from an empty savepoint.

        Raises:
            Corrupt, Invalid: the attributes of a part are damaged.
        """
        self.source = source
        self.operators: dict[str, OperatorChanges] = {}
        self.sources: dict[str, StateSnapshot] = {}
        if source is not None:
            self.sources = dict(source.metadata.sources)
            for uid in source.uids:
                keyed = source.keyed(uid)
                self.operators[uid] = OperatorChanges(
                    uid,
                    keyed,
                    source.unkeyed(uid),
                    str(source.point),
                    None if keyed is None else keyed.description.keys,
                )

    def operator(self, uid: str) -> OperatorChanges:
        """A stored operator.

        Raises:
            NotFound: there is no such operator; names the known ones.
        """
        self._check(uid, self.operators)
        return self.operators[uid]

    def operator_for(self, uid: str) -> OperatorChanges:
        """The operator of this uid, created if there is none.

        Raises:
            Invalid: a source has this uid.
        """
        if not uid or uid in self.sources:
            raise Invalid(
                f"no operator can be called {uid!r}",
                found="the uid of a source" if uid else "an empty uid",
            )
        return self.operators.setdefault(uid, OperatorChanges(uid))

    def remove(self, uid: str) -> None:
        """Remove an operator, or the position of a source.

        Raises:
            NotFound: there is neither; names the known ones.
            Invalid: rows in flight would be processed without it, or twice.
        """
        self._check(uid, {**self.operators, **self.sources})
        if uid in self.sources:
            # A source without a position reads its rows again. An edge does not say whose rows
            # wait before it, so those of each operator count.
            self._check_in_flight(f"source {uid!r} cannot be removed", None)
        else:
            self._check_in_flight(f"operator {uid!r} cannot be removed", uid)
        self.operators.pop(uid, None)
        self.sources.pop(uid, None)

    def change_uid(self, old: str, new: str) -> None:
        """Change the uid of an operator or a source.

        Raises:
            NotFound: the old uid does not exist.
            Invalid: the new uid is taken, or rows in flight wait before the operator.
        """
        self._check(old, {**self.operators, **self.sources})
        if not new or new in self.operators or new in self.sources:
            raise Invalid(
                f"{old!r} cannot be called {new!r}",
                found="another one that has this uid" if new else "an empty uid",
                fix="Remove or rename that one first",
            )
        # They are to an operator's uid. Those of a source do not name it, and go with its position.
        self._check_in_flight(f"operator {old!r} cannot be called {new!r}", old)
        if old in self.operators:
            self.operators[new] = changed = self.operators.pop(old)
            changed.uid = new
        if old in self.sources:
            self.sources[new] = self.sources.pop(old)

    def _check_in_flight(self, refusal: str, uid: str | None) -> None:
        """Refuse if rows in flight wait before this operator; None: before any operator."""
        if self.source is None:
            return
        rows: dict[str, int] = {}
        for each in in_flight_parts(self.source.metadata.in_flight):
            operator = each.about.edge.rpartition("/")[0]
            if uid in (None, operator):
                rows[operator] = rows.get(operator, 0) + each.rows
        if rows:
            raise Invalid(
                f"{refusal} while rows are in flight",
                where=str(self.source.point),
                expected="a savepoint: barriers overtake no rows for it",
                found=", ".join(
                    f"{count} rows in flight to operator {operator!r}"
                    for operator, count in sorted(rows.items())
                ),
                fix="Restore the job from it, take a savepoint, and change that one",
            )

    def _check(self, uid: str, there: Iterable[str]) -> None:
        if uid not in there:
            raise NotFound(
                f"there is no {uid!r}",
                where="a new savepoint" if self.source is None else str(self.source.point),
                expected=", ".join(map(repr, sorted(there))) or "none at all",
                found=repr(uid),
            )
