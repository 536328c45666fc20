"""Canonical savepoints: how fast they are written, how long they are, and what a job feels of them.

Figures of issue 9: 10 M entries of 16-byte keys and 8-byte values are written at 1 M entries a
second from hashmap, on one core, and take at most 0.5 of what they take as the files of RocksDB
without compression, or 1.2 of those with it. From trigger to path at most 3 s at 1 M keys of a job
on Spark under load, on two cores, whose throughput meanwhile is at least 0.7 of that before.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.checkpointed import Numbers, label_of, pieces, place
from benchmarks.harness import Result, Scale, rate
from benchmarks.spine import RunningSum, SumBatches
from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    ReducingStateDescriptor,
    SnapshotForm,
    StateBackend,
    load_backend,
)
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.jobs.savepoint import SAVEPOINT

__all__ = ["SAVED", "run", "saved_by_hashmap"]

_GROUPS = 128
_MEMORY_BYTES = 512 << 20
_TYPES = {"int": int, "str": str}
_SUM = ReducingStateDescriptor("sum", operator.add, int)
_COMPRESSIONS = {"plain": ("kNoCompression", "<= 0.5"), "lz4": ("kLZ4Compression", "<= 1.2")}


SAVED = {"operator": "bench", "state": "sum"}
"""What is in such a savepoint."""


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    count = scale.pick(10_000_000, 2_000)
    for kind in _TYPES:
        yield from _written(scale, kind, count)
    yield from _under_load(scale, scale.pick(1_000_000, 200))


def _written(scale: Scale, kind: str, count: int) -> Iterator[Result]:
    parameters = {"entries": count, "key_type": kind}
    with place() as folder:
        storage = load_storage(str(folder / "savepoints"))
        saved: list[tuple[SavepointFolder, StateSnapshot]] = []
        with _opened(load_backend("hashmap"), kind) as state:
            _fill(scale, state, kind, count)
            rates = rate(lambda: saved.append(_saved(state, storage)), count, scale)
        where, snapshot = saved[-1]
        with _opened(load_backend("hashmap"), kind, where, snapshot) as restored:
            total = int(
                restored.get_state(_SUM).get_many(_keys(kind, np.arange(count))).to_numpy().sum()
            )
        yield Result(
            f"savepoint.write.{kind}.{label_of(count)}",
            "entries/s",
            rates,
            f"all are there: {total == sum(range(count))}",
            ">= 1e6",
            {**parameters, "bytes_an_entry": round(snapshot.size_bytes / count, 2)},
        )
        for name, (compression, target) in _COMPRESSIONS.items():
            native = _in_rocksdb(scale, kind, count, folder / name, compression)
            yield Result(
                f"savepoint.size.{kind}.{name}.{label_of(count)}",
                f"bytes, share of those of RocksDB's files, {name}",
                (snapshot.size_bytes / native,),
                "",
                target,
                {**parameters, "native_bytes_an_entry": round(native / count, 2)},
            )


def saved_by_hashmap(scale: Scale, kind: str, count: int, folder: Path) -> str:
    """The URL of a whole canonical savepoint of the numbers below this one, by a key each."""
    with _opened(load_backend("hashmap"), kind) as state:
        _fill(scale, state, kind, count)
        where, snapshot = _saved(state, load_storage(str(folder / "saved")))
    operator = OperatorState(parallelism=1, max_parallelism=_GROUPS, parts=(snapshot,))
    where.commit(
        CheckpointMetadata(
            job_id="bench",
            checkpoint_id=1,
            kind=SAVEPOINT,
            triggered_ms=0,
            completed_ms=0,
            operators={SAVED["operator"]: operator},
        )
    )
    return where.url


def _opened(
    backend: StateBackend,
    kind: str,
    storage: SavepointFolder | None = None,
    *restore: StateSnapshot,
) -> KeyedStateBackend:
    return backend.open(
        uid="bench",
        key_groups=KeyGroupRange(0, _GROUPS - 1),
        max_parallelism=_GROUPS,
        key_type=_TYPES[kind],
        restore=restore,
        storage=storage,
    )


def _keys(kind: str, numbers: Numbers) -> pa.Array:
    """Keys of which a text has 16 bytes."""
    if kind == "int":
        return pa.array(numbers)
    return pa.array(np.char.mod("user-%011d", numbers), pa.string())


def _fill(scale: Scale, state: KeyedStateBackend, kind: str, count: int) -> None:
    sums: Any = state.get_state(_SUM)
    for numbers in pieces(np.random.default_rng(3).permutation(count), scale):
        sums.reduce_many(_keys(kind, numbers), pa.array(numbers))


def _saved(
    state: KeyedStateBackend, storage: CheckpointStorage
) -> tuple[SavepointFolder, StateSnapshot]:
    folder = SavepointFolder.begin(storage, "bench")
    return folder, state.snapshot(1, folder, form=SnapshotForm.CANONICAL).result()


def _in_rocksdb(scale: Scale, kind: str, count: int, folder: Path, compression: str) -> int:
    """How long the same entries are as its files."""
    backend = RocksDBStateBackend(
        memory=_MEMORY_BYTES,
        directories=[str(folder / "work")],
        options={"compression": compression},
    )
    storage = load_storage(str(folder / "savepoints"))
    with _opened(backend, kind) as state:
        _fill(scale, state, kind, count)
        target = SavepointFolder.begin(storage, "bench")
        return state.snapshot(1, target, form=SnapshotForm.NATIVE).result().size_bytes


def _under_load(scale: Scale, keys: int) -> Iterator[Result]:
    """Savepoints one after the other while a job works as fast as it can, and stretches without."""
    batch_rows = scale.pick(1_000_000, 500)
    with (
        place() as folder,
        RunningSum(SumBatches(), keys, batch_rows) as running,
    ):
        running.until_batch(scale.pick(8, 1))
        took, shares = list[float](), list[float]()
        for _ in range(min(scale.repetitions, 3)):
            began, at = time.perf_counter(), running.rows()
            ended = running.until_batch(running.batches() + scale.pick(8, 1))
            before = (running.rows() - at) / (ended - began)
            began, at = time.perf_counter(), running.rows()
            for _ in range(scale.pick(2, 1)):
                asked = time.perf_counter()
                running.job.trigger_savepoint(str(folder))
                took.append(time.perf_counter() - asked)
            during = (running.rows() - at) / (time.perf_counter() - began)
            shares.append(during / before)
    parameters = {"keys": keys, "batch_rows": batch_rows, "slots": 2, "interval": "1s"}
    label = label_of(keys)
    yield Result(
        f"savepoint.trigger.{label}", "s until its path", tuple(took), "", "<= 3", parameters
    )
    yield Result(
        f"savepoint.throughput.{label}",
        "rows a second, share of those before",
        tuple(shares),
        "",
        ">= 0.7",
        parameters,
    )
