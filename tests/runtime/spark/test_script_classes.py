"""A user's script on real Spark: state of the script's own classes, version by version."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime import JobFailed, read_state
from holdfast.savepoints import find_snapshot
from support.jobs.spark_jobs import await_that

pytestmark = pytest.mark.slow

_SCRIPT = """
from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import NamedTuple, NotRequired, TypedDict

import attrs
import msgspec

from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import CollectSink, KeyedProcessFunction, StreamEnvironment

class Color(Enum):
    RED = "red"

@dataclass
class Data:
    many: list[int] = field(default_factory=list, kw_only=True)
    day: date
    #data

class Struct(msgspec.Struct, kw_only=True):
    many: list[int] = msgspec.field(default_factory=list)
    day: date
    #struct

class Named(NamedTuple):
    day: date
    #named

class Typed(TypedDict):
    day: date
    #typed

@attrs.define
class Attrs:
    day: date
    #attrs

KINDS = {"data": Data, "struct": Struct, "named": Named, "typed": Typed, "attrs": Attrs}

class Keep(KeyedProcessFunction):
    def open(self, ctx):
        self.color = ctx.get_state(ValueStateDescriptor("color", Color))
        self.states = {
            name: ctx.get_state(ValueStateDescriptor(name, cls)) for name, cls in KINDS.items()
        }

    def process_element(self, value, ctx):
        found = {name: repr(state.value()) for name, state in self.states.items()}
        found["color"] = self.color.value() is Color.RED
        self.color.update(Color.RED)
        for name, state in self.states.items():
            if state.value() is None:
                state.update(KINDS[name](day=date(2024, 5, 17)))
        yield json.dumps(found),

spark, folder, restore = ARGUMENTS
env = StreamEnvironment(spark, parallelism=2, checkpointing="200ms")
rows = env.from_stream(spark.readStream.schema("k string").json(f"{folder}/rows"), uid="rows")
kept = rows.key_by("k").process(Keep(), "found string", uid="keep")
kept.sink_to(CollectSink(), uid="out")
JOB = env.execute_async("kinds", restore=restore)
"""
_DAY = "datetime.date(2024, 5, 17)"
_KINDS = ("data", "struct", "named", "typed", "attrs")
_DEFAULTS = {
    "#data": "extra: int = 5",
    "#struct": "extra: int = 5",
    "#named": "extra: int = 5",
    "#typed": "extra: NotRequired[int]",
    "#attrs": "extra: int = 5",
}


def start(spark: SparkSession, folder: Path, changes: dict[str, str], restore: str | None) -> Any:
    """Start a version of the script as `__main__`, with one more row to read."""
    text = _SCRIPT
    for place, line in changes.items():
        text = text.replace(place, line)
    script = folder / "job.py"
    script.write_text(text)
    (folder / "rows").mkdir(exist_ok=True)
    number = len(list((folder / "rows").iterdir()))
    (folder / "rows" / f"{number}.json").write_text('{"k": "a"}\n')
    arguments = {"ARGUMENTS": (spark, str(folder), restore)}
    return runpy.run_path(str(script), arguments, run_name="__main__")["JOB"]


def run(spark: SparkSession, folder: Path, changes: dict[str, str], restore: str | None) -> Any:
    """The same; what it has found, and the savepoint that it has ended with."""
    job = start(spark, folder, changes, restore)
    await_that(lambda: job.collected("out").num_rows, "the row is committed")
    savepoint = job.stop_with_savepoint(str(folder))
    (found,) = job.collected("out")["found"].to_pylist()
    return json.loads(found), savepoint


_BOOTSTRAP = """
from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

import msgspec
from pyspark.sql import functions as F

from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import SavepointWriter

class Place(msgspec.Struct):
    town: str
    country: str = "?"

@dataclass
class Data:
    day: date
    where: Place
    many: list[int] = field(default_factory=list)

spark, folder = ARGUMENTS
day = F.lit("2024-05-17").cast("date")
where = F.struct(F.lit("Ulm").alias("town"), F.lit("DE").alias("country"))
rows = spark.range(3).select(
    F.col("id").cast("string").alias("k"),
    F.struct(day.alias("day"), where.alias("where"), F.array("id").alias("many")).alias("v"),
)
PATH = (
    SavepointWriter.new(spark, job="kinds", parallelism=2)
    .with_state("keep", ValueStateDescriptor("data", Data), rows, key="k", value="v")
    .write(folder)
)
"""


def test_a_savepoint_is_made_of_classes_of_a_script(spark: SparkSession, tmp_path: Path) -> None:
    script = tmp_path / "bootstrap.py"
    script.write_text(_BOOTSTRAP)
    arguments = {"ARGUMENTS": (spark, str(tmp_path))}
    path = runpy.run_path(str(script), arguments, run_name="__main__")["PATH"]
    found = read_state(path, operator="keep", state="data").read_all()["value"].to_pylist()
    assert sorted(each["many"] for each in found) == [[0], [1], [2]]
    assert found[0]["where"] == {"town": "Ulm", "country": "DE"}


def test_classes_of_a_script_may_change_as_those_of_a_module_may(
    spark: SparkSession, tmp_path: Path
) -> None:
    found, savepoint = run(spark, tmp_path, {}, None)
    assert found == {"color": False, **dict.fromkeys(_KINDS, "None")}
    operator = find_snapshot(savepoint).metadata.operators["keep"].parts[0]
    assert {
        table["name"]: [field["required"] for field in table["values"]["fields"]]
        for table in operator.attributes["tables"]
        if "fields" in table["values"]
    } == {
        "data": [True, False],
        "struct": [False, True],
        "named": [True],
        "typed": [True],
        "attrs": [True],
    }
    found, _ = run(spark, tmp_path, _DEFAULTS, savepoint)
    assert found == {
        "color": True,
        "data": f"Data(many=[], day={_DAY}, extra=5)",
        "struct": f"Struct(many=[], day={_DAY}, extra=5)",
        "named": f"Named(day={_DAY}, extra=5)",
        "typed": f"{{'day': {_DAY}}}",
        "attrs": f"Attrs(day={_DAY}, extra=5)",
    }
    # Of Structs and others it is the same: see test_pickling.py, which takes no job
    job = start(spark, tmp_path, {"#data": "extra: int"}, savepoint)
    with pytest.raises(JobFailed, match="extra: was added without a default"):
        job.result(200)
    assert job.metrics()["attempts"] == 1
