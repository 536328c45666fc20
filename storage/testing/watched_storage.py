"""A storage that calls a hook before and after every call: the test decides what happens there.

A deletion of many is many calls, and a listing is read in full at its call: a hook can stop the
caller at every point at which a kill could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident

from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.errors import Unavailable
from holdfast.storage.interface import (
    Buffer,
    Capabilities,
    ObjectInfo,
    ObjectStorage,
    ObjectWriter,
    UnfinishedWrite,
)

__all__ = [
    "ByThread",
    "Call",
    "Hook",
    "Kill",
    "Killed",
    "Recorder",
    "WatchedStorage",
    "lose_answer",
]


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the verb, or the method of a writer, and its object or prefix."""

    verb: str
    name: str


Hook = Callable[[Call], None]


def _pass(_: Call) -> None:
    """The hook that does nothing."""


class Killed(BaseException):
    """Ends a caller at a call, as a kill would; no code handles it."""


class Kill:
    """A hook that lets so many calls through and no more, not even those of clean-up."""

    def __init__(self, after: int) -> None:
        self._left = after

    def __call__(self, call: Call) -> None:
        if self._left == 0:
            raise Killed(call)
        self._left -= 1


class Recorder:
    """A hook that records calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, call: Call) -> None:
        self.calls.append(call)


class ByThread:
    """A hook that delegates to one for each thread; threads without one pass."""

    def __init__(self) -> None:
        self._hooks: dict[int, Hook] = {}

    def __call__(self, call: Call) -> None:
        self._hooks.get(get_ident(), _pass)(call)

    @contextmanager
    def asking(self, hook: Hook) -> Iterator[None]:
        """Call this hook before each call of this thread, within the block."""
        self._hooks[get_ident()] = hook
        try:
            yield
        finally:
            del self._hooks[get_ident()]


def lose_answer(verb: str, part_of_name: str) -> Hook:
    """A hook that raises Unavailable once, at the first such call; for use after calls."""
    left = [None]

    def lose(call: Call) -> None:
        if call.verb == verb and part_of_name in call.name and left:
            left.clear()
            raise Unavailable("the answer was lost", where=call.name)

    return lose


class WatchedStorage(CheckpointStorage):
    """Another storage, with a hook `before` each call and one `after` its effect."""

    def __init__(self, inner: ObjectStorage, *, before: Hook = _pass, after: Hook = _pass) -> None:
        super().__init__(
            inline_limit_bytes=inner.inline_limit_bytes, clock=inner.clock, entropy=inner.entropy
        )
        self._inner = inner
        self.before = before
        self.after = after

    @contextmanager
    def asking(self, before: Hook) -> Iterator[None]:
        """Call this hook before each call, within the block."""
        outside, self.before = self.before, before
        try:
            yield
        finally:
            self.before = outside

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def identity(self) -> str:
        return self._inner.identity

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    @contextmanager
    def watched(self, verb: str, name: str) -> Iterator[None]:
        """Call the hooks around the block; `after` only if it succeeds."""
        call = Call(verb, name)
        self.before(call)
        yield
        self.after(call)

    def prepare(self) -> None:
        with self.watched("prepare", ""):
            self._inner.prepare()

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        with self.watched("read_range", name):
            return self._inner.read_range(name, offset, length)

    def writer(self, name: str) -> ObjectWriter:
        with self.watched("writer", name):
            return _WatchedWriter(self, name, self._inner.writer(name))

    def create(self, name: str, data: Buffer) -> bytes | None:
        with self.watched("create", name):
            return self._inner.create(name, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with self.watched("list", prefix):
            return iter([*self._inner.list(prefix)])

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self.watched("delete", name):
                self._inner.delete([name])

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        with self.watched("unfinished", prefix):
            return iter([*self._inner.unfinished(prefix)])


class _WatchedWriter(ObjectWriter):
    def __init__(self, storage: WatchedStorage, name: str, inner: ObjectWriter) -> None:
        self._storage = storage
        self._name = name
        self._inner = inner

    def write(self, data: Buffer) -> None:
        with self._storage.watched("write", self._name):
            self._inner.write(data)

    def commit(self) -> None:
        with self._storage.watched("commit", self._name):
            self._inner.commit()

    def abort(self) -> None:
        with self._storage.watched("abort", self._name):
            self._inner.abort()
