"""Restoring files of another backend, which are read through a store of that backend.

That store is opened beside the job's, with little memory, and closed once all its tables are
loaded. Rows go from one to the other as blocks, so backends do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.file_restores import PendingInStore, restore_files
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.backends.snapshots.restores import FilesToRestore, PendingOutside
from holdfast.backends.tables.contract import TableSpec, TableStore
from holdfast.storage import StateFolder

__all__ = ["OpenStore", "OtherStores", "PendingInOther"]

OpenStore = Callable[[str, str, KeyGroupRange, int], TableStore]
"""Opens a store of the backend of a name, to be read once; the rest as `StateBackend.open_store`.

Passed in, since the registry knows the contract of backends, which is built on this module."""


class _OtherStore:
    """A store that stays open as long as one of its tables is wanted."""

    def __init__(self, store: TableStore) -> None:
        self._store: TableStore | None = store
        self._wanted = 0

    def want(self) -> None:
        """Count another table that is wanted."""
        self._wanted += 1

    def loaded(self) -> None:
        """Count a table that is not wanted any more; the last one closes the store."""
        self._wanted -= 1
        self.close_if_unwanted()

    def close_if_unwanted(self) -> None:
        """Close it, unless a table of it is wanted."""
        if not self._wanted:
            self.close()

    def close(self) -> None:
        """Close it; later calls do nothing."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


@dataclass(slots=True)
class PendingInOther(PendingOutside):
    """A pending table in files of another backend, which a store of that backend has open."""

    info: TableInfo
    inner: PendingInStore
    through: _OtherStore
    held: list[Block] | None = None
    is_done: bool = False

    def blocks(self) -> Iterator[Block]:
        yield from self.inner.blocks() if self.held is None else self.held

    def claim(self, spec: TableSpec) -> bool:
        return False

    def loaded(self) -> None:
        self.held = None
        self._done()

    def hold(self) -> None:
        """Read the blocks into memory: the snapshot's thread must not use the store."""
        if self.held is None:
            self.held = list(self.inner.blocks())
            self._done()

    def _done(self) -> None:
        if not self.is_done:
            self.is_done = True
            self.through.loaded()


class OtherStores:
    """The stores of other backends that some keyed state is restored through.

    Belongs to the owner's thread. `close` closes stores that are still open.
    """

    def __init__(
        self, uid: str, key_groups: KeyGroupRange, max_parallelism: int, open_store: OpenStore
    ) -> None:
        self._open_store = open_store
        self._uid = uid
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._open: list[_OtherStore] = []

    def restore(
        self, snapshots: Sequence[FilesToRestore], storage: StateFolder
    ) -> dict[str, list[PendingInOther]]:
        """The tables of these snapshots, by the name of the state.

        Raises:
            Invalid: the backend is not installed, or not in the version that wrote the files.
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer, or there is no room on this machine.
        """
        found: dict[str, list[PendingInOther]] = {}
        for name in sorted({each.backend for each in snapshots}):
            store = self._open_store(name, self._uid, self._key_groups, self._max_parallelism)
            through = _OtherStore(store)
            self._open.append(through)
            own = [each for each in snapshots if each.backend == name]
            for state, tables in restore_files(own, store, storage).tables.items():
                for inner in tables:
                    through.want()
                    pending = PendingInOther(inner.info, inner, through)
                    found.setdefault(state, []).append(pending)
            through.close_if_unwanted()
        return found

    def close(self) -> None:
        """Close them; tables that were not loaded cannot be read any more."""
        for each in self._open:
            each.close()
        self._open.clear()
