"""A whole job of which everything has a long name in another script, on each kind of storage."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from holdfast.backends import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from holdfast.runtime import (
    CheckpointConfig,
    FileSink,
    JobFailed,
    JobHandle,
    JobStatus,
    KeyedProcessFunction,
    StreamEnvironment,
)
from holdfast.runtime.cli.application import application
from holdfast.storage import JobManagerCheckpointStorage, JobStorage, load_storage
from holdfast.storage.jobs.cleaning import jobs_in
from holdfast.storage.jobs.job import job_in
from support.jobs.spark_jobs import (
    await_checkpoints,
    await_that,
    make_orders,
    read_orders,
    write_orders,
)
from support.states.tried_backends import backend_named
from support.storages.tried_storages import CheckpointPlace, place_named
from support.stored_commands import document

pytestmark = pytest.mark.slow

LONG = "数" * 120
JOB = f"Заказы/{LONG} 🜁 100% #1"
READ, SUM, OUT = (f"{LONG} {what}" for what in ("来源", "合计", "出"))
TOTAL, SEEN, EACH = (f"{what}/{LONG}" for what in ("ü", "~-", "x_"))
FOLDER = "übung der 部/100% #1 a%41"
FILES = 4
CASES = [
    ("memory", "changelog-hashmap"),
    ("file", "rocksdb"),
    ("s3", "changelog-hashmap"),
    ("hdfs", "changelog-rocksdb"),
]


class Ledger(KeyedProcessFunction):
    """The running total of each user; a timer tells that it is there."""

    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(ValueStateDescriptor(TOTAL, int))
        self.seen = ctx.get_list_state(ListStateDescriptor(SEEN, int))
        self.each = ctx.get_map_state(MapStateDescriptor(EACH, int, int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        self.seen.add(value.n)
        self.each.put(value.n, value.amount)
        ctx.timer_service().register_processing_time_timer(0)
        yield value.user, len(self.seen.get()), total, sum(self.each.values())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        return iter(())


def start(env: StreamEnvironment, root: Path, *, ends: bool, **restore: Any) -> JobHandle:
    source = env.from_stream(read_orders(env, root / "in"), uid=READ, available_now=ends)
    totals = source.key_by("user").process(
        Ledger(), "user string, rows long, total long, again long", uid=SUM
    )
    totals.sink_to(FileSink(str(root / FOLDER / "out"), "json"), uid=OUT)
    return env.execute_async(JOB, **restore)


def results(root: Path) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(json.loads(line).values())
        for path in (root / FOLDER / "out").glob("part-*")
        for line in path.read_text().splitlines()
    )


def expected(orders: list[Any]) -> Counter[tuple[Any, ...]]:
    rows: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    found: Counter[tuple[Any, ...]] = Counter()
    for order in orders:
        rows[order.user] += 1
        totals[order.user] += order.amount
        found[order.user, rows[order.user], totals[order.user], totals[order.user]] += 1
    return found


@pytest.mark.dealt("storage_name", "backend_name", take=2)
@pytest.mark.parametrize(("storage_name", "backend_name"), CASES)
def test_names_of_any_length_and_script(
    storage_name: str,
    backend_name: str,
    quick_path: Path,
    spark: SparkSession,
    request: pytest.FixtureRequest,
) -> None:
    """It takes checkpoints, materializes, and goes on from a savepoint and from a checkpoint."""
    orders = make_orders(17, 80)
    write_orders(quick_path / "all", orders, FILES)
    (quick_path / "in").mkdir()
    show(quick_path, range(FILES // 2))
    storage, place = place_of(storage_name, quick_path, request)

    def env() -> StreamEnvironment:
        return StreamEnvironment(
            spark,
            parallelism=1,
            backend=backend_named(backend_name, quick_path / FOLDER / "state"),
            storage=storage,
            checkpointing=CheckpointConfig(interval="200ms", retained=3),
        )

    job = start(env(), quick_path, ends=place is None)
    if place is None:  # what is in the memory of a driver ends with it
        assert job.result(120) is JobStatus.FINISHED
        assert results(quick_path) == expected(orders[: len(orders) // 2])
        return
    await_checkpoints(job, 3)
    await_that(lambda: sum(results(quick_path).values()) == len(orders) // 2, "half")
    stopped = job.stop_with_savepoint(f"{place.url}/{FOLDER}")
    assert job.result(60) is JobStatus.FINISHED
    show(quick_path, range(FILES // 2, FILES - 1))
    job = start(env(), quick_path, ends=False, restore=stopped)
    await_that(lambda: sum(results(quick_path).values()) == 3 * len(orders) // 4, "more")
    await_checkpoints(job, 2)
    job.interrupt()
    opened = place.storage()
    assert jobs_in(opened) == [JOB]
    folder = opened.job(JOB)
    assert job_in(opened, folder.folder).job_id == JOB
    show(quick_path, range(FILES - 1, FILES))
    *_, older, newest = (f"{folder.url}/chk-{number:020d}" for number in folder.completed())
    path = newest
    if storage_name == "file":
        path = older
        check_damage_is_told(env(), quick_path, folder, newest, older)
    job = start(env(), quick_path, ends=True, restore=path)
    assert job.result(120) is JobStatus.FINISHED
    assert results(quick_path) == expected(orders)
    if storage_name == "file":
        told = document("inspect", stopped)
        assert told["job"] == JOB
        assert sorted(each["uid"] for each in told["operators"]) == sorted([SUM, OUT])


def check_damage_is_told(
    env: StreamEnvironment, root: Path, folder: JobStorage, newest: str, older: str
) -> None:
    """A file of state is cut off: the job fails, and says what to restore instead."""
    own = sorted(Path(newest.removeprefix("file://")).glob("slot-*"))
    os.truncate(own[0], 1)
    with pytest.raises(JobFailed) as caught:
        start(env, root, ends=True, restore=newest).result(120)
    assert f'restore="{older}"' in caught.value.what
    (job,) = json.loads(checkpoints_of(folder.storage.url))["jobs"]
    assert ["error" in each for each in job["checkpoints"]][-2:] == [False, True]


def checkpoints_of(url: str) -> str:
    return CliRunner().invoke(application, ["checkpoints", url, "--json"]).stdout


def show(root: Path, files: range) -> None:
    for number in files:
        name = f"{number:04}.json"
        (root / "all" / name).rename(root / "in" / name)


def place_of(
    name: str, folder: Path, request: pytest.FixtureRequest
) -> tuple[Any, CheckpointPlace | None]:
    if name == "memory":
        return JobManagerCheckpointStorage(), None
    place = place_named(name, folder, request)
    place = CheckpointPlace(f"{place.url}/{FOLDER}", place.options)
    inline: dict[str, Any] = {"inline_limit_bytes": 0} if name == "file" else {}
    return load_storage(place.url, **place.options, **inline), place
