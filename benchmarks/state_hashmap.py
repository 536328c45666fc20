"""Keyed state in the hashmap backend, against bare dicts.

Figures of issue 2, on one core, with 100 k and 1 M keys: the row view at 0.4 of the bare loop; the
batch view at 0.8 of the fastest bare version; a snapshot's pause at most 30 ns an entry; throughput
while one is written at 0.5 of without; snapshot and restore at 1 M entries a second.
"""

from __future__ import annotations

import operator
import tempfile
import time
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import (
    Result,
    Scale,
    compare,
    peak_memory_bytes,
    rate,
    reset_peak_memory,
    seconds,
)
from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.storage import JobStorage, StateSnapshot, load_storage

__all__ = ["run"]

_GROUPS = 128
_BATCH_ROWS = 64 * 1024
_TOTAL = ValueStateDescriptor("total", int)
_SUM = ReducingStateDescriptor("sum", operator.add, int)


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    for count in (scale.pick(100_000, 1_000), scale.pick(1_000_000, 2_000)):
        for kind in ("int", "str"):
            yield _rows(scale, count, kind)
            yield _batches(scale, count, kind)
    for count in (scale.pick(1_000_000, 1_000), scale.pick(10_000_000, 2_000)):
        yield from _snapshots(scale, count)


def _opened(restore: tuple[StateSnapshot, ...] = (), job: JobStorage | None = None) -> Any:
    return load_backend("hashmap").open(
        uid="bench",
        key_groups=KeyGroupRange(0, _GROUPS - 1),
        max_parallelism=_GROUPS,
        restore=restore,
        storage=job,
    )


def _keys(rows: int, count: int, kind: str) -> list[Any]:
    numbers = [(row * 7919) % count for row in range(rows)]
    return numbers if kind == "int" else [f"key-{number:09}" for number in numbers]


def _rows(scale: Scale, count: int, kind: str) -> Result:
    keys = _keys(scale.pick(2_000_000, 5_000), count, kind)
    bare: dict[Any, int] = {}
    with _opened() as backend:
        total = backend.get_state(_TOTAL)

        def ours() -> None:
            for key in keys:
                backend.set_current_key(key)
                total.update((total.value() or 0) + 1)

        def peer() -> None:
            for key in keys:
                bare[key] = bare.get(key, 0) + 1

        ratios = compare(ours, peer, scale)
        same = dict(zip(bare, total.get_many(list(bare)).to_pylist(), strict=True)) == bare
    return Result(
        f"state.hashmap.rows.{kind}.{_label(scale, count)}",
        "share of the bare dict loop",
        ratios,
        f"same as bare: {same}",
        ">= 0.4",
        {"keys": count, "rows": len(keys), "key_type": kind},
    )


def _batches(scale: Scale, count: int, kind: str) -> Result:
    rows = scale.pick(64 * _BATCH_ROWS, 4_096)
    size = scale.pick(_BATCH_ROWS, 1_024)
    keys = pa.array(_keys(rows, count, kind))
    ones = pa.array(np.ones(size, np.int64))
    batches = [keys.slice(start, size) for start in range(0, rows, size)]
    bare: dict[Any, int] = {}
    with _opened() as backend:
        state = backend.get_state(_SUM)

        def ours() -> None:
            for batch in batches:
                state.reduce_many(batch, ones)

        def peer() -> None:
            get = bare.get
            for batch in batches:
                table = pa.table({"k": batch, "v": ones})
                sums = table.group_by("k", use_threads=False).aggregate([("v", "sum")])
                column = sums["k"].combine_chunks()
                unique = column.to_numpy().tolist() if kind == "int" else column.to_pylist()
                added = sums["v_sum"].combine_chunks().to_numpy().tolist()
                bare.update(
                    zip(unique, map(operator.add, map(get, unique, repeat(0)), added), strict=True)
                )

        ratios = compare(ours, peer, scale)
        same = dict(zip(bare, state.get_many(list(bare)).to_pylist(), strict=True)) == bare
    return Result(
        f"state.hashmap.batches.{kind}.{_label(scale, count)}",
        "share of the fastest bare dict version",
        ratios,
        f"same as bare: {same}",
        ">= 0.8",
        {"keys": count, "rows": rows, "batch_rows": size, "key_type": kind},
    )


def _snapshots(scale: Scale, count: int) -> Iterator[Result]:
    label = _label(scale, count)
    parameters = {"entries": count}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as root, _opened() as backend:
        job = load_storage(root).job("bench")
        job.storage.prepare()
        state = backend.get_state(_SUM)
        numbers = np.arange(count, dtype=np.int64)
        state.reduce_many(pa.array(numbers), pa.array(numbers + 1000))
        pauses, rates = [], []
        reset_peak_memory()
        before = peak_memory_bytes()
        snapshot = None
        for number in range(scale.repetitions):
            began = time.perf_counter()
            future = backend.snapshot(number, job)
            paused = time.perf_counter()
            snapshot = future.result()
            pauses.append((paused - began) / count * 1e9)
            rates.append(count / (time.perf_counter() - began))
        memory = (peak_memory_bytes() - before) / before + 1
        yield Result(
            f"state.hashmap.pause.{label}", "ns an entry", tuple(pauses), "", "<= 30", parameters
        )
        yield Result(
            f"state.hashmap.snapshot.{label}", "entries/s", tuple(rates), "", ">= 1e6", parameters
        )
        yield Result(
            f"state.hashmap.snapshot_memory.{label}",
            "peak memory, of that before",
            (memory,),
            "",
            "<= 1.3",
            parameters,
        )
        yield _while_writing(scale, backend, job, count)
        if snapshot is not None:
            yield _restore(scale, snapshot, job, count)


def _while_writing(scale: Scale, backend: KeyedStateBackend, job: JobStorage, count: int) -> Result:
    """Batches a second while a snapshot is being written, of those without."""
    state = backend.get_state(_SUM)
    size = scale.pick(_BATCH_ROWS, 1_024)
    keys = [
        pa.array((np.arange(size, dtype=np.int64) + start) * 7919 % count)
        for start in range(0, 16 * size, size)
    ]
    ones = pa.array(np.ones(size, np.int64))

    def work() -> None:
        for batch in keys:
            state.reduce_many(batch, ones)

    ratios = []
    for number in range(scale.repetitions):
        quiet = seconds(work)
        future = backend.snapshot(1000 + number, job)
        rounds, busy = 0, 0.0
        while not future.done() or not rounds:
            busy += seconds(work)
            rounds += 1
        future.result()
        ratios.append(quiet / (busy / rounds))
    return Result(
        f"state.hashmap.throughput_while_writing.{_label(scale, count)}",
        "share of that without a snapshot",
        tuple(ratios),
        "",
        ">= 0.5",
        {"entries": count},
    )


def _restore(scale: Scale, snapshot: StateSnapshot, job: JobStorage, count: int) -> Result:
    found = []

    def restore() -> None:
        with _opened((snapshot,), job) as backend:
            state = backend.get_state(_SUM)
            backend.set_current_key(count - 1)
            found.append(state.get())

    rates = rate(restore, count, scale)
    return Result(
        f"state.hashmap.restore.{_label(scale, count)}",
        "entries/s",
        rates,
        f"last is {found[-1]}",
        ">= 1e6",
        {"entries": count},
    )


def _label(scale: Scale, count: int) -> str:
    if scale is Scale.TINY:
        return str(count)
    return f"{count // 1_000_000}M" if count >= 1_000_000 else f"{count // 1000}k"
