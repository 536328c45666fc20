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
from holdfast.backends.tables.contract import TableStore
from holdfast.storage import StateFolder

__all__ = ["OpenStore", "OtherStores"]

OpenStore = Callable[[str, str, KeyGroupRange, int], TableStore]
"""Opens a store of the backend of a name, to be read once; the rest as `StateBackend.open_store`.

Passed in, since the registry knows the contract of backends, which is built on this module."""


class _OtherStore:
    """A store that is closed once all that was wanted of it is loaded."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.wanted = 0
        self._is_closed = False

    def loaded(self) -> None:
        """Count what is not wanted any more."""
        self.wanted -= 1
        if not self.wanted:
            self.close()

    def close(self) -> None:
        """Close it; later calls do nothing."""
        if not self._is_closed:
            self._is_closed = True
            self.store.close()


@dataclass(slots=True)
class _PendingInOther(PendingOutside):
    """A pending table in files of another backend, which a store of that backend has open."""

    info: TableInfo
    inner: PendingInStore
    through: _OtherStore
    held: list[Block] | None = None
    is_done: bool = False

    def blocks(self) -> Iterator[Block]:
        yield from self.inner.blocks() if self.held is None else self.held

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

    `open_store` opens the one of a backend's name. Belongs to the owner's thread. `close` closes
    stores that are still open.
    """

    def __init__(self, open_store: Callable[[str], TableStore]) -> None:
        self._open_store = open_store
        self._open: list[_OtherStore] = []

    def restore(
        self, snapshots: Sequence[FilesToRestore], storage: StateFolder
    ) -> dict[str, list[PendingOutside]]:
        """The tables of these snapshots, by the name of the state.

        Raises:
            Invalid: the backend is not installed, or not in the version that wrote the files.
            Unavailable: there is no room on this machine.
        """
        found: dict[str, list[PendingOutside]] = {}
        for name in sorted({each.backend for each in snapshots}):
            through = _OtherStore(self._open_store(name))
            self._open.append(through)
            through.wanted = 1  # the list of its tables, so that it is closed if there are none
            own = [each for each in snapshots if each.backend == name]
            for state, tables in restore_files(own, through.store, storage).tables.items():
                through.wanted += len(tables)
                pending = [_PendingInOther(inner.info, inner, through) for inner in tables]
                found.setdefault(state, []).extend(pending)
            through.loaded()
        return found

    def close(self) -> None:
        """Close them; tables that were not loaded cannot be read any more."""
        for each in self._open:
            each.close()
        self._open.clear()
