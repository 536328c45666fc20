"""A storage in memory that counts what a store would be asked, and may be slow or refuse."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from holdfast.storage import (
    Buffer,
    Capabilities,
    JobManagerCheckpointStorage,
    ObjectInfo,
    ObjectWriter,
    UnfinishedWrite,
)


class CountingStorage(JobManagerCheckpointStorage):
    """Keeps files as others do. Each call counts once, a deletion of many names too."""

    def __init__(self, *, late_creates: bool = False) -> None:
        super().__init__(max_state_bytes=300)
        self._late_creates = late_creates
        self._counts_lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()
        """How many names each kind of listing has shown."""
        self.batches: list[list[str]] = []
        self.on_delete: Callable[[list[str]], None] = lambda _: None
        """Called with the names before they are deleted; may wait, or raise."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            shared_between_processes=True,
            durable=True,
            atomic_create=True,
            late_creates=self._late_creates,
        )

    def _count(self, call: str) -> None:
        with self._counts_lock:
            self.calls[call] += 1

    def create(self, name: str, data: Buffer) -> bytes | None:
        self._count("create")
        return super().create(name, data)

    def writer(self, name: str) -> ObjectWriter:
        self._count("writer")
        return super().writer(name)

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        self._count("read")
        return super().read_range(name, offset, length)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        kind = "list owners" if prefix.endswith("/owner-") else "list all"
        self._count(kind)
        found = [*super().list(prefix)]
        self.listed[kind] += len(found)
        return iter(found)

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        self._count("unfinished")
        return super().unfinished(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self._count("delete")
        batch = [*names]
        self.batches.append(batch)
        self.on_delete(batch)
        super().delete(batch)
