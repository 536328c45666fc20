"""What a changelog makes of checkpoints, restores and space, over the hashmap and RocksDB backends.

Figures of issue 8, on one core, with int keys: a checkpoint of 1 % of 1 M and 10 M keys takes as
long for each changed key (within 20 %), and is at most twice as long as what has changed; as many
changed keys take as long in a large state as in a small one (within 20 %); a restore replays 1 M
operations a second; all that is stored, with one checkpoint kept, is at most 3 times the state.
With HOLDFAST_BENCH_LARGE=1 RocksDB has 50 M keys as well.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.checkpointed import (
    KINDS,
    CheckpointedState,
    Numbers,
    label_of,
    own_bytes,
    pieces,
    place,
)
from benchmarks.harness import Result, Scale
from holdfast.backends import KeyedStateBackend, ValueStateDescriptor
from holdfast.backends.snapshots.logs import LoggedAttributes
from holdfast.changelog import ChangelogOptions
from holdfast.storage import StateSnapshot

__all__ = ["run"]

_NUMBER = ValueStateDescriptor("number", int)
_VALUE = ValueStateDescriptor("value", bytes)
_VALUE_BYTES = 100
_FIRST = 1000
_MOST_LOOKED_AT = 1_000_000
_BATCHES_BETWEEN = 20
"""So many batches come from one checkpoint to the next: after each some of what was sealed gets
into the table below, which is no part of a checkpoint."""
_NEVER = ChangelogOptions(
    materialization_interval_s=None, least_log_bytes=1 << 60, most_log_pieces=1 << 30
)


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    for kind in KINDS:
        counts = [scale.pick(1_000_000, 1_000), scale.pick(10_000_000, 2_000)]
        if kind == "rocksdb" and scale is Scale.FULL and os.environ.get("HOLDFAST_BENCH_LARGE"):
            counts.append(50_000_000)
        yield from _costs(scale, kind, counts)
        yield _replay(scale, kind)
        yield _space(scale, kind)


class _Counted:
    """A number for each key, from key 0 on, and a column of what they must be."""

    def __init__(
        self,
        scale: Scale,
        kind: str,
        folder: Path,
        count: int,
        *,
        begins_empty: bool = False,
    ) -> None:
        self._scale = scale
        self.count = count
        self.expected = np.arange(_FIRST, _FIRST + count)
        fill = self._fill
        if begins_empty:
            self.expected, fill = np.zeros(count, np.int64), _declare
        self.slot = CheckpointedState(kind, folder, _NEVER, fill=fill)
        self.state: Any = self.slot.state.get_state(_NUMBER)

    def change(self, chosen: Numbers) -> None:
        """Each of these keys, which are all different, has one more."""
        self.expected[chosen] += 1
        for keys in pieces(chosen, self._scale):
            self.state.put_many(pa.array(keys), pa.array(self.expected[keys]))

    def is_right(self, state: Any) -> bool:
        """Whether the numbers are as they must be: all, or of very many a million by chance."""
        looked_at = np.random.default_rng(1).permutation(self.count)[:_MOST_LOOKED_AT]
        return all(
            np.array_equal(state.get_many(pa.array(keys)).to_numpy(), self.expected[keys])
            for keys in pieces(looked_at, self._scale)
        )

    def _fill(self, backend: KeyedStateBackend) -> None:
        state = backend.get_state(_NUMBER)
        for keys in pieces(np.arange(self.count), self._scale):
            state.put_many(pa.array(keys), pa.array(self.expected[keys]))


def _declare(backend: KeyedStateBackend) -> None:
    backend.get_state(_NUMBER)


@dataclass(frozen=True, slots=True)
class _Cost:
    """Of one checkpoint."""

    changed: int
    ms: float
    own_bytes_ratio: float

    @property
    def each_us(self) -> float:
        """For each key that was changed."""
        return self.ms * 1000 / self.changed


def _costs(scale: Scale, kind: str, counts: Sequence[int]) -> Iterator[Result]:
    """States of each size side by side, which take turns, so that noise favours none."""
    same = max(counts) // 100
    chance = np.random.default_rng(3)
    shares: dict[int, list[_Cost]] = {count: [] for count in counts}
    sames: dict[int, list[_Cost]] = {count: [] for count in counts}
    with place() as folder, ExitStack() as opened:
        states = [_Counted(scale, kind, folder / str(count), count) for count in counts]
        for each in states:
            opened.enter_context(each.slot)
        for repetition in range(2 * scale.repetitions):
            for each in reversed(states) if repetition % 2 else states:
                shares[each.count].append(_cost(each, each.count // 100, chance))
                sames[each.count].append(_cost(each, same, chance))
        right = all(each.is_right(each.state) for each in states)
    for count in counts:
        yield from _told_costs(kind, (counts[0], count), shares, sames, right=right)


def _cost(numbers: _Counted, changed: int, chance: np.random.Generator) -> _Cost:
    chosen = chance.choice(numbers.count, changed, replace=False)
    numbers.change(chosen)
    own = own_bytes(chosen.tolist(), numbers.expected[chosen].tolist())
    written_bytes, took_s = numbers.slot.checkpoint()
    for _ in range(_BATCHES_BETWEEN):
        numbers.slot.tend()
    return _Cost(changed, took_s * 1000, written_bytes / own)


def _told_costs(
    kind: str,
    least_and_count: tuple[int, int],
    shares: dict[int, list[_Cost]],
    sames: dict[int, list[_Cost]],
    *,
    right: bool,
) -> Iterator[Result]:
    least, count = least_and_count
    answer = f"numbers are right: {right}"
    for what, costs in (("one_percent", shares), ("same_change", sames)):
        mine, peers = costs[count], costs[least]
        parameters = {
            "keys": count,
            "changed": mine[0].changed,
            "median_ms": _median_ms(mine),
        }
        if count != least:
            yield Result(
                f"state.changelog.{what}.{kind}.{label_of(count)}",
                f"time for each changed key, of that at {label_of(least)} keys",
                tuple(each.each_us / peer.each_us for each, peer in zip(mine, peers, strict=True)),
                answer,
                "<= 1.2",
                {**parameters, "median_ms_before": _median_ms(peers)},
            )
        yield Result(
            f"state.changelog.{what}_bytes.{kind}.{label_of(count)}",
            "written, of the changed entries' own bytes",
            tuple(each.own_bytes_ratio for each in mine),
            answer,
            "<= 2",
            parameters,
        )


def _median_ms(costs: Sequence[_Cost]) -> float:
    return round(statistics.median(each.ms for each in costs), 2)


def _replay(scale: Scale, kind: str) -> Result:
    """A restore of state of which all is in the log, and more often than once."""
    count, rounds = scale.pick(1_000_000, 1_000), 3
    chance = np.random.default_rng(4)
    rates, right = [], True
    with place() as folder:
        numbers = _Counted(scale, kind, folder, count, begins_empty=True)
        with numbers.slot as slot:
            numbers.change(chance.permutation(count))
            slot.checkpoint()
            for _ in range(rounds):
                numbers.change(chance.choice(count, count // 2, replace=False))
                slot.checkpoint()
            operations = _operations(slot.latest)
            for _ in range(scale.repetitions):
                began = time.perf_counter()
                with slot.restored() as restored:
                    state = restored.get_state(_NUMBER)
                    rates.append(operations / (time.perf_counter() - began))
                    right &= numbers.is_right(state)
    return Result(
        f"state.changelog.replay.{kind}",
        "operations/s",
        tuple(rates),
        f"numbers are right: {right}",
        ">= 1e6",
        {"keys": count, "operations": operations},
    )


def _operations(parts: Sequence[StateSnapshot]) -> int:
    """How many changes are in the logs."""
    logs = [msgspec.convert(part.attributes, LoggedAttributes).logs for part in parts]
    return sum(segment.rows for part in logs for log in part for segment in log.segments)


def _space(scale: Scale, kind: str) -> Result:
    """Checkpoints one after the other, of which each has changed 2 % of the keys."""
    count, cycles = scale.pick(500_000, 1_000), scale.pick(3, 2)
    options = ChangelogOptions(least_log_bytes=scale.pick(ChangelogOptions().least_log_bytes, 1))
    chance = np.random.default_rng(5)
    values = [chance.bytes(_VALUE_BYTES) for _ in range(count)]
    keys = np.arange(count)

    def fill(backend: KeyedStateBackend) -> None:
        state = backend.get_state(_VALUE)
        for some in pieces(keys, scale):
            state.put_many(pa.array(some), [values[key] for key in some.tolist()])

    stored: list[int] = []
    with place() as folder, CheckpointedState(kind, folder, options, fill=fill) as slot:
        state: Any = slot.state.get_state(_VALUE)
        while slot.materializations < cycles:
            chosen = chance.choice(count, count // 50, replace=False)
            for key in chosen.tolist():
                values[key] = chance.bytes(_VALUE_BYTES)
            state.put_many(pa.array(chosen), [values[key] for key in chosen.tolist()])
            slot.tend()
            slot.checkpoint()
            if slot.materializations:
                stored.append(slot.stored_bytes())
        right = state.get_many(pa.array(keys)).to_pylist() == values
        own = own_bytes(keys.tolist(), values)
    return Result(
        f"state.changelog.space.{kind}",
        "stored after each checkpoint, of the state's own bytes",
        tuple(size_bytes / own for size_bytes in stored),
        f"values are right: {right}",
        "<= 3",
        {"keys": count, "value_bytes": _VALUE_BYTES, "own_bytes": own, "bases": cycles},
    )
