"""What is understood of the errors of Spark by which a source ends, and a job that meets one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from holdfast.runtime import CollectSink, FixedDelayRestart, JobFailed, StreamEnvironment
from holdfast.runtime.spark.sources.source_errors import SourceTrouble, trouble_in

PYTHON = (
    "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent "
    'call last):\n  File "/pyspark.zip/pyspark/worker.py", line 4, in main\n    process()\n'
    '  File "job.py", line 18, in price\n    return of[row]\n           ^^^^^^^\n{}\n SQLSTATE: '
    "38000\n\nJVM stacktrace:\norg.apache.spark.api.python.PythonException: …\n\tat org.apache(1)"
)
CONNECTED = "ConnectionResetError: gone\n\nDuring handling of the above exception, another:\n\n"
AGAIN = 'Traceback (most recent call last):\n  File "job.py", line 20, in price\n    raise\n'
CALLED = "An error occurred while calling o289.collectToPython.\n: org.apache.spark."
READ = f"{CALLED}SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file x."
IN_FILE = f"{READ}  SQLSTATE: KD001\n\tat org.apache.spark.Read(Read.scala:1)\nCaused by: "
PARSED = (
    "org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed "
    "records are detected: [null].\nParse Mode: FAILFAST. SQLSTATE: 22023\n\tat org.apache(1)"
)
CAST = "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018"
IN_QUERY = f"[STREAM_FAILED] Query [id = 1] terminated with exception: {CAST} SQLSTATE: XXKST"
SCALA = "[FAILED_EXECUTE_UDF] User defined function failed. SQLSTATE: 39000\n\tat a(1)\nCaused by: "


@pytest.mark.parametrize(
    ("text", "fault", "summary"),
    [
        (PYTHON.format("KeyError: 5"), "KeyError", "KeyError: 5 (job.py, line 18, in price)"),
        (PYTHON.format("prices.NoPrice: 5"), "prices.NoPrice", "prices.NoPrice: 5 (job.py"),
        (PYTHON.format("KeyError"), "KeyError", "KeyError (job.py, line 18, in price)"),
        (IN_FILE + PARSED, "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION", "[MALFORMED_RECORD"),
        (CAST, "CAST_INVALID_INPUT", "[CAST_INVALID_INPUT] The value 'x' cannot be cast."),
        (IN_QUERY, "CAST_INVALID_INPUT", "[CAST_INVALID_INPUT] The value 'x' cannot be cast."),
        (f"{SCALA}java.lang.ArithmeticException", "FAILED_EXECUTE_UDF", "[FAILED_EXECUTE_UDF]"),
        (
            PYTHON.format("holdfast.storage.errors.Invalid: no time"),
            "holdfast.storage.errors.Invalid",
            "holdfast.storage.errors.Invalid: no time",
        ),
    ],
)
def test_errors_of_code_or_data_are_faults_with_a_stable_name(
    text: str, fault: str, summary: str
) -> None:
    trouble = trouble_in(Exception(text))
    assert trouble.fault == fault
    assert trouble.summary.startswith(summary)


@pytest.mark.parametrize(
    "text",
    [
        PYTHON.format("ConnectionRefusedError: no"),
        PYTHON.format("requests.exceptions.ConnectionError: no"),
        PYTHON.format(f"{CONNECTED}{AGAIN}KeyError: 5"),
        PYTHON.format("holdfast.storage.errors.Unavailable: a slot does not answer"),
        f"{IN_FILE}java.net.ConnectException: refused",
        f"{SCALA}java.net.SocketTimeoutException: late",
        f"{CALLED}SparkException: Python worker exited unexpectedly (crashed)",
        "[KAFKA_DATA_LOSS] Some data is not there yet. SQLSTATE: 22000",
        "the session is closed",
    ],
)
def test_transient_errors_are_not_faults(text: str) -> None:
    assert trouble_in(Exception(text)).fault == ""


def test_the_object_of_a_call_is_not_what_is_told() -> None:
    assert trouble_in(Exception(f"{CALLED}SparkException: no\n\tat a(1)")) == SourceTrouble(
        "org.apache.spark.SparkException: no"
    )


def test_planning_errors_are_faults_unless_a_catalog_is_down() -> None:
    missing = "[PATH_NOT_FOUND] Path does not exist: file:/in. SQLSTATE: 42K03"
    trouble = trouble_in(AnalysisException(missing))
    assert (trouble.summary, bool(trouble.fault)) == (missing, True)
    option = (
        "[STREAM_FAILED] no\nCaused by: java.lang.IllegalArgumentException: Invalid value 'few'"
    )
    assert trouble_in(Exception(option)).fault == "IllegalArgumentException"
    host = "java.lang.IllegalArgumentException: java.net.UnknownHostException: namenode"
    assert trouble_in(Exception(host)).fault == ""
    down = "no metastore\nCaused by: java.net.ConnectException: refused"
    assert trouble_in(AnalysisException(down)).fault == ""


@pytest.mark.slow
def test_a_source_that_cannot_start_ends_the_job(tmp_path: Path, spark: SparkSession) -> None:
    env = StreamEnvironment(
        spark,
        parallelism=1,
        storage=str(tmp_path / "state"),
        checkpointing="10s",
        restart=FixedDelayRestart(attempts=5, delay="0s", max_same_failures=2),
    )
    reader = spark.readStream.schema("a long").option("maxFilesPerTrigger", "few")
    (tmp_path / "in").mkdir()
    env.from_stream(reader.json(str(tmp_path / "in")), uid="in").sink_to(CollectSink(), uid="out")
    job = env.execute_async("cannot-start")
    with pytest.raises(JobFailed, match=r"source 'in' failed: .*few.*Given up after 2"):
        job.result(timeout_s=200)
    assert [failure.count for failure in job.failure_details] == [1, 2]


def raises(frame: DataFrame) -> DataFrame:
    def price(number: int) -> int:
        raise KeyError(number)

    return frame.select(udf(price, "long", useArrow=False)("a").alias("a"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "change", "told"),
    [
        ('{"a": 1}\n', raises, r"KeyError: 1 \(.*test_source_errors.py, line \d+, in price\)"),
        ("{broken\n", lambda frame: frame, r"\[MALFORMED_RECORD_IN_PARSING"),
    ],
)
def test_a_source_that_meets_the_same_row_each_time_ends_the_job(
    tmp_path: Path, spark: SparkSession, content: str, change: Callable[..., Any], told: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.json").write_text(content)
    env = StreamEnvironment(
        spark,
        parallelism=1,
        storage=str(tmp_path / "state"),
        checkpointing="10s",
        restart=FixedDelayRestart(attempts=5, delay="0s", max_same_failures=2),
    )
    reader = spark.readStream.schema("a long").option("mode", "FAILFAST")
    env.from_stream(change(reader.json(str(tmp_path / "in"))), uid="in").sink_to(
        CollectSink(), uid="out"
    )
    job = env.execute_async("meets-the-same-row")
    with pytest.raises(JobFailed, match=rf"source 'in' failed: {told}.*Given up after 2"):
        job.result(timeout_s=200)
    assert len(job.failures) == 2
