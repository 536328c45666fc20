"""A job on Spark under one version of its class after the other, with a changelog."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import ListStateDescriptor, ValueStateDescriptor, load_backend
from holdfast.changelog import ChangelogStateBackend
from holdfast.runtime import (
    CheckpointConfig,
    CollectSink,
    JobHandle,
    KeyedProcessFunction,
    StreamEnvironment,
    read_state,
)
from support.jobs.spark_jobs import await_that

pytestmark = pytest.mark.slow


def start(
    spark: SparkSession, root: Path, cls: Any, change: Callable[[Any, Any], None], row: str
) -> JobHandle:
    """One version, from where the one before has left off; it reads this row."""

    class Keep(KeyedProcessFunction):  # pickled by value: slots do not know this module
        def open(self, ctx: Any) -> None:
            self.last = ctx.get_state(ValueStateDescriptor("last", cls))
            self.all = ctx.get_list_state(ListStateDescriptor("all", cls))

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            found = [self.last.value(), *self.all.get()]
            change(self.last, self.all)
            yield row, json.dumps([each and vars(each) for each in found])

    rows = root / "rows"
    rows.mkdir(exist_ok=True)
    (rows / f"{row}.json").write_text(json.dumps({"k": "a"}) + "\n")
    env = StreamEnvironment(
        spark,
        parallelism=2,
        backend=ChangelogStateBackend(
            load_backend("rocksdb", directories=[str(root / "state")]),
            materialization_interval_s=3600.0,
        ),
        storage=str(root / "checkpoints"),
        checkpointing=CheckpointConfig(interval="200ms", on_cancel="retain"),
    )
    source = env.from_stream(spark.readStream.schema("k string").json(str(rows)), uid="rows")
    kept = source.key_by("k").process(Keep(), "row string, found string", uid="keep")
    kept.sink_to(CollectSink(), uid="out")
    return env.execute_async("versions", restore="latest")


def found_by(job: JobHandle, row: str) -> Any:
    """What was there when the row came; what the version before has found may be there, too."""
    found: dict[str, str] = {}

    def has_row() -> bool:
        assert not job.status.is_final, job.failures
        found.update((each["row"], each["found"]) for each in job.collected("out").to_pylist())
        return row in found

    await_that(has_row, "the row is committed")
    return json.loads(found[row])


def version(*fields: Any) -> Any:
    cls = make_dataclass("Order", fields)
    cls.__module__ = "__main__"
    return cls


def test_versions_in_a_row_read_as_if_all_were_written_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each checkpoint of each version is restored from, log and all."""
    first = version(("n", int))
    second = version(("n", int | None), ("note", str, field(default="second")))
    third = version(("note", str, field(default="third")), ("n", int | None, field(default=0)))
    fourth = version(("n", int | None))
    fifth = version(("n", int | None), ("note", str, field(default="fifth")))

    def put(last: Any, every: Any) -> None:
        last.update(first(1))
        every.add(first(1))

    def add(_: Any, every: Any) -> None:
        every.add(second(2))

    def look(*_: Any) -> None:
        pass

    def clear(last: Any, _: Any) -> None:
        last.clear()

    one, two = {"n": 1}, {"n": 2}
    note = {"note": "second"}
    versions: list[tuple[Any, Callable[[Any, Any], None], list[Any]]] = [
        (first, put, [None]),
        (second, add, [one | note, one | note]),
        (third, look, [note | one, note | one, note | two]),
        (fourth, clear, [one, one, two]),
        (fifth, look, [None, {"n": 1, "note": "fifth"}, {"n": 2, "note": "fifth"}]),
    ]
    for number, (cls, change, expected) in enumerate(versions):
        job = start(spark, tmp_path, cls, change, str(number))
        assert found_by(job, str(number)) == expected
        job.cancel()
    newest = max((tmp_path / "checkpoints" / "versions").glob("chk-*"))
    found = read_state(str(newest), operator="keep", state="all").read_all()["value"].to_pylist()
    assert [each["n"] for each in found] == [1, 2]
