"""Keyed state of one slot whose checkpoints are committed, with a changelog and without."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.harness import Scale
from holdfast.backends import KeyedStateBackend, KeyGroupRange, StateBackend
from holdfast.backends.hashmap import HashMapStateBackend
from holdfast.backends.keyed.backend import EarlyFiles
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.snapshots.neutral import SnapshotFuture
from holdfast.backends.values.codec import value_codec_for
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.storage import (
    CheckpointMetadata,
    OperatorState,
    StateSnapshot,
    SystemClock,
    load_storage,
)
from holdfast.storage.jobs.decisions import open_from

__all__ = [
    "KINDS",
    "CheckpointedState",
    "Stretch",
    "label_of",
    "own_bytes",
    "pieces",
    "place",
]

KINDS = ("hashmap", "rocksdb")
Numbers = np.ndarray[Any, Any]
_UID = "bench"
_GROUPS = 128
_MEMORY_BYTES = 512 << 20
_BATCH_ROWS = 64 * 1024
_GROUP_BYTES = 2
_PAUSE_S = 0.001
_CLEAN_PAUSE_S = 60
_ABOVE_ALL = 1 << 62
_CLOCK = SystemClock()


@contextmanager
def place() -> Iterator[Path]:
    """A folder for a while, where HOLDFAST_BENCH_DIR says: the temporary folder may be memory."""
    with tempfile.TemporaryDirectory(
        prefix="holdfast-bench-", dir=os.environ.get("HOLDFAST_BENCH_DIR")
    ) as folder:
        yield Path(folder)


def label_of(count: int) -> str:
    """A number of keys as part of a name."""
    for unit, letter in ((1_000_000, "M"), (1000, "k")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def pieces(numbers: Numbers, scale: Scale) -> Iterator[Numbers]:
    """The numbers in batches."""
    size = scale.pick(_BATCH_ROWS, 1_024)
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def own_bytes(keys: Sequence[Any], values: Sequence[Any]) -> int:
    """How long these entries are by themselves: key group, key and value of each, encoded."""
    key_codec, value_codec = key_codec_for(type(keys[0])), value_codec_for(type(values[0]))
    parts = (*key_codec.encode_many(keys), *value_codec.encode_many(values))
    return _GROUP_BYTES * len(keys) + sum(map(len, parts))


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was done in some time, and how long the checkpoints took that were committed in it."""

    rows: int
    seconds: float
    checkpoint_ms: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


class CheckpointedState:
    """A slot's state, one checkpoint at a time. As a context manager it is closed on exit.

    It begins with what `fill` has put into plain state of the same kind. With `options` there is a
    changelog over that. As in a job, commits and deletions happen beside the slot: two threads
    stand for the driver, which keeps one checkpoint.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        options: ChangelogOptions | None,
        *,
        fill: Callable[[KeyedStateBackend], object],
        key_type: Any = int,
    ) -> None:
        self.folder = folder / "checkpoints"
        self.job = load_storage(str(self.folder)).job("bench")
        self.latest: tuple[StateSnapshot, ...] = ()
        """The part of the newest completed checkpoint."""
        self._plain = _plain(kind, folder / "work")
        self._options = options
        self._owner = self.job.take_over()
        self._number = self._owner.next_checkpoint_id
        self._newest = self._number - 1
        self._cleaned = time.perf_counter()
        self._key_type = key_type
        self._committer = ThreadPoolExecutor(1, "bench-commits")
        self._sweeper = ThreadPoolExecutor(1, "bench-deletes")
        self._committing: Future[float] | None = None
        with self._opened(self._plain) as self.state:
            fill(self.state)
            self.checkpoint()
        self.state = self.restored()
        self.state.build_on_restored()

    def restored(self) -> KeyedStateBackend:
        """Another one of the newest completed checkpoint."""
        backend = self._plain
        if self._options is not None:
            backend = ChangelogStateBackend(backend, self._options)
        return self._opened(backend)

    def _opened(self, backend: StateBackend) -> KeyedStateBackend:
        return backend.open(
            uid=_UID,
            key_groups=KeyGroupRange(0, _GROUPS - 1),
            max_parallelism=_GROUPS,
            key_type=self._key_type,
            restore=self.latest,
            storage=self.job,
            early=EarlyFiles(self.job, self._number),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._committer.shutdown(wait=True)
        self._sweeper.shutdown(wait=True)
        self.state.close()

    def tend(self) -> None:
        """What is done between batches; returns when more may be changed."""
        while not self.state.tend():
            _CLOCK.sleep_s(_PAUSE_S)

    @property
    def materializations(self) -> int:
        """How many there were."""
        return int(self.state.metrics().store.get("materializations", 0))

    def checkpoint(self) -> tuple[int, float]:
        """Make one and commit it; the bytes that it has written, and the seconds that took."""
        number, began = self._number, time.perf_counter()
        future = self._begin()
        snapshot = future.result()
        took = time.perf_counter() - began
        self._commit(number, snapshot)
        self.state.notify_checkpoint_complete(number)
        return snapshot.written_bytes(number), took

    def run(self, work: Callable[[], int], *, seconds: float, interval_s: float) -> Stretch:
        """Work batch by batch, each answering its rows; begin a checkpoint each interval.

        One that takes longer puts the next one off. A checkpoint takes from when it is begun until
        it is committed.
        """
        rows, took_ms = 0, list[float]()
        began = due = now = time.perf_counter()
        while now < began + seconds:
            rows += work()
            self.tend()
            now = time.perf_counter()
            if self._committing is not None and self._committing.done():
                took_ms.append(self._taken())
            if now >= due and self._committing is None:
                due = max(due + interval_s, now)
                number, begun, future = self._number, time.perf_counter(), self._begin()
                self._committing = self._committer.submit(self._finish, number, begun, future)
        ended = time.perf_counter()
        if self._committing is not None:
            self._committing.exception()
            took_ms.append(self._taken())
        return Stretch(rows, ended - began, tuple(took_ms))

    def stored_bytes(self) -> int:
        """What is below the job's folder, when all is deleted that is to be."""
        self._sweeper.submit(lambda: None).result()
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def _begin(self) -> SnapshotFuture:
        self._number += 1
        return self.state.snapshot(self._number - 1, self.job)

    def _finish(self, number: int, began: float, future: SnapshotFuture) -> float:
        self._commit(number, future.result())
        return (time.perf_counter() - began) * 1000

    def _commit(self, number: int, snapshot: StateSnapshot) -> None:
        state = OperatorState(parallelism=1, max_parallelism=_GROUPS, parts=(snapshot,))
        now_ms = _CLOCK.now_ms()
        metadata = self._owner.commit(
            CheckpointMetadata(
                job_id=self.job.job_id,
                checkpoint_id=number,
                triggered_ms=now_ms,
                completed_ms=now_ms,
                operators={_UID: state},
            )
        )
        self._owner.release(1)
        self._clean(metadata)
        self._sweeper.submit(self._owner.sweeper.run)
        self.latest = (snapshot,)

    def _clean(self, completed: CheckpointMetadata) -> None:
        """Once a minute, as a driver does: some files that are begun early are never needed."""
        before, self._newest = self._newest, completed.checkpoint_id
        now = time.perf_counter()
        if now - self._cleaned >= _CLEAN_PAUSE_S:
            self._cleaned = now
            first = min(before, open_from(completed.checkpoint_id, completed.begun_from))
            self._owner.release_orphans(in_flight=range(first, _ABOVE_ALL))

    def _taken(self) -> float:
        """How long the checkpoint took that is committed by now."""
        assert self._committing is not None
        took_ms, self._committing = self._committing.result(), None
        self.state.notify_checkpoint_complete(self._number - 1)
        return took_ms


def _plain(kind: str, folder: Path) -> StateBackend:
    if kind == "rocksdb":
        return RocksDBStateBackend(memory=_MEMORY_BYTES, directories=[str(folder)])
    return HashMapStateBackend()
