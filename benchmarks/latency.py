"""How soon a job answers: a micro-batch without load, and the next row after a slot is killed.

Goals of issue 10, on two cores with two slots and a checkpoint each second: at most 150 ms for a
micro-batch of a thousand rows; at most 0.5 s from SIGKILL of a slot until the attempt has failed,
and at most 3 s until the next row is committed, at 100 k keys on hashmap.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.harness import Result, Scale
from benchmarks.spine import RunningSum, SumBatches
from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import (
    JobStatus,
    KeyedContext,
    KeyedProcessFunction,
    RuntimeContext,
)

__all__ = ["run"]

_STEP_S = 0.005
_SHOWN = 5
_REPETITIONS = 3


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    yield from _micro_batches(scale)
    yield from _kills(scale)


def _micro_batches(scale: Scale) -> Iterator[Result]:
    """Batches of few rows, one after the other: what is done for each, whatever is in it."""
    warm, count = scale.pick(20, 1), scale.pick(60, 2)
    medians = []
    for _ in range(_repetitions(scale)):
        with RunningSum(SumBatches(), scale.pick(100_000, 100), scale.pick(1_000, 100)) as running:
            running.until_batch(warm)
            moments = [running.until_batch(warm + number) for number in range(1, count + 2)]
        medians.append(statistics.median(b - a for a, b in pairwise(moments)) * 1000)
    parameters = {"rows": 1_000, "batches": count, "slots": 2, "interval": "1s"}
    yield Result(
        "latency.micro_batch", "ms, the median of a run", tuple(medians), "", "<= 150", parameters
    )


def _kills(scale: Scale) -> Iterator[Result]:
    """From SIGKILL of a slot: until the attempt has failed, and until a row is committed."""
    keys = scale.pick(100_000, 100)
    kills = [_kill(keys, scale.pick(20_000, 100)) for _ in range(_repetitions(scale))]
    noticed, committed = zip(*kills, strict=True)
    parameters = {"keys": keys, "slots": 2, "interval": "1s", "backend": "hashmap"}
    yield Result("latency.failed", "s", noticed, "", "<= 0.5", parameters)
    yield Result("latency.next_row", "s", committed, "", "<= 3", parameters)


def _kill(keys: int, batch_rows: int) -> tuple[float, float]:
    with _Shown(keys, batch_rows) as running:
        running.until(lambda: running.files() > 1)
        began = time.perf_counter()
        os.kill(running.job.slot_pids()[1], signal.SIGKILL)
        failed = running.until(lambda: running.job.status is JobStatus.RESTARTING)
        before = running.files()
        return failed - began, running.until(lambda: running.files() > before) - began


def _repetitions(scale: Scale) -> int:
    return min(scale.repetitions, _REPETITIONS)


class _SumRows(KeyedProcessFunction):
    """A sum for each key, of which few are shown."""

    def open(self, ctx: RuntimeContext) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterable[Any]:
        total = (self.total.value() or 0) + value.value
        self.total.update(total)
        if value.key < _SHOWN:
            yield value.key, total


class _Shown(RunningSum):
    """A keyed sum by the row whose results are committed to files."""

    def __init__(self, keys: int, batch_rows: int) -> None:
        self._results = tempfile.TemporaryDirectory(prefix="holdfast-bench-")
        super().__init__(_SumRows(), keys, batch_rows, out=self._results.name)

    def files(self) -> int:
        """How many files readers see."""
        out = Path(self._results.name)
        return sum(
            not any(part.startswith((".", "_")) for part in path.relative_to(out).parts)
            for path in out.rglob("*.json")
        )

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._results.cleanup()
