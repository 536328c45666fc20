"""`spark.read.format("holdfast")`: state of savepoints and checkpoints as DataFrames."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    Filter,
    GreaterThan,
    In,
)

from holdfast.backends import (
    ListStateDescriptor,
    MapStateDescriptor,
    SnapshotForm,
    StateBackend,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.runtime import read_state, register_formats
from holdfast.runtime.spark.state_frames.state_source import StateSource
from holdfast.storage import (
    CheckpointMetadata,
    HoldfastError,
    Invalid,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    load_storage,
)
from support.servers.s3 import ADMIN, REGION, S3Server
from support.states.tried_backends import backend_named

pytestmark = pytest.mark.slow

KEYS = [f"key {number}" for number in range(100)]


@dataclass
class Order:
    """A value with parts, of which one has no type of Arrow."""

    amount: float
    note: str | None = None
    extra: Any = None


def test_formats_are_registered_again_only_when_the_session_says_something_else(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark warns each time that one takes the place of another, at every start of a job."""
    register_formats(spark)
    registered: list[type] = []
    monkeypatch.setattr(
        type(spark.dataSource), "register", lambda _, source: registered.append(source)
    )
    register_formats(spark)
    assert registered == []
    name = "spark.hadoop.fs.s3a.bucket.of-this-test.endpoint"
    spark.conf.set(name, "http://127.0.0.1:1")
    register_formats(spark)
    spark.conf.unset(name)
    assert len(registered) == 2
    register_formats(spark)
    assert len(registered) == 4


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register_formats(spark)


def write_savepoint(
    folder: SavepointFolder, backend: StateBackend, form: SnapshotForm, keys: list[Any]
) -> str:
    with ExitStack() as stack:
        parts = []
        for key_groups in key_groups_of_slots(2, 64):
            state = stack.enter_context(
                backend.open(
                    uid="spend", key_groups=key_groups, max_parallelism=64, key_type=type(keys[0])
                )
            )
            total = state.get_state(ValueStateDescriptor("total", int))
            orders = state.get_state(ListStateDescriptor("orders", Order))
            counts = state.get_state(MapStateDescriptor("counts", str, int))
            for key in keys:
                try:
                    state.set_current_key(key)
                except Invalid:  # another slot's
                    continue
                total.update(len(str(key)))
                orders.update([Order(1.5, "x"), Order(2.5, None, {"a": [1]})])
                counts.put("n", 1)
                state.timers("user-timers").register_event_time_timer(len(str(key)))
            parts.append(state.snapshot(1, folder, form=form).result(60))
    commit(folder, *parts)
    return folder.url


def commit(folder: SavepointFolder, *parts: StateSnapshot) -> None:
    operators = {
        "spend": OperatorState(parallelism=len(parts), max_parallelism=64, parts=tuple(parts))
    }
    folder.commit(
        CheckpointMetadata(
            job_id="orders",
            checkpoint_id=1,
            kind="savepoint",
            triggered_ms=1,
            completed_ms=2,
            operators=operators,
        )
    )


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = SavepointFolder.begin(load_storage(str(tmp_path_factory.mktemp("s"))), "orders")
    return write_savepoint(folder, load_backend("hashmap"), SnapshotForm.CANONICAL, KEYS)


def read(spark: SparkSession, path: str, **options: Any) -> Any:
    return spark.read.format("holdfast").load(path, operator="spend", **options)


def test_all_kinds_of_state(spark: SparkSession, savepoint: str) -> None:
    totals = read(spark, savepoint, state="total")
    assert totals.columns == ["key_group", "key", "value"]
    assert dict(totals.select("key", "value").collect()) == {key: len(key) for key in KEYS}
    lists = read(spark, savepoint, state="orders").where("position = 1")
    assert lists.count() == len(KEYS)
    assert lists.schema["value"].metadata == {"holdfast.encoding": "msgpack"}
    row = lists.first()
    assert (row.value.amount, row.value.note) == (2.5, None)
    assert read(spark, savepoint, state="counts").select("map_key", "value").distinct().collect()
    timers = read(spark, savepoint, timers="event").agg(F.max("time")).first()
    assert timers[0] == max(map(len, KEYS))


@pytest.mark.parametrize("name", ["hashmap", "changelog-rocksdb"])
def test_of_any_backend_the_same(
    spark: SparkSession, tmp_path: Path, savepoint: str, name: str
) -> None:
    folder = SavepointFolder.begin(load_storage(str(tmp_path / "s")), "orders")
    backend = backend_named(name, tmp_path / "state")
    path = write_savepoint(folder, backend, SnapshotForm.NATIVE, KEYS)
    expected = sorted(read(spark, savepoint, state="counts").collect())
    assert sorted(read(spark, path, state="counts").collect()) == expected


def test_keys_say_what_is_read(spark: SparkSession, savepoint: str) -> None:
    def totals(**options: Any) -> Any:
        return read(spark, savepoint, state="total", partitionRows=10, **options)

    assert totals().rdd.getNumPartitions() == 10
    one = totals(key=KEYS[7])
    assert one.rdd.getNumPartitions() == 1
    assert [row.key for row in one.collect()] == [KEYS[7]]
    some = totals(keys=json.dumps([KEYS[3], KEYS[4], "no such key"]))
    assert some.rdd.getNumPartitions() <= 3
    assert sorted(row.key for row in some.collect()) == sorted(KEYS[3:5])
    groups = totals(keyGroups="10-12")
    assert groups.rdd.getNumPartitions() <= 2
    expected = [row for row in totals().collect() if 10 <= row.key_group <= 12]
    assert sorted(groups.collect()) == sorted(expected)
    assert totals(key="nobody").count() == 0
    timers = spark.read.format("holdfast").load(
        savepoint, operator="spend", timers="event", key=KEYS[7]
    )
    assert timers.count() == 1


def test_queries_of_one_frame_do_not_see_each_other_s_filters(
    spark: SparkSession, savepoint: str
) -> None:
    """Which Spark 4.1 to 4.3.0 would let them, if sources took filters there."""
    totals = read(spark, savepoint, state="total", partitionRows=10)
    assert totals.where("key = 'nobody'").count() == 0
    assert totals.count() == len(KEYS)
    assert totals.where(F.col("key") == KEYS[7]).first().key == KEYS[7]
    assert totals.where("key = 'key 1' or value = 5").count() == 10
    assert totals.where("key like 'key 1%' and value = 6").count() == 10
    both = totals.where("key = 'key 1'").union(totals.where("key = 'key 2'"))
    assert sorted(row.key for row in both.collect()) == ["key 1", "key 2"]
    joined = totals.alias("a").join(totals.where("key = 'key 3'").alias("b"), "value")
    assert joined.count() == 10
    assert totals.where("key_group between 10 and 12").count() < len(KEYS)
    assert totals.count() == len(KEYS)


def test_a_reader_takes_notice_of_filters(savepoint: str) -> None:
    options = {"path": savepoint, "operator": "spend", "state": "total", "partitionRows": "10"}
    source = StateSource(CaseInsensitiveDict(options))

    def found(*filters: Filter) -> tuple[int, list[str]]:
        reader: Any = source.reader(source.schema())
        assert list(reader.pushFilters(list(filters))) == list(filters), "Spark applies them too"
        parts = reader.partitions()
        keys = [key for part in parts for batch in reader.read(part) for key in _keys(batch)]
        return len(parts), sorted(keys)

    assert found() == (10, sorted(KEYS))
    assert found(EqualTo(("key",), KEYS[7])) == (1, [KEYS[7]])
    assert found(In(("key",), (KEYS[3], KEYS[4])))[1] == KEYS[3:5]
    assert found(EqualTo(("key",), "nobody")) == (1, [])
    parts, keys = found(GreaterThan(("key_group",), 31))
    assert 4 <= parts <= 6
    assert 0 < len(keys) < len(KEYS)
    assert found(EqualTo(("value",), 5)) == (10, sorted(KEYS))


def _keys(batch: Any) -> list[str]:
    listed: list[str] = batch.column("key").to_pylist()
    return listed


def test_keys_of_two_columns(spark: SparkSession, tmp_path: Path) -> None:
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "orders")
    with load_backend("hashmap").open(
        uid="spend",
        key_groups=key_groups_of_slots(1, 64)[0],
        max_parallelism=64,
        key_type=tuple[str, int],
    ) as state:
        total = state.get_state(ValueStateDescriptor("total", int))
        for number in range(50):
            state.set_current_key((f"u{number % 5}", number))
            total.update(number)
        part = state.snapshot(1, folder, form=SnapshotForm.CANONICAL).result(60)
    commit(folder, part)
    one = read(spark, folder.url, state="total", partitionRows=5, key='["u3", 3]')
    assert one.rdd.getNumPartitions() == 1
    assert [row.value for row in one.collect()] == [3]
    totals = read(spark, folder.url, state="total", partitionRows=5)
    assert totals.where("key._1 = 'u3'").count() == 10


def test_values_of_parts_are_columns_of_parts(spark: SparkSession, tmp_path: Path) -> None:
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "orders")
    descriptors = {
        "dict": (dict[str, int], {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        "list": (list[dict[str, float]], [{"a": 1.5}], [{"a": 1.5}]),
        "tuple": (tuple[int, str], (1, "x"), (1, "x")),
        "any": (Any, [1], bytearray(b"\x91\x01")),
        "date": (dt.date, dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
    }
    with load_backend("hashmap").open(
        uid="spend",
        key_groups=key_groups_of_slots(1, 64)[0],
        max_parallelism=64,
        key_type=dt.date,
    ) as state:
        state.set_current_key(dt.date(2024, 3, 1))
        for name, (kind, value, _) in descriptors.items():
            state.get_state(ValueStateDescriptor(name, kind)).update(value)
        part = state.snapshot(1, folder, form=SnapshotForm.CANONICAL).result(60)
    commit(folder, part)
    for name, (_, _, shown) in descriptors.items():
        frame = read(spark, folder.url, state=name).where("key = date '2024-03-01'")
        assert [tuple(row) for row in frame.select("value").collect()] == [(shown,)], name


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"state": "sum"}, "operator 'spend' has no state 'sum'.*expected.*total"),
        ({"state": "total", "operator": "spent"}, "no operator 'spent'.*'spend'"),
        ({}, "either a state or timers"),
        (
            {"state": "total", "colour": "red"},
            "no option 'colour'.*expected path, storageOptions, operator",
        ),
        ({"state": "total", "partitionRows": "0"}, "partitionRows is not legal"),
        ({"state": "orders", "key": "a", "keys": "[]"}, "both one key and several"),
        ({"state": "total", "keys": "a"}, "the keys cannot be read"),
        ({"state": "total", "keyGroups": "3-64"}, "key groups do not exist.*from 0 to 63"),
        ({"state": "total", "storageOptions": "x"}, "options of the storage cannot be read"),
        (
            {"state": "total", "storageOptions": json.dumps({"endpoint": "http://x"})},
            "endpoint",
        ),
        ({"state": "total", "path": "/nowhere"}, "there is no savepoint"),
    ],
)
def test_wrong_options_are_named(savepoint: str, options: Any, told: str) -> None:
    """As Spark calls the source, in a process of its own each time."""
    source = StateSource(CaseInsensitiveDict({"path": savepoint, "operator": "spend", **options}))
    with pytest.raises(HoldfastError, match=f"(?s){told}"):
        source.reader(source.schema()).partitions()


def test_wrong_options_are_told_by_spark(spark: SparkSession, savepoint: str) -> None:
    with pytest.raises(PySparkException, match=r"(?s)operator 'spend' has no state 'sum'"):
        read(spark, savepoint, state="sum").collect()


def test_a_byte_that_has_changed(spark: SparkSession, savepoint: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(savepoint.removeprefix("file://"), copy)
    for file in (copy / "spend" / "total").iterdir():
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.raises(PySparkException, match="changed after it was written"):
        read(spark, str(copy), state="total").collect()


def test_a_savepoint_in_s3_that_the_session_knows(
    spark: SparkSession, s3_server: S3Server, s3_bucket: str
) -> None:
    url = s3_server.url(s3_bucket, "savepoints")
    folder = SavepointFolder.begin(load_storage(url, **s3_server.options()), "orders")
    path = write_savepoint(folder, load_backend("hashmap"), SnapshotForm.CANONICAL, KEYS)
    conf = {
        "spark.hadoop.fs.s3a.endpoint": s3_server.endpoint,
        "spark.hadoop.fs.s3a.access.key": ADMIN.key,
        "spark.hadoop.fs.s3a.secret.key": ADMIN.secret,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
    }
    try:
        for name, value in conf.items():
            spark.conf.set(name, value)
        register_formats(spark)
        assert read(spark, path, state="total").count() == len(KEYS)
    finally:
        for name in conf:
            spark.conf.unset(name)
    arrow = read_state(
        path, operator="spend", state="total", storage_options=s3_server.options()
    ).read_all()
    assert arrow.num_rows == len(KEYS)
