"""Whole jobs on real Spark: what they may be made of, and that their answers are right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from holdfast.backends import ListStateDescriptor, StateBackend, ValueStateDescriptor
from holdfast.runtime import (
    CheckpointConfig,
    CollectSink,
    JobStatus,
    KeyedBatchFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamEnvironment,
)
from support.jobs.spark_jobs import (
    await_checkpoints,
    await_that,
    build_from_files,
    check_complete,
    expected,
    make_orders,
    write_orders,
)
from support.states.tried_backends import TRIED
from support.storages.tried_storages import TRIED_STORAGES, place_named, turn

pytestmark = pytest.mark.slow

LATE = OutputTag("late", "n long")


class Total(KeyedProcessFunction):
    """Adds up the second column of each row under its key, the first."""

    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total, value[1]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_operators_of_every_kind_in_one_job(spark: SparkSession, backend: StateBackend) -> None:
    class Odd(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            if value.n % 2:
                yield LATE, (value.n,)
            else:
                yield value.key, value.n

    class Batched(KeyedBatchFunction):
        def open(self, ctx: Any) -> None:
            self.sum = ctx.get_state(ValueStateDescriptor("sum", int))

        def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
            added = pa.table(batch).group_by("key").aggregate([("n", "sum")])
            before = pc.fill_null(self.sum.get_many(added["key"]), 0)
            sums = pc.add(added["n_sum"].combine_chunks(), before)
            keys = added["key"].combine_chunks()
            self.sum.put_many(keys, sums)
            return pa.RecordBatch.from_arrays([keys, sums], ["key", "n"])

    env = StreamEnvironment(spark, parallelism=2, backend=backend)
    halves = [spark.range(first, first + 500, 1, 2) for first in (0, 500)]
    streams = [
        env.from_batch(half.selectExpr("id % 7 as key", "id as n"), uid=f"half-{number}")
        for number, half in enumerate(halves)
    ]
    united = streams[0].union(streams[1])
    even = united.process(Odd(), "key long, n long", uid="odd")
    even.get_side_output(LATE).sink_to(CollectSink(), uid="late")
    totals = even.key_by("key").process(Total(), "key long, total long, n long", uid="totals")
    totals.sink_to(CollectSink(), uid="totals-out")
    (
        totals.map(lambda row: (row.key % 2, row.n), "key long, n long", uid="halve")
        .filter(lambda row: row.n >= 10, uid="enough")
        .flat_map(lambda row: [(row.key, row.n)] * 2, "key long, n long", uid="twice")
        .key_by("key")
        .process_batch(Batched(), "key long, n long", uid="batched")
        .sink_to(CollectSink(), uid="batched-out")
    )
    job = env.execute_async("every kind")
    assert job.result(250) is JobStatus.FINISHED

    assert rows_of(job.collected("late")) == [(n,) for n in range(1, 1000, 2)]
    totals_of: defaultdict[int, list[int]] = defaultdict(list)
    for key, _, n in rows_of(job.collected("totals-out")):
        totals_of[key].append(n)
    assert {key: sorted(rows) for key, rows in totals_of.items()} == {
        key: [n for n in range(0, 1000, 2) if n % 7 == key] for key in range(7)
    }
    last: dict[int, int] = {}
    for key, total in rows_of(job.collected("batched-out")):
        last[key] = max(total, last.get(key, 0))
    wanted: Counter[int] = Counter()
    for n in range(10, 1000, 2):
        wanted[n % 7 % 2] += 2 * n
    assert last == dict(wanted)


@pytest.mark.dealt("backend_name")
@pytest.mark.parametrize(
    ("backend_name", "storage_name"),
    [(name, turn(place + place // len(TRIED_STORAGES))) for place, name in enumerate(TRIED)],
    indirect=["backend_name"],
)
def test_every_backend_and_storage_and_compression(
    spark: SparkSession,
    tmp_path: Path,
    backend: StateBackend,
    storage_name: str,
    request: pytest.FixtureRequest,
) -> None:
    orders = make_orders(1, 200)
    write_orders(tmp_path / "in", orders, 3)
    env = StreamEnvironment(
        spark,
        parallelism=2,
        backend=backend,
        storage=place_named(storage_name, tmp_path, request).storage(),
        checkpointing=CheckpointConfig(interval="300ms", compression="lz4"),
    )
    raised = tmp_path / "raised"

    def on_row(operator: str, row: int) -> None:
        if (operator, row) == ("digits", 120) and not raised.exists():
            raised.touch()
            raise ValueError("once")

    job = build_from_files(env, tmp_path, on_row=on_row).execute_async("packed")
    assert job.result(250) is JobStatus.FINISHED
    assert len(job.failures) == 1
    check_complete(tmp_path, expected(orders))


def test_a_batch_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, backend: StateBackend
) -> None:
    """The source is not read from its beginning: no row comes twice to state that remembers it."""
    rows, files = 4000, 40
    spark.range(0, rows, 1, files).selectExpr("id % 50 as key", "id as n").write.parquet(
        str(tmp_path / "in")
    )
    raised = tmp_path / "raised"

    class Once(KeyedProcessFunction):
        def open(self, ctx: Any) -> None:
            self.seen = ctx.get_list_state(ListStateDescriptor("seen", int))

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            self.seen.add(value.n)
            if value.n >= rows * 3 // 4 and not raised.exists():
                raised.touch()
                raise ValueError("in the middle")
            yield value.key, value.n, len(list(self.seen.get()))

    env = StreamEnvironment(
        spark,
        parallelism=2,
        backend=backend,
        storage=str(tmp_path / "checkpoints"),
        checkpointing="50ms",
    )
    settings = {"spark.sql.files.maxPartitionBytes": "4k", "spark.sql.files.openCostInBytes": "4k"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        frame = spark.read.parquet(str(tmp_path / "in"))
        stream = env.from_batch(frame, uid="numbers").key_by("key")
        out = stream.process(Once(), "key long, n long, place long", uid="once")
        out.sink_to(CollectSink(), uid="out")
        job = env.execute_async("batch")
        assert job.result(250) is JobStatus.FINISHED
    finally:
        for name in settings:
            spark.conf.unset(name)
    found = rows_of(job.collected("out"))
    assert sorted(n for _, n, _ in found) == list(range(rows))
    per_key = rows // 50
    assert sorted((key, place) for key, _, place in found) == [
        (key, place) for key in range(50) for place in range(1, per_key + 1)
    ]
    assert raised.exists()
    assert len(job.failures) == 1


def test_many_small_batches_and_a_compacted_log(spark: SparkSession, tmp_path: Path) -> None:
    """Spark compacts the log of a source of files at each tenth batch; here at each third one."""
    orders, files = make_orders(2, 80), 8
    write_orders(tmp_path / "in", orders, files)
    raised = [tmp_path / "raised-1", tmp_path / "raised-2"]

    def on_row(operator: str, row: int) -> None:
        for flag, number in zip(raised, (48, 77), strict=True):
            if (operator, row) == ("spend", number) and not flag.exists():
                flag.touch()
                raise ValueError("once each")

    env = StreamEnvironment(
        spark,
        parallelism=2,
        storage=str(tmp_path / "checkpoints"),
        checkpointing="100ms",
    )
    interval = "spark.sql.streaming.fileSource.log.compactInterval"
    spark.conf.set(interval, "3")
    try:
        job = build_from_files(env, tmp_path, on_row=on_row).execute_async("long")
        assert job.result(280) is JobStatus.FINISHED
    finally:
        spark.conf.unset(interval)
    assert len(job.failures) == 2
    check_complete(tmp_path, expected(orders))


class Closing(KeyedProcessFunction):
    """Says when the event-time timer of each row fires."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value.ts)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp


def add_file(folder: Path, name: str, rows: list[tuple[str, int]]) -> None:
    folder.mkdir(exist_ok=True)
    fresh = folder / f".{name}"
    fresh.write_text("".join(f'{{"key": "{key}", "ts": {ts}}}\n' for key, ts in rows))
    fresh.rename(folder / name)


@pytest.mark.parametrize("idle_after", [None, "500ms"])
def test_time_goes_by_the_slower_source_unless_it_is_idle(
    spark: SparkSession, tmp_path: Path, backend: StateBackend, idle_after: str | None
) -> None:
    env = StreamEnvironment(spark, parallelism=2, backend=backend, checkpointing="200ms")
    streams = []
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
        frame = spark.readStream.schema("key string, ts long").json(str(tmp_path / name))
        idle = idle_after if name == "slow" else None
        streams.append(env.from_stream(frame, uid=name).with_watermark("ts", 0, idle_after=idle))
    closing = streams[0].union(streams[1]).key_by("key")
    closing.process(Closing(), "key string, ts long", uid="closing").sink_to(
        CollectSink(), uid="out"
    )
    add_file(tmp_path / "fast", "1.json", [("a", 1_000), ("b", 5_000), ("a", 9_000)])
    add_file(tmp_path / "slow", "1.json", [("c", 2_000)])
    job = env.execute_async("two sources")
    try:

        def fed(uid: str) -> int:
            sources: Any = job.metrics()["sources"]
            return int(sources[uid]["rows"]) if uid in sources else 0

        if idle_after:
            # If the slow one was idle before its row, that is late, and its timer has yet to wait.
            wanted = {("a", 1_000), ("b", 5_000)}
            await_that(lambda: wanted <= set(rows_of(job.collected("out"))), "time without c")
            return
        await_that(lambda: fed("fast") == 3 and fed("slow") == 1, "the first rows")
        await_checkpoints(job)
        assert rows_of(job.collected("out")) == [("a", 1_000)]
        add_file(tmp_path / "slow", "2.json", [("c", 6_000)])
        await_that(lambda: fed("slow") == 2, "the last row")
        await_checkpoints(job)
        assert rows_of(job.collected("out")) == [("a", 1_000), ("b", 5_000), ("c", 2_000)]
    finally:
        job.cancel()
    assert job.status is JobStatus.CANCELLED
