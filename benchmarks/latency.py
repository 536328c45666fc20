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
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from benchmarks.harness import Result, Scale
from benchmarks.spine import RunningSum, SumBatches
from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import (
    FileSink,
    JobHandle,
    JobStatus,
    KeyedContext,
    KeyedProcessFunction,
    RuntimeContext,
    StreamEnvironment,
)
from holdfast.storage import SystemClock

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


class _Shown:
    """A keyed sum whose results are committed to files. As a context manager it is cancelled."""

    def __init__(self, keys: int, batch_rows: int) -> None:
        self._clock = SystemClock()
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-")
        self._out = Path(self._folder.name) / "out"
        env = StreamEnvironment(
            parallelism=2, checkpointing="1s", storage=f"{self._folder.name}/checkpoints"
        )
        rows = (
            env.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", batch_rows)
            .option("numPartitions", 2)
            .load()
            .selectExpr(f"(value * 7919) % {keys} as key", "value % 10 as value")
        )
        keyed = env.from_stream(rows, uid="rows").key_by("key")
        summed = keyed.process(_SumRows(), "key long, total long", uid="sum")
        summed.sink_to(FileSink(str(self._out), format="json"), uid="out")
        self.job: JobHandle = env.execute_async("bench")

    def files(self) -> int:
        """How many files readers see."""
        return sum(
            not any(part.startswith((".", "_")) for part in path.relative_to(self._out).parts)
            for path in self._out.rglob("*.json")
        )

    def until(self, condition: Callable[[], bool]) -> float:
        """When the condition came true, or the job ended, which is an error."""
        while not condition():
            if self.job.status.is_final:
                self.job.result()
                raise AssertionError(f"the job has ended: {self.job.status}")
            self._clock.sleep_s(_STEP_S)
        return time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.job.cancel()
        self._folder.cleanup()
