"""A storage that passes its verbs on to an object that knows how to reach its place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Protocol

from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.interface import Buffer, ObjectInfo, ObjectWriter, UnfinishedWrite

__all__ = ["DelegatingStorage", "Verbs"]


class Verbs(Protocol):
    """The verbs of a place; `ObjectStorage` says what each method owes."""

    def prepare(self) -> None: ...
    def read_range(self, name: str, offset: int, length: int | None) -> bytes: ...
    def writer(self, name: str) -> ObjectWriter: ...
    def create(self, name: str, data: Buffer) -> bytes | None: ...
    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...
    def delete(self, names: Iterable[str]) -> None: ...
    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]: ...


class DelegatingStorage(CheckpointStorage):
    """Passes every verb on; URL, identity and capabilities are left to its subclasses."""

    @property
    @abstractmethod
    def _verbs(self) -> Verbs:
        """The object that carries them out, in this process."""

    def prepare(self) -> None:
        self._verbs.prepare()

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        return self._verbs.read_range(name, offset, length)

    def writer(self, name: str) -> ObjectWriter:
        return self._verbs.writer(name)

    def create(self, name: str, data: Buffer) -> bytes | None:
        return self._verbs.create(name, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._verbs.list(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self._verbs.delete(names)

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        return self._verbs.unfinished(prefix)
