"""State as data: how fast Spark reads a canonical savepoint, and writes one from a DataFrame.

Figure of issue 9: 10 M entries of 8-byte values are read at least at 2 M rows/s by two task slots,
keys of 8 bytes and of 16 alike. What is read is counted and added up, so all of it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.checkpointed import label_of, place
from benchmarks.harness import Result, Scale, rate
from benchmarks.savepoints import SAVED, saved_by_hashmap
from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import SavepointWriter, read_state, register_formats
from holdfast.runtime.spark.sessions.session_choice import choose_session

__all__ = ["run"]

_KEYS = {"int": "id", "str": "concat('user-', lpad(cast(id as string), 11, '0'))"}
_VALUE = ValueStateDescriptor("value", int)


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    spark = choose_session(lambda _: 0)
    register_formats(spark)
    for kind, key in _KEYS.items():
        yield from _read(scale, spark, kind, scale.pick(10_000_000, 2_000))
        yield _written(scale, spark, kind, key, scale.pick(1_000_000, 2_000))


def _read(scale: Scale, spark: Any, kind: str, count: int) -> Iterator[Result]:
    expected = (count, count * (count - 1) // 2)
    with place() as folder:
        path = saved_by_hashmap(scale, kind, count, folder)
        found: list[tuple[int, int]] = []

        def by_spark() -> None:
            frame = spark.read.format("holdfast").load(path, **SAVED)
            found.append(tuple(frame.selectExpr("count(key)", "sum(value)").first()))

        def here() -> None:
            batches = list(read_state(path, operator=SAVED["operator"], state=SAVED["state"]))
            total = sum(int(batch.column("value").to_numpy().sum()) for batch in batches)
            found.append((sum(batch.num_rows for batch in batches), total))

        ways: dict[str, tuple[Callable[[], None], str]] = {
            "read": (by_spark, ">= 2e6"),
            "read_here": (here, ""),
        }
        for way, (read, target) in ways.items():
            found.clear()
            yield Result(
                f"state_data.{way}.{kind}.{label_of(count)}",
                "rows/s",
                rate(read, count, scale),
                f"as written: {set(found) == {expected}}",
                target,
                {"entries": count, "key_type": kind},
            )


def _written(scale: Scale, spark: Any, kind: str, key: str, count: int) -> Result:
    rows = spark.range(0, count, 1, 2).selectExpr(f"{key} as key", "id as value")
    writer = SavepointWriter.new(spark, parallelism=2).with_state("bench", _VALUE, rows)
    with place() as folder:
        paths: list[str] = []
        rates = rate(lambda: paths.append(writer.write(str(folder))), count, scale)
        written = read_state(paths[-1], operator="bench", state="value").read_all()
    return Result(
        f"state_data.write.{kind}.{label_of(count)}",
        "rows/s",
        rates,
        f"as given: {sum(written.column('value').to_pylist()) == sum(range(count))}",
        parameters={"entries": count, "key_type": kind},
    )
