"""Checkpoints in the memory of the driver ("JobManager", as Flink calls it): for small state.

Slots never write to it: their state travels inline in the acknowledgement, and `_metadata` with
all of it is kept here. It is gone when the process ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.clock import Clock
from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import Invalid, NotFound
from holdfast.storage.interface import (
    Buffer,
    Capabilities,
    ObjectInfo,
    ObjectWriter,
    UnfinishedWrite,
    check_range,
)
from holdfast.storage.names import check_name
from holdfast.storage.options.checks import check_count
from holdfast.storage.places.whole_writer import WholeWriter

__all__ = ["JobManagerCheckpointStorage"]

_SCHEME = "memory://"


class _Objects:
    """The objects of one memory storage, and the lock that makes `create` have one winner."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}


_named_objects: dict[str, _Objects] = {}
_named_objects_lock = threading.Lock()


def _objects_of(url: str) -> _Objects:
    name = url.removeprefix(_SCHEME)
    if not name:
        return _Objects()
    with _named_objects_lock:
        return _named_objects.setdefault(name, _Objects())


class JobManagerCheckpointStorage(CheckpointStorage):
    """Keeps checkpoints in this process's memory.

    `memory://` is a place of its own for each storage object; `memory://name` is one place for all
    storages of this name in this process, until the process ends. A pickled copy keeps the
    settings, so that slots know that state must travel inline, and refuses to read or write.
    """

    def __init__(
        self,
        url: str = _SCHEME,
        *,
        max_state_bytes: int = 5 * 1024 * 1024,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """`max_state_bytes` bounds each segment of state, as in Flink."""
        if not url.startswith(_SCHEME):
            raise Invalid("not the URL of a memory storage", expected="memory://", found=url)
        check_count(max_state_bytes, name="option max_state_bytes", least=0)
        super().__init__(inline_limit_bytes=max_state_bytes, clock=clock, entropy=entropy)
        self._url = url
        self._kept: _Objects | None = _objects_of(url)

    @property
    def url(self) -> str:
        return self._url

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            shared_between_processes=False,
            durable=False,
            atomic_create=True,
            keeps_segment_files=False,
            late_creates=False,
        )

    def prepare(self) -> None:
        self._here()

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        check_name(name)
        end = check_range(name, offset, length)
        try:
            return self._here().objects[name][offset:end]
        except KeyError:
            raise NotFound("no such object", where=f"{self._url}: {name}") from None

    def writer(self, name: str) -> ObjectWriter:
        check_name(name)
        place = self._here()

        def put(data: bytes) -> None:
            with place.lock:
                place.objects[name] = data

        return WholeWriter(put, name)

    def create(self, name: str, data: Buffer) -> bytes | None:
        check_name(name)
        mine = bytes(data)
        place = self._here()
        with place.lock:
            existing = place.objects.get(name)
            if existing is None:
                place.objects[name] = mine
        return existing

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        place = self._here()
        with place.lock:
            found = sorted(name for name in place.objects if name.startswith(prefix))
        for name in found:
            data = place.objects.get(name)
            if data is not None:
                yield ObjectInfo(name, len(data))

    def delete(self, names: Iterable[str]) -> None:
        place = self._here()
        failure: Invalid | None = None
        for name in names:
            try:
                check_name(name)
            except Invalid as error:
                failure = failure or error
                continue
            with place.lock:
                place.objects.pop(name, None)
        if failure is not None:
            raise failure

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        self._here()
        return iter(())

    def _here(self) -> _Objects:
        if self._kept is None:
            raise Invalid(
                "a memory storage can be used only in the process that made it",
                where=self._url,
                fix="Use a storage that processes share, such as file://, hdfs:// or s3://",
            )
        return self._kept

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}
