"""What a state backend is: a light, picklable factory of keyed state, registered by a name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.backends.keyed.backend import EarlyFiles, KeyedStateBackend, Opening
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.tables.contract import TableStore
from holdfast.storage import Clock, StateFolder, StateSnapshot, SystemClock

__all__ = ["BackendCapabilities", "StateBackend"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCapabilities:
    """What a backend says about itself beyond the contract."""

    keeps_files: bool = False
    """While a store is open it keeps files of its own on this machine; after `close` they are
    gone, and files of a process that was killed are in nobody's way."""
    own_snapshots: bool = False
    """Snapshots that need not be neutral are in a form of its own, which only it can restore."""


class StateBackend(ABC):
    """Makes keyed state for one operator in one slot.

    A backend holds settings only; it travels to the slots by pickle. It supplies a `TableStore`;
    everything else is built on that, the same for every backend.
    """

    @property
    def capabilities(self) -> BackendCapabilities:
        """What this backend declares."""
        return BackendCapabilities()

    @abstractmethod
    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        """An empty store for the state of operator `uid` in these key groups.

        Raises:
            Invalid: a setting cannot be honoured.
            Unavailable: the machine lacks what it takes.
        """

    def metrics(self) -> Mapping[str, float]:
        """Numbers of what all stores share that this object has opened here; by default none.

        Called by the threads that own them, about once a second; as `TableStore.metrics`.
        """
        return {}

    def open(  # noqa: PLR0913 - all by name, and none of them can be left out
        self,
        *,
        uid: str,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        key_type: Any = None,
        restore: Sequence[StateSnapshot] = (),
        storage: StateFolder | None = None,
        clock: Clock | None = None,
        allow_pickle: bool = False,
        early: EarlyFiles | None = None,
    ) -> KeyedStateBackend:
        """Open keyed state, empty or as it was in snapshots of any key groups.

        Without `key_type` the type of keys is that of the snapshot, or of the first key.
        `restore` needs the `storage` that the snapshots were written to. `allow_pickle` admits
        values that are pickles, which can run any code when they are read.

        With `early`, backends that do so may write files between snapshots.

        Raises:
            Invalid: the arguments do not fit each other, or the snapshots: another uid, max
                parallelism or key type.
            Corrupt: a file of a snapshot is missing or damaged; names it.
            Unavailable: the storage did not answer.
        """
        return self.open_keyed(
            Opening(
                uid=uid,
                key_groups=key_groups,
                max_parallelism=max_parallelism,
                key_type=key_type,
                restore=restore,
                storage=storage,
                clock=clock or SystemClock(),
                allow_pickle=allow_pickle,
                early=early,
            )
        )

    def open_keyed(self, opening: Opening) -> KeyedStateBackend:
        """Open keyed state as `open` says; for backends that do more than to supply a store."""
        make_store = partial(
            self.open_store, opening.uid, opening.key_groups, opening.max_parallelism
        )
        return KeyedStateBackend(make_store, opening)
