"""Files that snapshots share, in a simulated world: as a backend has them that writes only news.

Each snapshot of an operator in a slot writes one file more, and refers to some of those that its
base has, and drops the others for good. So a file lives for as long as chance wants it to, and one
that was deleted too early is missed. A restore reads them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from holdfast.backends import KeyedStateBackend, Segments, SnapshotForm, SnapshotTarget
from holdfast.storage import Handle, StateFolder, StateSnapshot
from support.simulations.world import Broken, World

_PREFIX = "simulated/"
_KEPT = 0.6


class SharedFiles:
    """The files beside the state of one operator in one slot, from its opening on."""

    def __init__(
        self, uid: str, restore: Sequence[StateSnapshot], storage: StateFolder | None
    ) -> None:
        self._uid = uid
        self._world = World.current()
        self._base: Mapping[str, Handle] = {}
        self._written: dict[int, Mapping[str, Handle]] = {}
        self._restored: Mapping[str, Handle] = {}
        for snapshot in restore:
            assert storage is not None
            self._restored = {**self._restored, **_shared(snapshot)}
        for name, handle in self._restored.items():
            assert storage is not None
            if storage.read(handle) != self._content(name):  # or there is none: a slot of the past
                raise Broken(f"{name} of {uid} is another's")

    def join(self, state: KeyedStateBackend) -> KeyedStateBackend:
        """Have the state take them into its snapshots."""
        snapshot, completed = state.snapshot, state.notify_checkpoint_complete
        build_on = state.build_on_restored

        def taken(number: int, target: SnapshotTarget, **more: Any) -> Future[StateSnapshot]:
            is_own = more.get("form", SnapshotForm.OWN) is SnapshotForm.OWN
            kept = self._chosen() if is_own else {}
            part = _Part(self, number, target, kept)
            return _Joined(snapshot(number, part, **more), part)

        def told(number: int) -> None:
            self._complete(number)
            completed(number)

        def built_on() -> None:
            self._base = self._restored
            build_on()

        state.build_on_restored = built_on  # type: ignore[method-assign]
        state.snapshot = taken  # type: ignore[method-assign, assignment]
        state.notify_checkpoint_complete = told  # type: ignore[method-assign, assignment]
        return state

    def write(self, number: int, target: SnapshotTarget, kept: Mapping[str, Handle]) -> None:
        """Write the file of this snapshot, in the background."""
        name = f"{_PREFIX}{number}"
        with target.shared_segments(number, self._uid) as segments:
            handle = segments.add(self._content(name))
        self._written[number] = {**kept, name: handle}

    def handles(self, number: int) -> Mapping[str, Handle]:
        """What the snapshot refers to."""
        return self._written.get(number, {})

    def _chosen(self) -> Mapping[str, Handle]:
        """At the barrier: what of its base a snapshot refers to."""
        chance = self._world.random
        return {name: each for name, each in self._base.items() if chance.random() < _KEPT}

    def _complete(self, number: int) -> None:
        self._base = self._written.get(number, self._base)
        self._written = {each: its for each, its in self._written.items() if each > number}

    def _content(self, name: str) -> bytes:
        return f"{self._uid} {name}".encode() * 10


class _Part:
    """The target of one snapshot: the shared file is written into it first."""

    def __init__(
        self, files: SharedFiles, number: int, target: SnapshotTarget, kept: Mapping[str, Handle]
    ) -> None:
        self._files = files
        self._number = number
        self._target = target
        self._kept = kept
        self._has_written = False

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        self._write_once()
        return self._target.segments(checkpoint_id, label, compression=compression)

    def table_file(self, checkpoint_id: int, path: str) -> Segments:
        self._write_once()
        return self._target.table_file(checkpoint_id, path)

    def _write_once(self) -> None:
        if not self._has_written:
            self._has_written = True
            self._files.write(self._number, self._target, self._kept)

    def shared_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        return self._target.shared_segments(checkpoint_id, label, compression=compression)

    def log_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        return self._target.log_segments(checkpoint_id, label, compression=compression)

    def joined(self, snapshot: StateSnapshot) -> StateSnapshot:
        handles = {**snapshot.handles, **self._files.handles(self._number)}
        return msgspec.structs.replace(snapshot, handles=handles)


class _Joined(Future[StateSnapshot]):
    """A snapshot with the files beside it."""

    def __init__(self, inner: Future[StateSnapshot], part: _Part) -> None:
        super().__init__()
        self._inner = inner
        self._part = part
        inner.add_done_callback(self._end)

    def cancel(self) -> bool:
        return self._inner.cancel()

    def _end(self, inner: Future[StateSnapshot]) -> None:
        try:
            self.set_result(self._part.joined(inner.result()))
        except BaseException as error:  # noqa: BLE001 - the waiting caller gets it
            self.set_exception(error)


def without_shared(snapshot: StateSnapshot) -> StateSnapshot:
    """The snapshot as the backend has made it."""
    shared = _shared(snapshot)
    handles = {name: each for name, each in snapshot.handles.items() if name not in shared}
    return msgspec.structs.replace(snapshot, handles=handles)


def _shared(snapshot: StateSnapshot) -> dict[str, Handle]:
    return {name: each for name, each in snapshot.handles.items() if name.startswith(_PREFIX)}
