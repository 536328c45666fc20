"""What cannot work is refused, most of it before the job starts, by errors that say what to do."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime import (
    CheckpointConfig,
    CollectSink,
    FileSink,
    GeneratedUidWarning,
    JobFailed,
    JobStatus,
    KeyedProcessFunction,
    NetworkConfig,
    NoRestart,
    StreamEnvironment,
)
from holdfast.runtime.spark.sessions.session_checks import check_session
from holdfast.storage import Invalid
from holdfast.storage.distribution import holdfast_version

pytestmark = pytest.mark.slow


class Echo(KeyedProcessFunction):
    def __repr__(self) -> str:
        return "Echo()"

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield tuple(value)


def numbers(env: StreamEnvironment, uid: str = "numbers") -> Any:
    frame = env.spark.range(20).selectExpr("id as n", "cast(id as float) as part", "array(id) as l")
    return env.from_batch(frame, uid=uid)


def small(env: StreamEnvironment) -> None:
    env.parallelism = 4
    numbers(env).sink_to(CollectSink(), uid="out")
    env.execute_async("job")


def not_streaming(env: StreamEnvironment) -> None:
    env.from_stream(env.spark.range(3), uid="numbers")


def streaming(env: StreamEnvironment) -> None:
    env.from_batch(env.spark.readStream.format("rate").load(), uid="rate")


def a_switch_that_is_text(env: StreamEnvironment) -> None:
    rate = env.spark.readStream.format("rate").load()
    env.from_stream(rate, uid="rate", available_now="no")  # type: ignore[arg-type]


def no_such_key(env: StreamEnvironment) -> None:
    numbers(env).key_by("m")


def no_legal_key(env: StreamEnvironment) -> None:
    numbers(env).key_by("l")


def two_of_one_uid(env: StreamEnvironment) -> None:
    stream = numbers(env)
    stream.map(tuple, "n long, part float, l array<long>", uid="same")
    stream.filter(bool, uid="same")


def no_pickle(env: StreamEnvironment) -> None:
    lock = threading.Lock()
    numbers(env).filter(lambda row: row.n and lock.locked(), uid="locked")


def another_kind_of_function(env: StreamEnvironment) -> None:
    numbers(env).process(Echo(), "n long", uid="echo")


def bad_schema(env: StreamEnvironment) -> None:
    numbers(env).map(tuple, "n lang", uid="echo")


def nothing_reads(env: StreamEnvironment) -> None:
    numbers(env)
    env.execute_async("job")


def no_checkpoints(env: StreamEnvironment) -> None:
    rate = env.from_stream(env.spark.readStream.format("rate").load(), uid="rate")
    rate.sink_to(CollectSink(), uid="out")
    env.execute_async("job")


def no_final_checkpoint(env: StreamEnvironment) -> None:
    """The job finished, nothing was committed, and `restore="latest"` had nothing to run."""
    env.checkpointing = CheckpointConfig(interval="1s", final_checkpoint=False)
    numbers(env).sink_to(CollectSink(), uid="out")
    env.execute_async("job")


def too_little_memory(env: StreamEnvironment) -> None:
    env.network = NetworkConfig(memory="1 kb")
    numbers(env).key_by("n").process(Echo(), "n long, part float", uid="echo")
    env.execute_async("job")


def no_such_column_of_time(env: StreamEnvironment) -> None:
    numbers(env).with_watermark("part", "1s")


REFUSALS: dict[Callable[[StreamEnvironment], None], str] = {
    small: (
        "the session is too small for the job [master local[4]]: expected at least 5 task "
        "slots: 4 for the job's slots, which run all the time, and one or more to read "
        'sources, found 4. Use master("local[6]"), or spark-submit --master "local[6]", or a lower '
        "parallelism"
    ),
    not_streaming: (
        "source 'numbers' is not a streaming DataFrame: expected one from "
        "spark.readStream, found a DataFrame of a fixed size. Use from_batch, or read it "
        "with spark.readStream"
    ),
    streaming: "source 'rate' is a streaming DataFrame. Use from_stream",
    a_switch_that_is_text: "available_now is a switch: expected True or False, found 'no'",
    no_such_key: (
        "there is no key column 'm' [operator 'numbers']: expected one of n, part, l, "
        "found no column of that name"
    ),
    no_legal_key: (
        "column 'l' cannot be a key [operator 'numbers']: expected whole numbers, text, "
        "bytes, truth, floats, dates, timestamps or decimals, found list<element: int64 "
        "not null>. Make a column of such a type of it first"
    ),
    two_of_one_uid: (
        "two operators have the uid 'same': expected a uid of its own for each: state is "
        "found by it, found map and filter. Give one of them another uid"
    ),
    no_pickle: (
        "a function cannot be pickled, so it cannot get into slots [operator 'locked']: "
        "expected a function whose attributes and closures can be pickled, found "
        "TypeError: cannot pickle '_thread.lock' object. Make such things (locks, "
        "connections, sessions) in its method open"
    ),
    another_kind_of_function: (
        "process of a stream that is not keyed takes another kind of function: expected an "
        "object of a class below ProcessFunction, found "
        "tests.runtime.spark.test_refusals.Echo Echo(). A KeyedProcessFunction goes to process of "
        "a keyed stream: call key_by first"
    ),
    bad_schema: (
        "a schema cannot be read [operator 'echo']: expected DDL as Spark has it, found "
        '[UNSUPPORTED_DATATYPE] Unsupported data type "LANG". SQLSTATE: 0A000 (line 1, pos '
        "2)"
    ),
    nothing_reads: ("nothing reads the source 'numbers'. Process it, or remove the source"),
    no_checkpoints: (
        "sink 'out' would never commit a row [source 'rate' does not end, and no "
        "checkpoints are taken]: expected checkpoints: sinks commit when one is complete. "
        'Pass checkpointing="5s", or another interval, to the environment'
    ),
    no_final_checkpoint: (
        "sink 'out' would lose the last rows [all sources end, and no checkpoint is taken after "
        "that]: expected a final checkpoint: sinks commit when one is complete, found "
        "final_checkpoint=False. Leave final_checkpoint out (on a command line, "
        "execution.checkpointing.checkpoints-after-tasks-finish)"
    ),
    too_little_memory: (
        "the memory for rows on their way through a slot is too small for the job "
        "[taskmanager.memory.network.max]: expected 1m or more, for 1 channels and queues in each "
        "of 2 slots, found 1024 bytes. Give it more, or the job fewer slots"
    ),
    no_such_column_of_time: (
        "column 'part' cannot be event time [operator 'numbers']: expected int64 "
        "milliseconds since 1970, or a timestamp, found float"
    ),
}


@pytest.mark.parametrize("attempt", REFUSALS)
def test_an_impossible_job_is_refused_before_it_starts(
    spark: SparkSession, attempt: Callable[[StreamEnvironment], None]
) -> None:
    with pytest.raises(Invalid) as caught:
        attempt(StreamEnvironment(spark, parallelism=2))
    assert str(caught.value) == REFUSALS[attempt]


def test_a_session_of_connect_is_refused() -> None:
    class Remote:
        """As little of a session of Spark Connect as there is."""

    Remote.__module__, Remote.__qualname__ = "pyspark.sql.connect.session", "SparkSession"
    session: Any = Remote()
    with pytest.raises(Invalid) as caught:
        check_session(session, 2, "job")
    assert str(caught.value) == (
        "this session cannot carry a job: expected a classic SparkSession, in the driver's own "
        "process, found pyspark.sql.connect.session.SparkSession. Spark Connect hides the driver; "
        "start the job with spark-submit or a local master"
    )


def test_dynamic_allocation_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = spark.sparkContext.getConf().set("spark.dynamicAllocation.enabled", "true")
    monkeypatch.setattr(type(spark.sparkContext), "getConf", lambda _: conf)
    with pytest.raises(Invalid) as caught:
        check_session(spark, 2, "job")
    assert str(caught.value) == (
        "dynamic allocation would take executors away from slots, or start them too late: expected "
        "spark.dynamicAllocation.enabled=false, found true. Set it to false, and "
        "spark.executor.instances to the number that you want"
    )


def test_executors_are_asked_again_only_if_something_has_changed(spark: SparkSession) -> None:
    def jobs_of(session_checks: int) -> list[int]:
        """The jobs that Spark has run once the session was checked so often."""
        for _ in range(session_checks):
            check_session(spark, 2, "job").release()
        return sorted(spark.sparkContext.statusTracker().getJobIdsForGroup())

    assert jobs_of(1) == jobs_of(2)


DAEMON = "spark.python.daemon.module"
HIDES_HOLDFAST = """
import sys

sys.path[:] = [each for each in sys.path if "holdfast" not in each]
"""


def check_with_path(spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is refused when executors find this folder first; Spark starts new workers for it."""
    context: Any = spark.sparkContext
    monkeypatch.setitem(context.environment, "PYTHONPATH", str(path))
    conf = context._jsc.sc().conf()
    ours = conf.get(DAEMON)
    conf.set(DAEMON, "pyspark.daemon")  # ours is of a session whose workers have Holdfast
    try:
        with pytest.raises(Invalid) as caught:
            check_session(spark, 2, "job")
    finally:
        conf.set(DAEMON, ours)
    return re.sub(r"\[\S+\]", "[host]", str(caught.value))


HIDES_ARROW = """
import sys

sys.modules["pyarrow"] = None
"""


def test_executors_with_a_python_of_others_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDES_ARROW)
    message = check_with_path(spark, tmp_path, monkeypatch)
    assert message.startswith("the Python of an executor lacks what Spark and Holdfast need [")
    assert "found ModuleNotFoundError: " in message
    assert f"Set PYSPARK_PYTHON before the session is made; here it would be {sys.executable}" in (
        message
    )


def test_executors_without_holdfast_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDES_HOLDFAST)
    assert check_with_path(spark, tmp_path, monkeypatch).startswith(
        f"an executor has not the Holdfast of the driver [host]: expected {holdfast_version()}, "
        "found none ("
    )


def test_executors_with_another_holdfast_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tmp_path / "holdfast_spark-9.9.dist-info" / "METADATA"
    facts.parent.mkdir()
    facts.write_text("Metadata-Version: 2.1\nName: holdfast-spark\nVersion: 9.9\n")
    assert check_with_path(spark, tmp_path, monkeypatch) == (
        f"an executor has not the Holdfast of the driver [host]: expected {holdfast_version()}, "
        "found 9.9. Install the same version on every executor, or pass it by --py-files"
    )


@pytest.mark.parametrize(
    ("row", "told"),
    [
        pytest.param(
            ("a", 1),
            "tuple ('a', 1)]: expected a tuple of 3 values, or a dict, for name, n, m, found tuple "
            "('a', 1)",
            id="a length",
        ),
        pytest.param(
            ("a", "b", 2),
            "tuple ('a', 'b', 2), column 'n']: expected int64, found str 'b'",
            id="a type",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_named(
    spark: SparkSession, tmp_path: Path, row: tuple[Any, ...], told: str
) -> None:
    class Misfit(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield row if value.n == 13 else ("fits", value.n, 1)

    env = StreamEnvironment(spark, parallelism=2, restart=NoRestart())
    keyed = numbers(env).key_by("n").process(Misfit(), "name string, n long, m int", uid="misfit")
    keyed.sink_to(FileSink(str(tmp_path / "out")), uid="out")
    with pytest.raises(JobFailed) as caught:
        env.execute_async("misfit").result(200)
    line = re.sub(r"row \d+", "row _", str(caught.value).splitlines()[0])
    assert line == (
        "operator 'misfit' failed: a row does not fit the schema of its output [operator 'misfit', "
        f"row _ {told}. Yield rows that fit, or change schema="
    )
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_a_job_beside_another_gets_only_what_that_leaves(spark: SparkSession) -> None:
    first = check_session(spark, 2, "first")
    try:
        with pytest.raises(Invalid) as caught:
            check_session(spark, 2, "second")
        assert str(caught.value) == (
            "the session has too few free task slots for the job [master local[4]]: expected at "
            "least 3 task slots: 2 for the job's slots, which run all the time, and one or more to "
            "read sources, found 2 free: of 4, 2 are held (2 by job 'first'). Use "
            'master("local[6]"), or spark-submit --master "local[6]", or a lower parallelism, or '
            "cancel a job that is not needed"
        )
        check_session(spark, 1, "third").release()
    finally:
        first.release()
    check_session(spark, 2, "second").release()


def test_a_job_that_is_refused_or_has_ended_holds_no_task_slots(spark: SparkSession) -> None:
    for restore in ("nowhere", None):
        env = StreamEnvironment(spark, parallelism=3)
        numbers(env).sink_to(CollectSink(), uid="out")
        if restore:
            with pytest.raises(Invalid, match="not a checkpoint or savepoint to restore from"):
                env.execute_async("job", restore=restore)
        else:
            env.execute_async("job").result(200)
    check_session(spark, 3, "job").release()


def test_a_stream_that_spark_cannot_process_is_refused(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load()
    env = StreamEnvironment(spark, parallelism=2)
    env.from_stream(rate.where("value > 3").select("value"), uid="fine")
    with pytest.raises(Invalid, match="Spark cannot process source 'rate' as a stream") as caught:
        env.from_stream(rate.orderBy("value"), uid="rate")
    assert "orting is not supported" in caught.value.found


def test_a_graph_is_one_job(spark: SparkSession) -> None:
    env = StreamEnvironment(spark, parallelism=1)
    for rows in (3, 5):  # as in a notebook: the same cell again
        stream = env.from_batch(spark.range(rows), uid="numbers")
        stream.sink_to(CollectSink(), uid="out")
        job = env.execute_async(f"job {rows}")
        assert job.result(200) is JobStatus.FINISHED
        assert job.collected("out").num_rows == rows
        with pytest.raises(Invalid, match=f"the stream is of job 'job {rows}', which was started"):
            stream.sink_to(CollectSink(), uid="more")
    with pytest.raises(Invalid, match="the job has no source"):
        env.execute_async("nothing")


def test_a_source_without_a_uid_is_warned_about(spark: SparkSession) -> None:
    env = StreamEnvironment(spark, parallelism=1)
    with pytest.warns(
        GeneratedUidWarning, match="a source has no uid and is called 'source-1'"
    ) as w:
        env.from_batch(spark.range(3))
    assert w[0].filename == __file__
