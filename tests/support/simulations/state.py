"""Real backends in slots of a simulated world: what a process has open ends with it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from holdfast.backends import (
    BackendCapabilities,
    KeyedStateBackend,
    KeyGroupRange,
    StateBackend,
    TableStore,
)
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.changelog.change_sets import ChangeSet
from holdfast.changelog.writing.storages import StateChangelogStorage
from holdfast.storage import (
    Clock,
    FileHandle,
    HoldfastError,
    JobStorage,
    SeededEntropy,
    StateFolder,
    StateSnapshot,
)
from support.simulations.shared_files import SharedFiles, without_shared
from support.simulations.world import Process, SimulatedExecutor, World


class SimulatedState(StateBackend):
    """A backend whose stores are closed by the world if the process that opened them is killed.

    Its snapshots have files beside them that they share.
    """

    def __init__(self, backend: StateBackend) -> None:
        self._backend = backend
        self._of_processes: WeakKeyDictionary[Process, StateBackend] = WeakKeyDictionary()

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
        with patch("holdfast.changelog.backend.LogUploader", SimulatedUploader):
            opened = self._mine().open(uid=uid, restore=plain, storage=storage, **more)
        return files.join(opened)

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        return self._mine().open_store(uid, key_groups, max_parallelism)

    def _mine(self) -> StateBackend:
        """The backend of this process; those of a changelog share what writes their logs."""
        process = World.current().process
        if process not in self._of_processes:
            self._of_processes[process] = _of_process(self._backend, process)
        return self._of_processes[process]


class _Watched(StateBackend):
    """A backend whose stores are closed with a process, or by the store's owner before."""

    def __init__(self, backend: StateBackend, process: Process) -> None:
        self._backend = backend
        self._process = process

    @property
    def capabilities(self) -> BackendCapabilities:
        return self._backend.capabilities

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        store = self._backend.open_store(uid, key_groups, max_parallelism)
        store.close = _once(store.close, self._process)  # type: ignore[method-assign]
        return store


def _of_process(backend: StateBackend, process: Process) -> StateBackend:
    if not isinstance(backend, ChangelogStateBackend):
        return _Watched(backend, process)
    entropy = SeededEntropy(zlib.crc32(process.name.encode()))
    inner = _Watched(backend.inner, process)
    return ChangelogStateBackend(inner, backend.options, entropy=entropy)


class SimulatedUploader:
    """Writes pieces of logs between checkpoints, one by one: stands for `LogUploader`."""

    has_room = True

    def __init__(
        self,
        job: JobStorage,
        storage: StateChangelogStorage,
        options: ChangelogOptions,
        _clock: Clock,
        _copies: Any,
    ) -> None:
        self._job = job
        self._storage = storage
        self._options = options
        self._executor = SimulatedExecutor(1, "logs")
        self._sizes: dict[str, int] = {}

    def size_of(self, file: str) -> int | None:
        return self._sizes.get(file)

    def hold(self, _holder: object, _size_bytes: int) -> None:
        """There is always room."""

    def submit(self, sets: Sequence[ChangeSet], number: int) -> None:
        for each in sets:
            each.upload = Future()
        self._executor.submit(self._write, sets, number)

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)

    def _write(self, sets: Sequence[ChangeSet], number: int) -> None:
        futures = [each.upload for each in sets if each.upload is not None]
        try:
            compression = self._options.compression
            with self._storage.begin(self._job, number, compression=compression) as writer:
                handles = [writer.add(each.encoded().data) for each in sets]
        except HoldfastError as error:
            for future in futures:
                future.set_exception(error)
            return
        for future, handle in zip(futures, handles, strict=True):
            if isinstance(handle, FileHandle):
                self._sizes[handle.file] = handle.offset + handle.length
            future.set_result(handle)


def _once(close: Callable[[], None], process: Process) -> Callable[[], None]:
    """Close it, by its owner or with its process."""

    def closing() -> None:
        if closing in process.at_death:
            process.at_death.remove(closing)
            close()

    process.at_death.append(closing)
    return closing
