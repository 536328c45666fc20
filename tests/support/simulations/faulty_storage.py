"""A storage in memory that fails now and then, and tells of what is completed and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from holdfast.storage import (
    Buffer,
    Capabilities,
    CheckpointMetadata,
    JobManagerCheckpointStorage,
    ObjectInfo,
    ObjectWriter,
    SeededEntropy,
    Unavailable,
)
from holdfast.storage.jobs.metadata import METADATA
from support.simulations.world import Action, Killed, Process, World

_INLINE_BYTES = 300
_by_key: WeakValueDictionary[int, SimulatedStorage] = WeakValueDictionary()
"""All that there are, for those that travel: in a simulated world there is one process."""
_keys = count()


def _the_one(key: int) -> SimulatedStorage:
    return _by_key[key]


class SimulatedStorage(JobManagerCheckpointStorage):
    """Keeps files as others do, so that slots write them; small state travels inline."""

    def __init__(
        self,
        world: World,
        on_completed: Callable[[CheckpointMetadata, set[str]], None],
        on_deleted: Callable[[list[str]], None],
    ) -> None:
        entropy = SeededEntropy(world.random.randrange(2**32))
        super().__init__(max_state_bytes=_INLINE_BYTES, clock=world.clock, entropy=entropy)
        self._world = world
        self._key = next(_keys)
        _by_key[self._key] = self
        self._on_completed = on_completed
        self._on_deleted = on_deleted
        self._late: list[tuple[str, Buffer]] = []
        self._gone: set[str] = set()
        self._network = Process("network")
        world.actors.append(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _the_one, (self._key,)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(shared_between_processes=True, durable=True, atomic_create=True)

    def create(self, name: str, data: Buffer) -> bytes | None:
        mishap = self._begin("create", "fails", "answer is lost", "kill before", "kill after")
        is_point = name.endswith("/_metadata")
        if is_point and self._world.mishap("create is carried out late", rate=0.03):
            self._late.append((name, data))
            raise Unavailable("the storage does not answer")
        existing = self._create(name, data)
        self._end(mishap)
        return existing

    def actions(self) -> Iterable[Action]:
        """Commit points that were on their way when their writers had to give up waiting."""
        if self._late:
            yield Action("late create", self._network, self._arrive, 0.05)

    def _arrive(self) -> None:
        self._create(*self._late.pop(0))

    def _create(self, name: str, data: Buffer) -> bytes | None:
        existing = super().create(name, data)
        if existing is None and name.endswith("/_metadata"):
            metadata = METADATA.unseal(bytes(data), where=name)
            self._world.note(f"checkpoint {metadata.checkpoint_id} of {metadata.epoch} is written")
            if name not in self._gone:  # what was deleted is void, though it is there once more
                folder = name.partition("/")[0]
                files = {info.name.partition("/")[2] for info in super().list(f"{folder}/")}
                self._on_completed(metadata, files)
        return existing

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        self._begin("read", "fails")
        return super().read_range(name, offset, length)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._begin("list", "fails")
        return super().list(prefix)

    def delete(self, names: Iterable[str]) -> None:
        mishap = self._begin("delete", "fails", "answer is lost")
        gone = [*names]
        super().delete(gone)
        self._gone.update(gone)
        self._on_deleted([name.partition("/")[2] for name in gone])
        self._end(mishap)

    def writer(self, name: str) -> ObjectWriter:
        return _Writer(self, super().writer(name), name)

    def tear(self, name: str, data: bytes) -> None:
        """Half of the file is there when its writer dies."""
        writer = super().writer(name)
        writer.write(data[: len(data) // 2])
        writer.commit()
        self._world.kill(self._world.process)
        raise Killed

    def _begin(self, action: str, *kinds: str) -> str | None:
        world = self._world
        if not world.process.is_alive:
            raise Killed
        mishap = world.mishap(*(f"{action}: {kind}" for kind in kinds), rate=0.01)
        kind = None if mishap is None else mishap.partition(": ")[2]
        if kind == "kill before":
            world.kill(world.process)
            raise Killed
        if kind == "fails":
            raise Unavailable(f"the storage fails to {action}")
        return kind

    def _end(self, kind: str | None) -> None:
        world = self._world
        if kind == "kill after":
            world.kill(world.process)
            raise Killed
        if kind == "answer is lost":
            raise Unavailable("the storage does not answer")


class _Writer(ObjectWriter):
    def __init__(self, storage: SimulatedStorage, inner: ObjectWriter, name: str) -> None:
        self._storage = storage
        self._inner = inner
        self._name = name
        self._written: list[bytes] = []

    def write(self, data: Buffer) -> None:
        self._storage._begin("write", "fails")
        self._inner.write(data)
        self._written.append(bytes(data))

    def commit(self) -> None:
        mishap = self._storage._begin("close", "fails", "answer is lost", "kill before", "torn")
        if mishap == "torn":
            self._storage.tear(self._name, b"".join(self._written))
        self._inner.commit()
        self._storage._end(mishap)

    def abort(self) -> None:
        self._inner.abort()
