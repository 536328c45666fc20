"""The changelog backend: logs every change over any other backend, and materializes periodically.

Backpressure is polled: a slot calls `tend` for each operator in each turn of its loop, and one that
holds too many bytes answers that it has no room, so that its chain takes no batch. No call of a
user's function ever blocks on an upload.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from holdfast.backends import BackendCapabilities, StateBackend, load_backend
from holdfast.backends.keyed.backend import KeyedStateBackend, Opening
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.snapshotter import Snapshots
from holdfast.backends.tables.contract import TableStore
from holdfast.changelog.options import ChangelogOptions
from holdfast.changelog.recording.store import LoggedStore
from holdfast.changelog.snapshots import ChangelogSnapshots
from holdfast.changelog.writing.local_copies import CopiesFirst, LocalCopies
from holdfast.changelog.writing.storages import load_changelog_storage
from holdfast.changelog.writing.target import LoggedOperator, LogTarget
from holdfast.changelog.writing.uploader import LogUploader
from holdfast.storage import Entropy, Invalid, SystemEntropy

__all__ = ["ChangelogStateBackend"]


@dataclass(slots=True)
class _Shared:
    """Shared by the operators of a slot, as long as one of them is open."""

    uploader: LogUploader | None
    copies: LocalCopies | None
    users: int = 0


class ChangelogStateBackend(StateBackend):
    """Any backend, with checkpoints that cost what has changed, not what there is.

    Args:
        inner: the backend that holds the state, or its registered name.
        options: how changes are logged; single options can be passed by name: `log_ratio=2.0`.

    Raises:
        Invalid: `inner` is a changelog itself or not a backend, or an option is out of range.
    """

    def __init__(
        self,
        inner: StateBackend | str = "hashmap",
        options: ChangelogOptions | None = None,
        *,
        entropy: Entropy | None = None,
        **named: Any,
    ) -> None:
        backend: object = load_backend(inner) if isinstance(inner, str) else inner
        if not isinstance(backend, StateBackend) or isinstance(backend, ChangelogStateBackend):
            raise Invalid(
                "a changelog wraps another state backend",
                expected="a StateBackend that is no changelog, or the name of one",
                found=repr(inner),
            )
        self.inner = backend
        self.options = _with_named(options or ChangelogOptions(), named)
        self._storage = load_changelog_storage(self.options.storage)
        self._entropy = entropy or SystemEntropy()
        self._lock = threading.Lock()
        self._shared: dict[str, _Shared] = {}

    def __repr__(self) -> str:
        return f"ChangelogStateBackend({self.inner!r})"

    def __getstate__(self) -> dict[str, Any]:
        kept = ("inner", "options", "_storage", "_entropy")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._shared = {}

    @property
    def capabilities(self) -> BackendCapabilities:
        return replace(self.inner.capabilities, own_snapshots=True)

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        return LoggedStore(self.inner.open_store(uid, key_groups, max_parallelism))

    def open_keyed(self, opening: Opening) -> KeyedStateBackend:
        make_store = partial(
            self.open_store, opening.uid, opening.key_groups, opening.max_parallelism
        )
        target = self._enter(opening)
        if target is not None and target.copies is not None and opening.storage is not None:
            opening = replace(opening, storage=CopiesFirst(opening.storage, target.copies))
        try:
            return KeyedStateBackend(make_store, opening, partial(self._snapshots, opening, target))
        except BaseException:
            self._leave(target)
            raise

    def metrics(self) -> Mapping[str, float]:
        with self._lock:
            numbers = [
                shared.uploader.statistics for shared in self._shared.values() if shared.uploader
            ]
        latencies_s = sorted(each for one in numbers for each in tuple(one.latencies_s))
        told = {
            "log_uploads": float(sum(one.files for one in numbers)),
            "log_uploaded_bytes": float(sum(one.bytes for one in numbers)),
            "log_upload_failures": float(sum(one.failures for one in numbers)),
        }
        if latencies_s:
            for percent in (50, 95, 99):
                place = min(len(latencies_s) * percent // 100, len(latencies_s) - 1)
                told[f"log_upload_p{percent}_s"] = latencies_s[place]
        return {**self.inner.metrics(), **told}

    def _snapshots(
        self,
        opening: Opening,
        target: LogTarget | None,
        store: TableStore,
        uid: str,
        key_groups: KeyGroupRange,
        max_parallelism: int,
    ) -> Snapshots:
        assert isinstance(store, LoggedStore)
        return ChangelogSnapshots(
            store,
            LoggedOperator(uid, key_groups, max_parallelism, self.options, self._entropy.token()),
            clock=opening.clock,
            target=target,
            is_restored=bool(opening.restore),
            on_close=partial(self._leave, target),
        )

    def _enter(self, opening: Opening) -> LogTarget | None:
        """Where an operator writes between checkpoints; operators of a slot share the uploader."""
        early, options = opening.early, self.options
        if early is None:
            return None
        job = early.job
        if not options.compression:
            options = replace(options, compression=early.compression)
        with self._lock:
            shared = self._shared.get(job.url)
            if shared is None:
                copies = uploader = None
                if options.local_copies is not None:
                    copies = LocalCopies(
                        options.local_copies, job.job_id, opening.clock, self._entropy
                    )
                if job.storage.capabilities.keeps_segment_files:
                    uploader = LogUploader(job, self._storage, options, opening.clock, copies)
                shared = self._shared[job.url] = _Shared(uploader, copies)
            shared.users += 1
        first = early.first_checkpoint_id
        return LogTarget(job, shared.uploader, first, shared.copies, early.compression)

    def _leave(self, target: LogTarget | None) -> None:
        if target is None:
            return
        with self._lock:
            shared = self._shared[target.job.url]
            shared.users -= 1
            if shared.users:
                return
            del self._shared[target.job.url]
        if shared.uploader is not None:
            shared.uploader.close()


def _with_named(options: ChangelogOptions, named: dict[str, Any]) -> ChangelogOptions:
    try:
        return replace(options, **named)
    except TypeError:
        raise Invalid(
            "a changelog does not have these options",
            expected=", ".join(ChangelogOptions.__dataclass_fields__),
            found=", ".join(sorted(named)),
        ) from None
