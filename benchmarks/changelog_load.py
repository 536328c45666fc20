"""What a changelog costs, and what it does for checkpoints, while a slot works as fast as it can.

Figures of issue 8, on one core, a checkpoint each second, beside the same backend without a
changelog: a keyed sum by the batch at 0.85 of its rows a second, by the row at 0.9, with 100 k and
1 M keys; with 1 GiB of state in RocksDB a checkpoint's 99th percentile at 0.3, from when it is
begun until it is committed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.checkpointed import (
    KINDS,
    CheckpointedState,
    Stretch,
    label_of,
    pieces,
    place,
)
from benchmarks.harness import Result, Scale
from holdfast.backends import (
    KeyedStateBackend,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.changelog import ChangelogOptions

__all__ = ["run"]

_SUM = ReducingStateDescriptor("sum", operator.add, int)
_TOTAL = ValueStateDescriptor("total", int)
_VALUE = ValueStateDescriptor("value", bytes)
_VALUE_BYTES = 100
_LARGE_KEYS = (1 << 30) // (_VALUE_BYTES + 12)
"""With their key groups, keys and lengths these values are 1 GiB."""
_PREPARED = 32
"""Batches are made before and come again, so that to make them costs nothing."""


@dataclass(frozen=True, slots=True)
class _Working:
    """State, what is done to it batch by batch, and whether it is right after so many rows."""

    slot: CheckpointedState
    work: Callable[[], int]
    is_right: Callable[[int], bool]


Make = Callable[[Scale, str, Path, int, ChangelogOptions | None], _Working]


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    for kind in KINDS:
        for count in (scale.pick(100_000, 100), scale.pick(1_000_000, 200)):
            yield _throughput(scale, "batches", kind, count)
            yield _throughput(scale, "rows", kind, count)
    yield _percentiles(scale)


def _throughput(scale: Scale, view: str, kind: str, count: int) -> Result:
    make, target = {"batches": (_sums, ">= 0.85"), "rows": (_totals, ">= 0.9")}[view]
    pairs, right = _side_by_side(scale, make, kind, count, seconds=scale.pick(6_000, 60) / 1000)
    return Result(
        f"state.changelog.{view}.{kind}.{label_of(count)}",
        "rows a second, share of the same without a changelog",
        tuple(logged.rate / plain.rate for logged, plain in pairs),
        f"sums are right: {right}",
        target,
        {
            "keys": count,
            "rows_per_second_without": round(float(np.median([plain.rate for _, plain in pairs]))),
            "checkpoints": sum(len(logged.checkpoint_ms) for logged, _ in pairs),
            "checkpoints_without": sum(len(plain.checkpoint_ms) for _, plain in pairs),
        },
    )


def _percentiles(scale: Scale) -> Result:
    count = scale.pick(_LARGE_KEYS, 500)
    pairs, right = _side_by_side(
        scale, _values, "rocksdb", count, seconds=scale.pick(60_000, 60) / 1000
    )
    slowest = [[_p99_ms(each) for each in pair] for pair in pairs]
    logged, plain = zip(*pairs, strict=True)
    return Result(
        f"state.changelog.p99.rocksdb.{label_of(count)}",
        "99th percentile of a checkpoint's duration, of that without a changelog",
        tuple(with_it / without for with_it, without in slowest),
        f"values are right: {right}",
        "<= 0.3",
        {
            "keys": count,
            "value_bytes": _VALUE_BYTES,
            "p99_ms": [round(with_it, 1) for with_it, _ in slowest],
            "p99_ms_without": [round(without, 1) for _, without in slowest],
            "checkpoints": sum(len(each.checkpoint_ms) for each in logged),
            "checkpoints_without": sum(len(each.checkpoint_ms) for each in plain),
            "rows_per_second": round(float(np.median([each.rate for each in logged]))),
            "rows_per_second_without": round(float(np.median([each.rate for each in plain]))),
        },
    )


def _p99_ms(stretch: Stretch) -> float:
    return float(np.percentile(stretch.checkpoint_ms, 99))


def _side_by_side(
    scale: Scale, make: Make, kind: str, count: int, *, seconds: float
) -> tuple[list[tuple[Stretch, Stretch]], bool]:
    """Stretches with a changelog and without, in turns; and whether all that was done is there."""
    interval_s = scale.pick(1_000, 20) / 1000
    pairs: list[tuple[Stretch, Stretch]] = []
    with place() as folder, ExitStack() as opened:
        logged = make(scale, kind, folder / "logged", count, ChangelogOptions())
        opened.enter_context(logged.slot)
        plain = make(scale, kind, folder / "plain", count, None)
        opened.enter_context(plain.slot)
        done = {logged: 0, plain: 0}
        for repetition in range(min(scale.repetitions, 3)):
            taken: dict[_Working, Stretch] = {}
            for each in (logged, plain) if repetition % 2 else (plain, logged):
                taken[each] = each.slot.run(each.work, seconds=seconds, interval_s=interval_s)
                done[each] += taken[each].rows
            pairs.append((taken[logged], taken[plain]))
        return pairs, all(each.is_right(rows) for each, rows in done.items())


def _sums(
    scale: Scale, kind: str, folder: Path, count: int, options: ChangelogOptions | None
) -> _Working:
    """A sum for each key, by the batch."""
    slot, state = _opened(scale, kind, folder, count, options, _SUM)
    rows = scale.pick(65_536, 128)
    chance = np.random.default_rng(6)
    batches = cycle([pa.array(chance.integers(0, count, rows)) for _ in range(_PREPARED)])
    ones = pa.array(np.ones(rows, np.int64))

    def work() -> int:
        state.reduce_many(next(batches), ones)
        return rows

    return _Working(slot, work, lambda done: _total(state, count) == done)


def _totals(
    scale: Scale, kind: str, folder: Path, count: int, options: ChangelogOptions | None
) -> _Working:
    """The same, by the row."""
    slot, state = _opened(scale, kind, folder, count, options, _TOTAL)
    rows = scale.pick(20_000, 100)
    chance = np.random.default_rng(7)
    batches = cycle([chance.integers(0, count, rows).tolist() for _ in range(_PREPARED)])
    set_current_key = slot.state.set_current_key

    def work() -> int:
        for key in next(batches):
            set_current_key(key)
            state.update((state.value() or 0) + 1)
        return rows

    return _Working(slot, work, lambda done: _total(state, count) == done)


def _values(
    scale: Scale, kind: str, folder: Path, count: int, options: ChangelogOptions | None
) -> _Working:
    """Long values that are written and not read."""
    slot, state = _opened(scale, kind, folder, count, options, _VALUE)
    rows = scale.pick(65_536, 128)
    chance = np.random.default_rng(8)
    batches = [
        (pa.array(chance.integers(0, count, rows)), _column(rows, chance)) for _ in range(_PREPARED)
    ]
    feed = cycle(batches)

    def work() -> int:
        state.put_many(*next(feed))
        return rows

    def is_right(done: int) -> bool:
        written = batches[max(done // rows - 1, 0) % _PREPARED]
        last = dict(zip(written[0].to_pylist(), written[1].to_pylist(), strict=True))
        return bool(state.get_many(list(last)).to_pylist() == list(last.values()))

    return _Working(slot, work, is_right)


def _opened(
    scale: Scale,
    kind: str,
    folder: Path,
    count: int,
    options: ChangelogOptions | None,
    descriptor: StateDescriptor,
) -> tuple[CheckpointedState, Any]:
    """State with something under each key."""
    chance = np.random.default_rng(9)

    def fill(backend: KeyedStateBackend) -> None:
        state = backend.get_state(descriptor)
        for keys in pieces(np.arange(count), scale):
            if descriptor is _VALUE:
                state.put_many(pa.array(keys), _column(len(keys), chance))
            elif descriptor is _SUM:
                state.reduce_many(pa.array(keys), pa.array(np.zeros(len(keys), np.int64)))
            else:
                state.put_many(pa.array(keys), pa.array(np.zeros(len(keys), np.int64)))

    slot = CheckpointedState(kind, folder, options, fill=fill)
    return slot, slot.state.get_state(descriptor)


def _column(rows: int, chance: np.random.Generator) -> pa.Array:
    data = pa.py_buffer(chance.bytes(rows * _VALUE_BYTES))
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_VALUE_BYTES), rows, [None, data])
    return fixed.cast(pa.binary())


def _total(state: Any, count: int) -> int:
    return int(state.get_many(pa.array(np.arange(count))).to_numpy().sum())
