"""A job on real Spark one of whose sources ends while the other goes on."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import (
    CheckpointConfig,
    FileSink,
    FixedDelayRestart,
    JobHandle,
    JobStatus,
    KeyedProcessFunction,
    StreamEnvironment,
)
from support.jobs.spark_jobs import await_checkpoints, await_that, visible_files
from support.states.tried_backends import TRIED, backend_named

pytestmark = pytest.mark.slow

ROWS = "key long, n long"
FEW, KEYS = 20, 3


class Count(KeyedProcessFunction):
    """How many rows have come under each key."""

    def open(self, ctx: Any) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield value.n, self.count.value()


def start(spark: SparkSession, root: Path, backend: str, restore: str | None = None) -> JobHandle:
    env = StreamEnvironment(
        spark,
        parallelism=2,
        backend=backend_named(backend, root / "state"),
        storage=f"file://{root}/checkpoints",
        checkpointing=CheckpointConfig(interval="200ms", interval_during_backlog="1s"),
        restart=FixedDelayRestart(attempts=2, delay="0s"),
    )
    frame = spark.range(FEW).selectExpr(f"id % {KEYS} as key", "id as n")
    few = env.from_batch(frame, uid="few")
    many = env.from_stream(spark.readStream.schema(ROWS).json(str(root / "in")), uid="many")
    few.sink_to(FileSink(str(root / "soon"), "json"), uid="soon")
    counted = few.union(many).key_by("key").process(Count(), "n long, count long", uid="counts")
    counted.sink_to(FileSink(str(root / "out"), "json"), uid="out")
    return env.execute_async("mixed", restore=restore)


def seen(folder: Path) -> list[dict[str, int]]:
    return [
        json.loads(line) for path in visible_files(folder) for line in path.read_text().splitlines()
    ]


def few_of(job: JobHandle) -> Any:
    sources: Any = job.metrics()["sources"]
    return sources.get("few", {"ended": False, "rows": 0})


@pytest.mark.dealt("backend")
@pytest.mark.parametrize("backend", TRIED)
def test_what_has_ended_commits_and_is_not_read_again(
    spark: SparkSession, tmp_path: Path, backend: str
) -> None:
    (tmp_path / "in").mkdir()
    rows = iter(range(100, 200))

    def more() -> None:
        numbers = [next(rows) for _ in range(KEYS)]
        lines = [json.dumps({"key": number % KEYS, "n": number}) for number in numbers]
        (tmp_path / f"{numbers[0]}.tmp").write_text("\n".join(lines))
        (tmp_path / f"{numbers[0]}.tmp").rename(tmp_path / "in" / f"{numbers[0]}.json")

    def await_rows(count: int) -> None:
        await_that(lambda: len(seen(tmp_path / "out")) == count, f"{count} rows in the end")

    more()
    job = start(spark, tmp_path, backend)
    await_that(lambda: few_of(job)["ended"], "the end of the few")
    await_rows(FEW + KEYS)
    assert len(seen(tmp_path / "soon")) == FEW, "committed, though the job goes on"
    await_checkpoints(job)
    os.kill(job.slot_pids()[0], signal.SIGKILL)
    await_that(lambda: job.metrics()["attempts"] == 2 and few_of(job)["ended"], "another attempt")
    more()
    await_rows(FEW + 2 * KEYS)
    assert few_of(job)["rows"] == 0
    saved = job.stop_with_savepoint(str(tmp_path / "saved"))
    assert job.result(100) is JobStatus.FINISHED
    again = start(spark, tmp_path, backend, restore=saved)
    more()
    await_rows(FEW + 3 * KEYS)
    assert few_of(again) == {**few_of(again), "ended": True, "rows": 0}
    again.cancel()
    assert len(seen(tmp_path / "soon")) == FEW
    counts = Counter(row["count"] for row in seen(tmp_path / "out"))
    numbers = [row["n"] for row in seen(tmp_path / "out")]
    assert sorted(numbers) == [*range(FEW), *range(100, 100 + 3 * KEYS)]
    most = [sum(n % KEYS == key for n in numbers) for key in range(KEYS)]
    assert counts == Counter(count for each in most for count in range(1, each + 1))
