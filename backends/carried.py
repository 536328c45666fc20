"""State that was in snapshots and that the job has not asked for yet: it is carried along.

It is loaded when it is asked for, since only then its types are known. What nobody asks for goes
undecoded into the next snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TypeVar

from holdfast.backends.changes import Added, Change
from holdfast.backends.file_restores import PendingInStore, take_in
from holdfast.backends.loading import Loader
from holdfast.backends.logs import PendingChanges
from holdfast.backends.naming import restoring
from holdfast.backends.restores import PendingOutside, PendingTable
from holdfast.backends.snapshots import TableInfo
from holdfast.backends.tables import Table, TableSpec, TableStore
from holdfast.backends.timer_queues import TimerQueue
from holdfast.backends.type_schema import Schema
from holdfast.backends.written import written_spec
from holdfast.storage import HoldfastError, Unavailable

__all__ = ["Carried"]

_Filled = TypeVar("_Filled", Table, TimerQueue)


class Carried:
    """What the snapshots have and nobody has asked for yet. Belongs to the owner's thread.

    `changed` counts what was asked for and is in the store otherwise than the snapshots have it:
    under another name, or in other types.
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
        """What snapshots have of tables, by name."""
        for name, pending in tables.items():
            self._tables.setdefault(name, []).extend(pending)

    def add_changes(self, changes: Mapping[str, list[PendingChanges]]) -> None:
        """What has changed in them since, by name."""
        self._changes.update(changes)

    def fill(
        self, loader: Loader, names: Iterable[str], make: Callable[[TableSpec], _Filled]
    ) -> _Filled:
        """What `make` answers, with what the snapshots have under these names.

        It may be under several, where only some slots had asked for it by its new name. Nothing is
        left of it on a failure.

        Raises:
            Invalid: it cannot be read as it is declared now.
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer.
        """
        self._check_whole()
        spec = loader.spec
        found = [name for name in dict.fromkeys(names) if self._has(name)]
        pending = [table for name in found for table in self._tables.get(name, ())]
        changes = [change for name in found for change in self._changes.get(name, ())]
        infos = [table.info for table in pending] + [change.info for change in changes]
        for info in infos:
            loader.check(info)
        are_as_written = all(map(loader.is_as_written, infos))
        if len(pending) == 1 and are_as_written and pending[0].claim(spec):
            filled = make(spec)
            self._replay_claimed(loader, changes)
        else:
            filled = make(spec)
            try:
                with restoring(self._state(spec.name)):
                    for each in pending:
                        for block in loader.blocks(each):
                            filled.load(block)
                    self._replay(loader, changes)
            except BaseException:
                self._store.drop_table(spec)
                raise
            for each in pending:
                each.loaded()
        for name in found:
            self._tables.pop(name, None)
            self._changes.pop(name, None)
        self.changed += not are_as_written or found not in ([], [spec.name])
        return filled

    def in_store(self) -> Iterator[tuple[TableSpec, TableInfo]]:
        """What the store has already, under names that no state has."""
        for tables in self._tables.values():
            for pending in tables:
                if isinstance(pending, PendingInStore):
                    self._store.table(pending.spec)
                    yield pending.spec, pending.info

    def hold(self, keys: Schema | None) -> list[PendingTable]:
        """Have here what is in storage still: its files may soon be deleted.

        The store takes it in if it keeps files, or if there were changes to it; the rest, which is
        answered, is in memory from now on.

        Raises:
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer.
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
                        found.append(copy(pending))  # what is loaded meanwhile, it keeps
        return found

    def replay(self, name: str, keys: Schema | None) -> None:
        """Have the store keep what there is of this name as it is after all changes.

        Raises:
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer.
        """
        with restoring(self._state(name)):
            while self._changes.get(name):
                self._take_in_changed(name, self._changes[name][0], keys)
        self._changes.pop(name, None)

    def pending(self, name: str) -> Sequence[PendingTable]:
        """What there is of this name, where nothing of it has changed since, or is replayed."""
        return tuple(self._tables.get(name, ()))

    def _has(self, name: str) -> bool:
        return name in self._tables or name in self._changes

    def _state(self, name: str) -> str:
        return f"state {name!r} of {self._where}"

    def _check_whole(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _replay_claimed(self, loader: Loader, changes: Iterable[PendingChanges]) -> None:
        """What was claimed cannot be had again as it was: if this fails, there is no way on."""
        what = self._state(loader.spec.name)
        self._lost = Unavailable(
            f"{what} is half restored: somebody broke off while its changes were replayed",
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
        """Before anybody walks over the table: a queue of timers has not read it yet."""
        for each in changes:
            _apply(self._store.table(loader.spec), loader.changes(each))

    def _take_in_changed(self, name: str, changes: PendingChanges, keys: Schema | None) -> None:
        """Have the store keep a table as it was written, with the changes to it."""
        spec = written_spec(f"_replayed/{self._replayed}/{name}", changes.info, keys)
        tables = self._tables.setdefault(name, [])
        merged = [each for each in tables if each.info.is_alike(changes.info)]
        try:
            table = self._store.table(spec)
            for each in merged:
                for block in each.blocks():
                    table.load(block)
            _apply(table, changes.changes())
        except BaseException:
            self._store.drop_table(spec)
            raise
        self._replayed += 1
        for each in merged:
            each.loaded()
            tables.remove(each)
        tables.append(PendingInStore(changes.info, spec, self._store))
        self._changes[name].remove(changes)


def _apply(table: Table, changes: Iterable[Change]) -> None:
    for change in changes:
        if isinstance(change, Added):
            table.load(change.block)
        else:
            table.unload(change.block)
