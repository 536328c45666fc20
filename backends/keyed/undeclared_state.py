"""State of the restored snapshots that the job has not declared yet.

It is loaded when it is declared, since only then its types are known. State that is never declared
is copied undecoded into the next snapshot.

The first snapshot reads it in its synchronous part, because its files may be deleted from then on:
into memory, or as raw tables into a store that keeps files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TypeVar

import msgspec

from holdfast.backends.blocks.block import NO_VALUES
from holdfast.backends.blocks.changes import Added, Change
from holdfast.backends.snapshots.file_restores import PendingInStore, take_in
from holdfast.backends.snapshots.logs import PendingChanges
from holdfast.backends.snapshots.migration import Loader
from holdfast.backends.snapshots.neutral import TableInfo, restoring
from holdfast.backends.snapshots.raw_tables import raw_spec
from holdfast.backends.snapshots.restores import PendingOutside, PendingTable
from holdfast.backends.tables.contract import ListTable, Table, TableSpec, TableStore
from holdfast.backends.tables.timer_queues import TimerQueue
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import HoldfastError, Unavailable

__all__ = ["UndeclaredState"]

_Filled = TypeVar("_Filled", Table, TimerQueue)


class UndeclaredState:
    """State of the snapshots that is not declared yet. Belongs to the owner's thread.

    `changed` counts declared tables that differ from the snapshots in their name or types. Types
    count as different even if all bytes are the same: the log of a table is described as declared
    now, and its base must be described in the same way.
    """

    def __init__(self, store: TableStore, where: str) -> None:
        self._store = store
        self._where = where
        self._tables: dict[str, list[PendingTable]] = {}
        self._changes: dict[str, list[PendingChanges]] = {}
        self._replayed = 0
        self._lost: HoldfastError | None = None
        self.changed = 0

    def add_tables(self, tables: Mapping[str, Iterable[PendingTable]]) -> None:
        for name, pending in tables.items():
            self._tables.setdefault(name, []).extend(pending)

    def add_changes(self, changes: Mapping[str, list[PendingChanges]]) -> None:
        self._changes.update(changes)

    def fill(
        self, loader: Loader, names: Iterable[str], make: Callable[[TableSpec], _Filled]
    ) -> _Filled:
        """Make a table with `make`, and load what the snapshots have under these names.

        There may be several, if only some slots had declared the state by its new name. A failure
        leaves nothing behind.

        Raises:
            Invalid: it cannot be read as it is declared now.
        """
        self._check_whole()
        spec = loader.spec
        found = [
            name for name in dict.fromkeys(names) if name in self._tables or name in self._changes
        ]
        tables = [table for name in found for table in self._tables.get(name, ())]
        changes = [change for name in found for change in self._changes.get(name, ())]
        infos = [table.info for table in tables] + [change.info for change in changes]
        is_described_so = all(map(loader.is_described_so, infos))
        pending = [table for table in tables if not table.is_empty]
        infos = [table.info for table in pending] + [change.info for change in changes]
        for info in infos:
            loader.check(info)
        is_as_written = all(map(loader.is_as_written, infos))
        may_claim = len(pending) == 1 and is_as_written
        claimed = pending[0] if may_claim and pending[0].claim(spec) else None
        filled = make(spec)
        if claimed is not None:
            self._replay_claimed(loader, changes)
        else:
            try:
                with restoring(self._state(spec.name)):
                    for each in pending:
                        for block in loader.blocks(each):
                            filled.load(block)
                    self._replay(loader, changes)
            except BaseException:
                self._store.drop_table(spec)
                raise
        for each in tables:
            if each is not claimed:
                each.loaded()
        for name in found:
            self._tables.pop(name, None)
            self._changes.pop(name, None)
        self.changed += not is_described_so or found not in ([], [spec.name])
        return filled

    def in_store(self) -> Iterator[tuple[TableSpec, TableInfo]]:
        """Tables that the store already has, under names that no state can have."""
        for tables in self._tables.values():
            for pending in tables:
                if isinstance(pending, PendingInStore):
                    self._store.table(pending.spec)
                    yield pending.spec, pending.info

    def hold(self, keys: Schema | None) -> list[PendingTable]:
        """Read what is still in storage, since its files may soon be deleted.

        Goes into the store, if that keeps files or if there are changes to replay; the rest is held
        in memory and is returned.
        """
        self._check_whole()
        for name in list(self._changes):
            self.replay(name, keys)
        found: list[PendingTable] = []
        for name, tables in self._tables.items():
            for place, pending in enumerate(tables):
                if isinstance(pending, PendingOutside):
                    with restoring(self._state(name)):
                        taken_in = take_in(pending, self._store, keys, place)
                        if taken_in is None:
                            pending.hold()
                    if taken_in is not None:
                        pending.loaded()
                        tables[place] = taken_in
                    else:
                        found.append(copy(pending))  # the copy keeps blocks that are loaded later
        return found

    def replay(self, name: str, keys: Schema | None) -> None:
        """Apply the logged changes of this name: the result is kept in the store."""
        if self._changes.get(name):
            with restoring(self._state(name)):
                self._take_in_changed(name, self._changes[name], keys)
        self._changes.pop(name, None)

    def pending(self, name: str) -> Sequence[PendingTable]:
        """The pending tables of this name, which has no changes left to replay."""
        return tuple(self._tables.get(name, ()))

    def _state(self, name: str) -> str:
        return f"state {name!r} of {self._where}"

    def _check_whole(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _replay_claimed(self, loader: Loader, changes: Iterable[PendingChanges]) -> None:
        """Replay into a claimed table. A failure cannot be undone: the backend is unusable then."""
        what = self._state(loader.spec.name)
        self._lost = Unavailable(
            f"{what} is half restored: the replay of its changes was interrupted",
            fix="Open the backend again, from the same snapshots",
        )
        try:
            with restoring(what):
                self._replay(loader, changes)
        except HoldfastError as error:
            self._lost = error
            raise
        self._lost = None

    def _replay(self, loader: Loader, changes: Iterable[PendingChanges]) -> None:
        """Replay changes. The table is not in use yet: a queue of timers has not read it."""
        for each in changes:
            _apply(self._store.table(loader.spec), loader.changes(each))

    def _take_in_changed(
        self, name: str, changes: Sequence[PendingChanges], keys: Schema | None
    ) -> None:
        """Put raw tables with their changes into the store.

        A log in other types than its base becomes a table of its own; its rows replace those of the
        other tables at the same addresses.
        """
        before = self._tables.get(name, [])
        kept: list[PendingInStore] = []
        try:
            for info in (*(each.info for each in before), *(each.info for each in changes)):
                if not any(one.info.is_alike(info) for one in kept):
                    spec = raw_spec(f"_replayed/{self._replayed}/{name}", info, keys)
                    self._replayed += 1
                    kept.append(PendingInStore(info, spec, self._store))
            for pending in before:
                table = self._store.table(_alike(kept, pending.info).spec)
                for block in pending.blocks():
                    table.load(block)
            for logged in changes:
                own = _alike(kept, logged.info)
                others = [
                    self._store.table(each.spec)
                    for each in kept
                    if each is not own and each.info.has_same_rows(own.info)
                ]
                _apply(self._store.table(own.spec), logged.changes(), others)
        except BaseException:
            for each in kept:
                self._store.drop_table(each.spec)
            raise
        for pending in before:
            pending.loaded()
        self._tables[name] = [*kept]


def _alike(kept: Iterable[PendingInStore], info: TableInfo) -> PendingInStore:
    return next(each for each in kept if each.info.is_alike(info))


def _apply(table: Table, changes: Iterable[Change], others: Sequence[Table] = ()) -> None:
    """Apply the changes; `others` are tables of the same state in other types."""
    for change in changes:
        if isinstance(change, Added):
            if others and not isinstance(table, ListTable):  # rows of a list are appended
                named = msgspec.structs.replace(change.block, values=NO_VALUES, stamps=None)
                for other in others:
                    other.unload(named)
            table.load(change.block)
        else:
            for each in (table, *others):
                each.unload(change.block)
