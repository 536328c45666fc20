"""Sources on real Spark, without slots: where they begin and end, and what they are split into."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import rand

from holdfast.runtime.driver.events import EventQueue, SourceBacklog, SourceFailed
from holdfast.runtime.driver.run_parts import SourceOpening, SourcePlan
from holdfast.runtime.driver.source_feed import Feed, Source
from holdfast.runtime.network import Credentials
from holdfast.runtime.protocol.elements import EndOfInput, Idle
from holdfast.runtime.protocol.messages import Admit, MarkSource, RoomFor, ToSlot
from holdfast.runtime.spark.launching.spark_log import query_tag
from holdfast.runtime.spark.sources.frame_source import FrameSourcePlan, check_batch
from holdfast.runtime.spark.sources.query_progress import has_seen_all
from holdfast.runtime.spark.sources.query_source import QuerySourcePlan, check_streaming
from holdfast.runtime.spark.sources.splits import Division
from holdfast.runtime.stream import SourceFrame, SourceWatermark
from holdfast.storage import (
    HoldfastError,
    Invalid,
    JobStorage,
    SeededEntropy,
    StateSnapshot,
    SystemClock,
    Unavailable,
    load_storage,
)
from support.jobs.attempt_with_played_slots import marks_of
from support.jobs.spark_jobs import await_that

pytestmark = pytest.mark.slow

BATCH_CONF = "spark.sql.execution.arrow.maxBytesPerBatch"
CORES = "spark.sql.leafNodeDefaultParallelism"


class FullSlot:
    """A slot that has no room for a batch, ever."""

    def __init__(self) -> None:
        self.told: list[ToSlot] = []
        self.is_asked = threading.Event()

    def call(self, message: ToSlot) -> bool:
        if isinstance(message, RoomFor):
            self.is_asked.set()
            SystemClock().sleep_s(0.02)
            return False
        self.told.append(message)
        return True

    def watch(self, on_lost: Callable[[HoldfastError], None]) -> None:
        pass

    def close(self) -> None:
        pass


class RoomySlot(FullSlot):
    """A slot that takes all, and notes how many jobs of the source Spark has run by then."""

    def __init__(self, spark: SparkSession, label: str) -> None:
        super().__init__()
        self.jobs: list[int] = []
        self._spark: Any = spark
        self._label = label

    def call(self, message: ToSlot) -> bool:
        if isinstance(message, Admit):
            tracker = self._spark.sparkContext._jsc.sc().statusTracker()
            self.jobs.append(len(tracker.getJobIdsForTag(query_tag(self._label))))
        self.told.append(message)
        return True


class Stage:
    """Opens a source as a run does, and ends the attempt when it is left."""

    max_parallelism = 128

    def __init__(self, job: JobStorage) -> None:
        self.job = job
        self.slot = FullSlot()
        self.events = EventQueue()

    def open(self, plan: SourcePlan, restored: StateSnapshot | None = None) -> Source:
        nothing: Any = None
        return plan.open(
            SourceOpening(
                uid="in",
                edges=(),
                plan=self,  # type: ignore[arg-type]  # of which little is asked
                credentials=Credentials(token="secret", attempt=1),
                job=self.job,
                restored=restored,
                restored_from=nothing if restored is None else self.job,
                clock=SystemClock(),
            )
        )

    @property
    def job_id(self) -> str:
        return self.job.job_id

    def run(self, source: Source) -> _Running:
        return _Running(Feed(source, [self.slot], {}, self.events), source)

    def failure(self) -> str:
        while isinstance(event := self.events.next(60), SourceBacklog):
            pass
        assert isinstance(event, SourceFailed)
        return event.summary


class _Running:
    def __init__(self, feed: Feed, source: Source) -> None:
        self._feed, self._source = feed, source

    def __enter__(self) -> Source:
        self._source.start(self._feed)
        return self._source

    def __exit__(self, *_: object) -> None:
        self._feed.close()
        self._source.stop()


@pytest.fixture
def job() -> JobStorage:
    return load_storage("memory").job("job")


def make_files(folder: Path, names: Iterable[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text('{"a": 1}\n')
    return folder


def read_files(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    reader = spark.readStream.schema("a long").option("maxFilesPerTrigger", 1)
    return reader.options(**options).json(str(folder))


def read_rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", 10).load()


def begun(job: JobStorage, snapshot: StateSnapshot) -> dict[str, bytes]:
    names = list(snapshot.handles)
    return dict(zip(names, job.read_all(snapshot.handles.values()), strict=True))


@pytest.mark.parametrize("kind", ["rate", "files"])
def test_where_it_begins_is_settled_once(
    spark: SparkSession,
    tmp_path: Path,
    job: JobStorage,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a checkpoint before the first batch, and in later attempts if there is none."""
    temporary = tmp_path / "temporary files of ü, 100 %20 #1?"  # the log is there, also for Spark
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def plan() -> QuerySourcePlan:
        folder = make_files(tmp_path / "in", ["1.json"])
        frame = read_rate(spark) if kind == "rate" else read_files(spark, folder)
        return QuerySourcePlan(SourceFrame(frame, is_bounded=False))

    def attempt(checkpoint_id: int, plan: QuerySourcePlan, **given: Any) -> dict[str, bytes]:
        stage = Stage(job)
        with stage.run(stage.open(plan, **given)) as source:
            assert stage.slot.is_asked.wait(60), "a batch waits for room"
            snapshots.append(source.store(source.position(), checkpoint_id, completed=None))
            return begun(job, snapshots[-1])

    snapshots: list[StateSnapshot] = []
    first_plan = plan()
    first = attempt(1, first_plan)
    assert {"metadata", "offsets/0", "sources/0/0"} <= set(first)
    make_files(tmp_path / "in", ["0.json", "2.json"])
    again = attempt(2, first_plan)
    assert again == first
    restored = attempt(3, plan(), restored=snapshots[0])
    assert restored == first
    assert attempt(4, plan()) != first, "a fresh start has another query"


@pytest.mark.parametrize(("files", "is_bounded"), [(0, False), (2, False), (2, True)])
def test_a_query_that_others_stop_has_failed(
    spark: SparkSession, tmp_path: Path, job: JobStorage, *, files: int, is_bounded: bool
) -> None:
    folder = make_files(tmp_path / "in", [f"{number}.json" for number in range(files)])
    stage = Stage(job)
    plan = QuerySourcePlan(SourceFrame(read_files(spark, folder), is_bounded=is_bounded))
    with stage.run(stage.open(plan)):
        if files:
            assert stage.slot.is_asked.wait(60)
        stopping = [threading.Thread(target=query.stop) for query in spark.streams.active]
        assert len(stopping) == 1
        stopping[0].start()
        assert stage.failure().startswith(
            "the query was stopped from outside before its end [source 'in']. "
        )
        assert not marks_of(stage.slot.told, EndOfInput)
    stopping[0].join(60)
    assert not stopping[0].is_alive()


def test_a_bounded_query_that_has_read_all_has_ended(
    spark: SparkSession, tmp_path: Path, job: JobStorage
) -> None:
    stage = Stage(job)
    frame = read_files(spark, make_files(tmp_path / "in", []))
    with stage.run(stage.open(QuerySourcePlan(SourceFrame(frame, is_bounded=True)))) as source:
        await_that(lambda: stage.slot.told, "the end")
        assert stage.slot.told == [MarkSource(source="in", sequence=1, mark=EndOfInput())]
        assert source.position().has_ended
    told = [stage.events.next(0) for _ in range(3)]
    assert told == [SourceBacklog("in", is_read) for is_read in (True, False)] + [None]


@pytest.mark.parametrize("stopped_in", [None, 0, 1])
def test_whether_a_query_has_seen_all(
    spark: SparkSession, tmp_path: Path, stopped_in: int | None
) -> None:
    frame = read_files(spark, make_files(tmp_path / "in", ["1.json", "2.json"]))
    stopping: list[threading.Thread] = []

    def process(_: DataFrame, batch: int) -> None:
        if batch == stopped_in:
            stopping.extend(threading.Thread(target=each.stop) for each in spark.streams.active)
            stopping[0].start()
            await_that(lambda: not query.isActive, "its end")

    writer = frame.writeStream.foreachBatch(process).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "log")).start()
    query.awaitTermination(60)
    assert not query.isActive
    for each in stopping:
        each.join(60)
    assert has_seen_all(query) is (stopped_in is None)


def test_a_source_that_cannot_end_by_itself_is_read_in_one_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = read_rate(spark).writeStream.foreachBatch(lambda *_: None).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    assert query.awaitTermination(60)
    assert has_seen_all(query)


def test_a_source_that_is_held_back_is_not_idle(
    spark: SparkSession, tmp_path: Path, job: JobStorage
) -> None:
    """A source is idle when it was polled and had nothing, not when it could not be polled."""
    watermark = SourceWatermark("a", 0, idle_after_ms=50)
    silent = read_files(spark, make_files(tmp_path / "silent", []))
    stage = Stage(job)
    plan = QuerySourcePlan(SourceFrame(silent, is_bounded=False, watermark=watermark))
    with stage.run(stage.open(plan)):
        await_that(lambda: stage.slot.told, "it is idle")
        assert stage.slot.told == [MarkSource(source="in", sequence=1, mark=Idle())]
    held = Stage(job)
    full = read_files(spark, make_files(tmp_path / "full", ["1.json"]))
    slow = SourceWatermark("a", 0, idle_after_ms=3_000)
    plan = QuerySourcePlan(SourceFrame(full, is_bounded=False, watermark=slow))
    with held.run(held.open(plan)):
        assert held.slot.is_asked.wait(60)
        SystemClock().sleep_s(3.5)
        assert held.slot.told == []


@pytest.mark.parametrize("option", [{"cleanSource": "delete"}, {"CLEANSOURCE": "Archive"}])
def test_files_that_spark_removes_are_refused(
    spark: SparkSession, tmp_path: Path, option: dict[str, str]
) -> None:
    frame = read_files(spark, tmp_path, sourceArchiveDir=str(tmp_path), **option)
    joined = frame.join(spark.range(3).withColumnRenamed("id", "a"), "a").filter("a > 0")
    (name, value), *_ = option.items()
    with pytest.raises(Invalid) as caught:
        check_streaming(joined, "in")
    assert str(caught.value) == (
        "source 'in' has Spark remove files as soon as it has read them, and the job may yet have "
        f"to read them again: expected the option cleanSource not set, or off, found {name}={value}"
        ". Leave the option out; files that older checkpoints have read may be removed"
    )
    check_streaming(read_files(spark, tmp_path, cleanSource="off"), "in")
    check_streaming(read_rate(spark), "in")


@pytest.mark.parametrize("check", [check_batch, check_streaming])
def test_a_frame_of_connect_is_refused(check: Any) -> None:
    remote = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(Invalid) as caught:
        check(remote(), "in")
    assert str(caught.value) == (
        "source 'in' is not a DataFrame of the session that the job runs on: expected a DataFrame "
        "of a classic SparkSession, found pyspark.sql.connect.dataframe.DataFrame. Read it with "
        "the environment's own session; Spark Connect hides the driver"
    )


def test_a_log_that_cannot_be_made(
    job: JobStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: Any = None
    plan = QuerySourcePlan(SourceFrame(nothing, is_bounded=False))
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(Unavailable, match=f"cannot be written .source 'in', {tmp_path}/file"):
        Stage(job).open(plan)


def test_a_log_that_cannot_be_filled_leaves_nothing(
    job: JobStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    nothing: Any = None
    plan = QuerySourcePlan(SourceFrame(nothing, is_bounded=False))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("holdfast.runtime.spark.sources.query_source.write_files", full)
    with pytest.raises(Unavailable, match=r"No space left on device\. Make room"):
        Stage(job).open(plan)
    assert list(tmp_path.iterdir()) == []


def test_a_source_of_a_fixed_size_is_never_idle(spark: SparkSession) -> None:
    watermark = SourceWatermark("id", 0, idle_after_ms=10)
    with pytest.raises(Invalid, match="a DataFrame of a fixed size is never idle"):
        FrameSourcePlan(SourceFrame(spark.range(3), is_bounded=True, watermark=watermark))


def tell_contents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In place of a push: the number of each split, and something of its rows."""
    context = TaskContext.get()
    assert context is not None
    found = [batch.column(0) for batch in batches]
    numbers = pa.chunked_array(found, pa.int64())
    yield pa.RecordBatch.from_pydict(
        {
            "split": pa.array([context.partitionId()], pa.int32()),
            "attempt": pa.array([pc.sum(numbers).as_py() or 0], pa.int64()),
            "rows": pa.array([len(numbers)], pa.int64()),
            "latest": pa.array([pc.max(numbers).as_py()], pa.int64()),
            "is_void": pa.array([False]),
            "lost": pa.array([""]),
        }
    )


def divided(division: Division) -> tuple[list[Any], str]:
    division.plan()
    tell: Any = tell_contents
    splits, fingerprint = division.pushed_by(tell)
    return sorted(splits.collect()), fingerprint


def test_splits_of_files_are_told_by_what_the_files_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = str(tmp_path / "in")
    spark.range(0, 900, 1, 3).write.parquet(folder)

    def found(**settings: str) -> str:
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            division = Division(spark.read.parquet(folder), SeededEntropy(1))
            fingerprint = divided(division)[1]
        finally:
            for name in settings:
                spark.conf.unset(name)
        assert division.is_repeatable
        return fingerprint

    first = found()
    assert found() == first
    assert found(**{"spark.sql.files.maxPartitionBytes": "500"}) != first
    new_reader = {"spark.sql.sources.useV1SourceList": ""}
    assert found(**new_reader) == found(**new_reader) != ""
    changed = next((tmp_path / "in").glob("part-*1-*.parquet"))
    data = changed.read_bytes()
    changed.unlink()
    (changed.parent / f".{changed.name}.crc").unlink()
    assert found() != first
    changed.write_bytes(data)
    assert found() != first, "it has the same name and size, and may have other rows"


def test_files_are_divided_once_where_cores_come_and_go(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes splits smaller for more cores: losing an executor must change no split."""
    folder = str(tmp_path / "in")
    spark.range(0, 900, 1, 9).write.parquet(folder)
    monkeypatch.setattr(spark.sparkContext, "master", "spark://somewhere")
    division = Division(spark.read.parquet(folder), SeededEntropy(1))
    before = divided(division)
    spark.conf.set(CORES, "1")
    try:
        again = divided(division)
        other = divided(Division(spark.read.parquet(folder), SeededEntropy(1)))
    finally:
        spark.conf.unset(CORES)
    assert again == before
    assert other[1] != before[1]
    assert divided(Division(spark.read.parquet(folder), SeededEntropy(2)))[1] == before[1]


def test_splits_of_ranges_and_of_rows_of_the_driver_are_told_by_their_rows(
    spark: SparkSession,
) -> None:
    def local(*rows: int) -> DataFrame:
        return spark.createDataFrame([(row,) for row in rows], "id long")

    frames = [
        spark.range(0, 100, 1, 4),
        spark.range(0, 200, 1, 4),
        spark.range(0, 100, 1, 5),
        spark.range(0, 50, 1, 2).union(spark.range(50, 100, 1, 2)),
        local(1, 2, 3, 4),
        local(1, 2, 3, 5),
    ]
    found = [Division(frame, SeededEntropy(1)) for frame in frames]
    fingerprints = [divided(division)[1] for division in found]
    assert len(set(fingerprints)) == len(frames)
    assert all(division.is_repeatable for division in found)
    again = [divided(Division(frame, SeededEntropy(2)))[1] for frame in frames]
    assert again == fingerprints


def test_splits_that_cannot_be_told_are_kept_for_the_run(spark: SparkSession) -> None:
    """Spark samples the bounds of a sort, and takes others each time that it plans one."""

    def shuffled() -> DataFrame:
        return spark.range(0, 3000, 1, 4).orderBy(rand(7))

    division = Division(shuffled(), SeededEntropy(1))
    contents, fingerprint = divided(division)
    assert not division.is_repeatable
    assert len(contents) > 1
    assert divided(division) == (contents, fingerprint), "as in another attempt"
    assert divided(Division(shuffled(), SeededEntropy(2)))[1] != fingerprint


@pytest.mark.parametrize("shape", ["coalesce", "groupBy", "join", "limit"])
def test_other_plans_with_stable_splits_keep_their_splits(spark: SparkSession, shape: str) -> None:
    numbers = spark.range(0, 100, 1, 4)
    frames = {
        "coalesce": numbers.coalesce(2),
        "groupBy": numbers.selectExpr("id % 7 as id").groupBy("id").count().select("id"),
        "join": numbers.join(numbers.repartition(3, "id").hint("merge"), "id"),
        "limit": numbers.limit(5),
    }
    division = Division(frames[shape], SeededEntropy(1))
    first = divided(division)
    assert not division.is_repeatable
    assert divided(division) == first


def test_the_session_of_the_user_is_left_alone(spark: SparkSession) -> None:
    before = spark.conf.get(BATCH_CONF, None)
    division = Division(spark.range(5), SeededEntropy(1))
    divided(division)
    planned = division._planned
    assert planned is not None
    assert planned.sparkSession.conf.get(BATCH_CONF, None) == str(2**31 - 1)
    assert spark.conf.get(BATCH_CONF, None) == before


def test_a_micro_batch_of_nothing_runs_no_job(spark: SparkSession, job: JobStorage) -> None:
    """The first one of this source; its position moves on as of any other."""
    stage = Stage(job)
    stage.slot = slot = RoomySlot(spark, Credentials(token="secret", attempt=1).label)
    source = stage.open(QuerySourcePlan(SourceFrame(read_rate(spark), is_bounded=False)))
    with stage.run(source):
        await_that(lambda: len(slot.jobs) > 1, "two batches")
        first, second = (each for each in slot.told[:] if isinstance(each, Admit))
    assert (first.batch, first.winners) == (0, [])
    assert second.winners
    assert slot.jobs[1] == slot.jobs[0] + 1
