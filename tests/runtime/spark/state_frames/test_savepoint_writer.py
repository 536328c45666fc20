"""Savepoints from DataFrames: bootstrapped or changed, and jobs that go on from them."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.backends import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.runtime import (
    FileSink,
    JobStatus,
    KeyedProcessFunction,
    SavepointWriter,
    StreamEnvironment,
    TimeDomain,
    read_state,
)
from holdfast.storage import Invalid, NotFound, SavepointFolder, load_storage
from support.jobs.spark_jobs import await_that
from support.states.tried_backends import backend_named

pytestmark = pytest.mark.slow

USERS = [f"user {number}" for number in range(200)]
TOTAL = ValueStateDescriptor("total", int)


@dataclass
class Order:
    """An element of a list."""

    amount: int
    note: str | None = None


ORDERS = ListStateDescriptor("orders", Order)
COUNTS = MapStateDescriptor("counts", str, int)
SEEN = ListStateDescriptor("seen", str)
RULES = MapStateDescriptor("rules", str, int)


@pytest.fixture(scope="module")
def totals(spark: SparkSession) -> Any:
    """One row a user, as a table has it."""
    number = F.col("id")
    user = F.concat(F.lit("user "), number.cast("string"))
    return spark.range(200).select(user.alias("user"), (number * 10).alias("spent"))


def rows(path: str, operator: str, state: str, **named: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        read_state(path, operator=operator, state=state, **named).read_all().to_pylist()
    )
    return found


def values(path: str, operator: str, state: str) -> dict[Any, Any]:
    return {row["key"]: row["value"] for row in rows(path, operator, state)}


def whole(path: str) -> SavepointFolder:
    """The savepoint, with all files that it names and no others."""
    folder = SavepointFolder(load_storage(path), "")
    metadata = folder.load()
    there = {file.name for file in folder.storage.list("")}
    assert there == metadata.files() | {"_metadata"}
    return folder


@pytest.fixture(scope="module")
def bootstrapped(spark: SparkSession, totals: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A savepoint with state of every kind."""
    orders = totals.withColumn(
        "orders",
        F.array(
            *[
                F.struct((F.col("spent") + step).cast("int").alias("amount"), note.alias("note"))
                for step, note in [(0, F.lit("x")), (1, F.lit(None).cast("string"))]
            ]
        ),
    )
    counts = totals.select("user", F.lit("n").alias("kind"), F.lit(3).alias("count"))
    timers = totals.withColumn("due", F.timestamp_millis(F.col("spent") + 1000))
    seen = spark.createDataFrame([("b", 2), ("a", 1), ("c", 3)], "name string, n int")
    return (
        SavepointWriter.new(spark, job="orders", parallelism=3)
        .with_state("spend", TOTAL, totals, key="user", value="spent")
        .with_state("spend", ORDERS, orders, key="user", value="orders")
        .with_state("spend", COUNTS, counts, key="user", map_key="kind", value="count")
        .with_timers("spend", timers, key="user", time="due")
        .with_timers("spend", totals, key="user", time="spent", domain=TimeDomain.PROCESSING_TIME)
        .with_operator_state("spend", SEEN, seen, value="name", position="n")
        .with_operator_state("spend", RULES, seen, value="n", map_key="name")
        .write(str(tmp_path_factory.mktemp("savepoints")))
    )


def test_all_kinds_of_state_are_written(bootstrapped: str) -> None:
    metadata = whole(bootstrapped).load()
    assert metadata.job_id == "orders"
    assert metadata.properties["format"] == "canonical"
    spend = metadata.operators["spend"]
    assert (spend.parallelism, spend.max_parallelism) == (3, 128)
    assert [part.key_groups for part in spend.parts[:3]] == [(0, 42), (43, 85), (86, 127)]
    assert values(bootstrapped, "spend", "total") == {
        user: number * 10 for number, user in enumerate(USERS)
    }
    lists = rows(bootstrapped, "spend", "orders", key="user 7")
    assert [(row["position"], row["value"]) for row in lists] == [
        (0, {"amount": 70, "note": "x"}),
        (1, {"amount": 71, "note": None}),
    ]
    assert rows(bootstrapped, "spend", "counts", key="user 7")[0]["map_key"] == "n"
    event = rows(bootstrapped, "spend", "_timers/user-timers/event")
    assert {row["key"]: row["time"] for row in event}["user 7"] == 1070
    assert len(rows(bootstrapped, "spend", "_timers/user-timers/processing")) == len(USERS)
    assert [row["value"] for row in rows(bootstrapped, "spend", "seen")] == ["a", "b", "c"]
    rules = {row["map_key"]: row["value"] for row in rows(bootstrapped, "spend", "rules")}
    assert rules == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(NotFound):
        rows(bootstrapped, "spend", "nothing")


class Spend(KeyedProcessFunction):
    """Adds to totals that are there, and tells of state and timers that it finds."""

    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(TOTAL)
        self.orders = ctx.get_list_state(ORDERS)
        self.counts = ctx.get_map_state(COUNTS)
        self.seen = ctx.get_operator_list_state(SEEN)
        self.rules = ctx.get_broadcast_state(RULES)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        self.orders.add(Order(value.amount))
        lists = [order.amount for order in self.orders.get()]
        yield "order", value.user, total, str(lists)
        yield "count", value.user, self.counts.get("n") or 0, str(sorted(self.rules.items()))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        domain = "event" if ctx.time_domain() is TimeDomain.EVENT_TIME else "processing"
        yield domain, ctx.get_current_key(), timestamp, ""


RESULT = "kind string, user string, number long, text string"


def results(folder: Path) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for file in folder.glob("*.parquet"):
        found.update(tuple(row.values()) for row in pq.read_table(file).to_pylist())
    return found


def write_orders(root: Path) -> None:
    orders = [{"user": f"user {n}", "amount": 5, "ts": 5_000} for n in (7, 7, 8, 500)]
    (root / "in").mkdir()
    (root / "in" / "0.json").write_text("".join(f"{json.dumps(each)}\n" for each in orders))


def run_job(spark: SparkSession, root: Path, backend: Any, restore: str, **named: Any) -> Any:
    write_orders(root)
    env = StreamEnvironment(
        spark,
        backend=backend,
        storage=str(root / "checkpoints"),
        checkpointing="1s",
        **{"parallelism": 2, **named},
    )
    frame = spark.read.schema("user string, amount long, ts long").json(str(root / "in"))
    stream = env.from_batch(frame, uid="orders").with_watermark("ts", 0)
    spent = stream.key_by("user").process(Spend(), RESULT, uid="spend")
    spent.sink_to(FileSink(str(root / "out")), uid="out")
    return env.execute("orders", restore=restore)


@pytest.mark.dealt("name")
@pytest.mark.parametrize("name", ["hashmap", "rocksdb", "changelog-rocksdb"])
def test_a_job_goes_on_from_it(
    spark: SparkSession, bootstrapped: str, tmp_path: Path, name: str
) -> None:
    backend = backend_named(name, tmp_path / "state")
    groups = {"max_parallelism": 64} if name == "hashmap" else {}
    assert run_job(spark, tmp_path, backend, bootstrapped, **groups) is JobStatus.FINISHED
    rules = "[('a', 1), ('b', 2), ('c', 3)]"
    expected = Counter(
        [
            ("order", "user 7", 75, "[70, 71, 5]"),
            ("order", "user 7", 80, "[70, 71, 5, 5]"),
            ("order", "user 8", 85, "[80, 81, 5]"),
            ("order", "user 500", 5, "[5]"),
            ("count", "user 7", 3, rules),
            ("count", "user 7", 3, rules),
            ("count", "user 8", 3, rules),
            ("count", "user 500", 0, rules),
        ]
    )
    expected.update(("event", user, 1000 + 10 * n, "") for n, user in enumerate(USERS))
    expected.update(("processing", user, 10 * n, "") for n, user in enumerate(USERS))
    assert results(tmp_path / "out") == expected


def test_a_value_is_fixed_and_the_rest_stays(
    spark: SparkSession, bootstrapped: str, tmp_path: Path
) -> None:
    reader = spark.read.format("holdfast")
    StreamEnvironment(spark)  # which tells the session of the format
    stored = reader.load(bootstrapped, operator="spend", state="total")
    fixed = stored.withColumn(
        "value", F.when(F.col("key") == "user 7", -1).otherwise(F.col("value"))
    )
    lists = reader.load(bootstrapped, operator="spend", state="orders")
    path = (
        SavepointWriter.from_existing(spark, bootstrapped, parallelism=2)
        .with_state("spend", TOTAL, fixed)
        .with_state("spend", ORDERS, lists.where("position = 1"))
        .write(str(tmp_path / "fixed"))
    )
    expected = {user: number * 10 for number, user in enumerate(USERS)} | {"user 7": -1}
    assert values(whole(path).url, "spend", "total") == expected
    assert [row["position"] for row in rows(path, "spend", "orders", key="user 7")] == [0]
    for state in ("counts", "_timers/user-timers/event", "seen", "rules"):
        before, after = (
            sorted(rows(each, "spend", state), key=str) for each in (bootstrapped, path)
        )
        assert after == before, state
    assert values(bootstrapped, "spend", "total")["user 7"] == 70, "what was read stays"


def test_states_and_operators_go_and_are_renamed(
    spark: SparkSession, bootstrapped: str, totals: Any, tmp_path: Path
) -> None:
    path = (
        SavepointWriter.from_existing(spark, bootstrapped)
        .drop_state("spend", "orders")
        .rename_state("spend", "total", "sum")
        .rename_state("spend", "seen", "known")
        .with_state("other", TOTAL, totals, key="user", value="spent")
        .change_operator_uid("spend", "spend-2")
        .write(str(tmp_path / "changed"))
    )
    metadata = whole(path).load()
    assert sorted(metadata.operators) == ["other", "spend-2"]
    assert values(path, "spend-2", "sum") == values(bootstrapped, "spend", "total")
    assert rows(path, "spend-2", "known") == rows(bootstrapped, "spend", "seen")
    with pytest.raises(NotFound, match="no state 'orders'"):
        rows(path, "spend-2", "orders")
    again = (
        SavepointWriter.from_existing(spark, path)
        .remove_operator("spend-2")
        .write(str(tmp_path / "changed"))
    )
    assert sorted(whole(again).load().operators) == ["other"]
    assert values(again, "other", "total") == values(bootstrapped, "spend", "total")


@pytest.mark.parametrize("name", ["changelog-rocksdb"])
def test_a_checkpoint_of_a_job_becomes_a_savepoint(
    spark: SparkSession, bootstrapped: str, tmp_path: Path, name: str
) -> None:
    """And what is renamed in it, a job finds under the new name; sources go on where they were."""
    backend = backend_named(name, tmp_path / "state")
    write_orders(tmp_path)
    env = StreamEnvironment(
        spark, backend=backend, storage=str(tmp_path / "again"), checkpointing="300ms"
    )
    frame = spark.readStream.schema("user string, amount long, ts long").json(str(tmp_path / "in"))
    stream = env.from_stream(frame, uid="orders").with_watermark("ts", 0)
    spent = stream.key_by("user").process(Spend(), RESULT, uid="spend")
    spent.sink_to(FileSink(str(tmp_path / "out-2")), uid="out")
    job = env.execute_async("again", restore=bootstrapped)
    last = ("order", "user 500", 5, "[5]")
    await_that(lambda: last in results(tmp_path / "out-2"), "committed results")
    savepoint = job.stop_with_savepoint(str(tmp_path / "stopped"), format="native")
    path = (
        SavepointWriter.from_existing(spark, savepoint)
        .change_operator_uid("spend", "spend-2")
        .write(str(tmp_path / "changed"))
    )
    metadata = whole(path).load()
    assert sorted(metadata.operators) == ["out", "spend-2"]
    assert list(metadata.sources) == ["orders"]
    assert values(path, "spend-2", "total")["user 7"] == 80
    stored = values(savepoint, "spend", "total")
    assert values(path, "spend-2", "total") == stored


def test_rows_that_do_not_fit_leave_no_savepoint(
    spark: SparkSession, totals: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "savepoints"
    writer = SavepointWriter.new(spark)
    twice = totals.union(totals.limit(1))
    with pytest.raises(Invalid, match=r"state 'total': a key has a value twice.*key 'user 0'"):
        writer.with_state("spend", TOTAL, twice, key="user", value="spent").write(str(directory))
    assert [path for path in directory.rglob("*") if path.is_file()] == []
    nulls = totals.withColumn("spent", F.when(F.col("spent") < 100, F.col("spent")))
    with pytest.raises(Invalid, match="column 'spent' has a value that does not fit"):
        writer.with_state("spend", TOTAL, nulls, key="user", value="spent").write(str(directory))
    assert [path for path in directory.rglob("*") if path.is_file()] == []
    path = writer.with_state("spend", TOTAL, totals, key="user", value="spent").write(
        str(directory)
    )
    assert len(values(path, "spend", "total")) == len(USERS)
    assert "waited for" not in caplog.text, "Spark has told of its tasks"
    assert "still run" not in caplog.text


def test_invalid_columns_are_refused_at_once(
    spark: SparkSession, totals: Any, bootstrapped: str, tmp_path: Path
) -> None:
    writer = SavepointWriter.new(spark)
    with pytest.raises(Invalid, match=r"not one column 'key'.*found 'user', 'spent'"):
        writer.with_state("spend", TOTAL, totals, value="spent")
    with pytest.raises(Invalid, match="column 'user' does not fit: expected values of type int"):
        writer.with_state("spend", TOTAL, totals, key="spent", value="user")
    with pytest.raises(Invalid, match="state without keys is a list, or a map"):
        writer.with_operator_state("spend", TOTAL, totals, value="spent")
    with pytest.raises(Invalid, match="there is nothing to write"):
        writer.write(str(tmp_path / "none"))
    writer.with_state("spend", TOTAL, totals, key="user", value="spent")
    with pytest.raises(Invalid, match="column 'spent' does not fit: expected values of type str"):
        writer.with_state("spend", COUNTS, totals, key="spent", map_key="user", value="spent")
    with pytest.raises(Invalid, match="cannot be kept here"):
        writer.write("memory://place")
    stored = SavepointWriter.from_existing(spark, bootstrapped)
    with pytest.raises(NotFound, match=r"no 'spent'.*expected 'spend'"):
        stored.remove_operator("spent")
    with pytest.raises(NotFound, match=r"no state 'sum'.*expected .*total"):
        stored.drop_state("spend", "sum")
    with pytest.raises(Invalid, match="has a state 'orders'"):
        stored.rename_state("spend", "total", "orders")
    with pytest.raises(Invalid, match="cannot be called 'spend'"):
        stored.change_operator_uid("spend", "spend")
    with pytest.raises(NotFound, match="there is no savepoint"):
        SavepointWriter.from_existing(spark, "/no/where")
    with pytest.raises(Invalid, match="parallelism is not legal"):
        SavepointWriter.new(spark, parallelism=10, max_parallelism=5)


def test_times_to_live_begin_when_it_is_said(
    spark: SparkSession, totals: Any, tmp_path: Path
) -> None:
    ttl = StateTtlConfig(ttl=dt.timedelta(hours=1))
    descriptor = ValueStateDescriptor("total", int, ttl=ttl)
    used = totals.withColumn("at", F.timestamp_millis(F.col("spent")))
    path = (
        SavepointWriter.new(spark)
        .with_state("spend", descriptor, used, key="user", value="spent", last_used="at")
        .write(str(tmp_path))
    )
    assert all(row["last_used_ms"] == row["value"] for row in rows(path, "spend", "total"))


def test_keys_of_two_columns_are_those_of_a_job(
    spark: SparkSession, totals: Any, tmp_path: Path
) -> None:
    path = (
        SavepointWriter.new(spark)
        .with_state("spend", TOTAL, totals, key=("user", "spent"), value="spent")
        .write(str(tmp_path))
    )
    (row,) = rows(path, "spend", "total", key=("user 7", 70))
    assert row["key"] == {"_1": "user 7", "_2": 70}
