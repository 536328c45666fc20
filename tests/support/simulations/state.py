"""Real backends in slots of a simulated world: what a process has open ends with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.backends import (
    BackendCapabilities,
    KeyedStateBackend,
    KeyGroupRange,
    StateBackend,
    TableStore,
)
from holdfast.storage import StateFolder, StateSnapshot
from support.simulations.shared_files import SharedFiles, without_shared
from support.simulations.world import Process, World


class SimulatedState(StateBackend):
    """A backend whose stores are closed by the world if the process that opened them is killed.

    Its snapshots have files beside them that they share.
    """

    def __init__(self, backend: StateBackend) -> None:
        self._backend = backend

    @property
    def capabilities(self) -> BackendCapabilities:
        return self._backend.capabilities

    def open(
        self,
        *,
        uid: str,
        restore: Sequence[StateSnapshot] = (),
        storage: StateFolder | None = None,
        **more: Any,
    ) -> KeyedStateBackend:
        files = SharedFiles(uid, restore, storage)
        plain = [without_shared(each) for each in restore]
        return files.join(super().open(uid=uid, restore=plain, storage=storage, **more))

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        store = self._backend.open_store(uid, key_groups, max_parallelism)
        close = _once(store.close, World.current().process)
        store.close = close  # type: ignore[method-assign]
        return store


def _once(close: Callable[[], None], process: Process) -> Callable[[], None]:
    """Close it, by its owner or with its process."""

    def closing() -> None:
        if closing in process.at_death:
            process.at_death.remove(closing)
            close()

    process.at_death.append(closing)
    return closing
