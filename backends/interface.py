"""State backends: the contract of their factories, and how one is found by its name.

A backend is registered by an entry point of the group `holdfast.state_backends`; the built-in ones
are registered in the same way. Contract and lookup are one module since each needs the other: a
lookup answers a `StateBackend`, and opening one may have to find the backend of another name, whose
files it restores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any, Self

from holdfast.backends.keyed.backend import EarlyFiles, KeyedStateBackend, Opening
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.tables.contract import TableStore
from holdfast.storage import Clock, StateFolder, StateSnapshot, SystemClock, plugins

__all__ = [
    "BACKEND_GROUP",
    "BackendCapabilities",
    "OpenBackend",
    "StateBackend",
    "load_backend",
    "registered_backends",
    "replaying_backend",
    "usual_backend",
]

BACKEND_GROUP = "holdfast.state_backends"
_ON_DISK_GROUP = "holdfast.backends_on_disk"
_WHAT = "state backend"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCapabilities:
    """What a backend says about itself beyond the contract."""

    keeps_files: bool = False
    """An open store keeps local files. `close` deletes them, and files left by a killed process
    disturb no other process."""
    own_snapshots: bool = False
    """Snapshots that need not be neutral are in the backend's own form; restoring them takes this
    backend."""


class StateBackend(ABC):
    """Makes keyed state for one operator in one slot.

    A backend holds settings only and is sent to the slots by pickle. It supplies a `TableStore`;
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
            Unavailable: the machine lacks a resource, such as disk space.
        """

    def for_reading(self) -> Self:
        """The same backend, set up to read state once from beginning to end; by default itself.

        Override it where that takes less memory: such a reader has no use for a large cache.
        """
        return self

    def metrics(self) -> Mapping[str, float]:
        """Metrics of what all stores opened by this object in this process share; default: none.

        Called by the threads that own the stores, about once a second; as `TableStore.metrics`.
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
        `restore` needs the `storage` that the snapshots were written to. `allow_pickle` allows
        values that are pickles, which can run any code when they are read.

        With `early`, backends that support it may write files between snapshots.

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
                open_store=_open_to_read,
            )
        )

    def open_keyed(self, opening: Opening) -> KeyedStateBackend:
        """Open keyed state as `open` does; for backends that do more than supply a store."""
        make_store = partial(
            self.open_store, opening.uid, opening.key_groups, opening.max_parallelism
        )
        return KeyedStateBackend(make_store, opening)


OpenBackend = Callable[[str], StateBackend]
"""Opens the backend of a name for reading: its files, or changes replayed through it."""


def load_backend(name: str, **options: Any) -> StateBackend:
    """The state backend that is registered under the name, with these options.

    Raises:
        Invalid: an unknown name or option, two plug-ins of one name, or a missing extra (the
            message says what to install).
    """
    registered = registered_backends()
    if name not in registered:
        raise plugins.unknown_name(name, registered, BACKEND_GROUP, _WHAT)
    factory = plugins.load(registered[name], _WHAT)
    plugins.check_options(factory, options, _WHAT)
    backend: StateBackend = factory(**options)
    return backend


def usual_backend(name: str) -> StateBackend:
    """The backend of this name without options, set up for reading; see `for_reading`.

    Raises:
        Invalid: as `load_backend`.
    """
    return load_backend(name).for_reading()


def replaying_backend() -> str:
    """The name of the backend that replays changes where any would do.

    One of the group `holdfast.backends_on_disk`: so a log that is longer than memory can be read.
    """
    return min(plugins.registered(_ON_DISK_GROUP, _WHAT))


def registered_backends() -> dict[str, EntryPoint]:
    """Every registered name with its entry point.

    Raises:
        Invalid: two distributions register one name.
    """
    return plugins.registered(BACKEND_GROUP, _WHAT)


def _open_to_read(
    name: str, uid: str, key_groups: KeyGroupRange, max_parallelism: int
) -> TableStore:
    """An `OpenStore`, by way of the registry."""
    return usual_backend(name).open_store(uid, key_groups, max_parallelism)
