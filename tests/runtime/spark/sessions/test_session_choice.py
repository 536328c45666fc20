"""An environment without a session takes the one that its program was started for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime.spark.sessions.session_choice import choose_session
from holdfast.storage import Invalid
from support.jobs.spark_sessions import LOOPBACK

BIN = Path(sys.executable).parent
SHOWS = """
import json, sys
from holdfast.runtime import StreamEnvironment

env = StreamEnvironment()
context = env.spark.sparkContext
daemon = context.getConf().get("spark.python.daemon.module")
bar = context.getConf().get("spark.ui.showConsoleProgress")
found = [context.master, context.appName, env.parallelism, type(env.backend).__name__, daemon]
found.append(bar)
"""
DAEMON = "holdfast.runtime.spark.python_daemon"
JOB = """
from holdfast.runtime import CollectSink

stream = env.from_batch(env.spark.range(10), uid="numbers")
stream.sink_to(CollectSink(), uid="out")
job = env.execute_async("numbers")
found += [job.result().value, job.collected("out").num_rows]
"""
TELLS = "print('found', json.dumps(found))"
SAID = (
    "MASTER",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "SPARK_CONF_DIR",
    "SPARK_LOCAL_IP",
    "SPARK_REMOTE",
)


said: list[str] = []
"""What such programs have written beside."""


def ran(command: list[str], app: str, folder: Path, **environ: str) -> Any:
    """What such a program has found; nothing of Spark that these tests have set is around it."""
    path = folder / "app.py"
    path.write_text(app)
    around = {name: value for name, value in os.environ.items() if name not in SAID}
    around["PATH"] = f"{BIN}{os.pathsep}{around['PATH']}"  # as in a .venv that was entered
    done = subprocess.run(
        [*command, str(path)],
        env={**around, **environ, "SPARK_LOCAL_HOSTNAME": LOOPBACK},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert lines, done.stderr
    said.append(done.stdout + done.stderr)  # spark-submit makes one of both
    return json.loads(lines[0].removeprefix("found "))


@pytest.mark.slow
def test_a_program_under_spark_submit_runs_where_that_says(tmp_path: Path) -> None:
    submit = [str(BIN / "spark-submit"), "--master", "local[3]", "--name", "mine"]
    submit += ["--conf", "spark.holdfast.parallelism.default=1"]
    submit += ["--conf", "spark.holdfast.state.backend.type=rocksdb"]
    found = ran(submit, SHOWS + JOB + TELLS, tmp_path)
    assert found == ["local[3]", "mine", 1, "RocksDBStateBackend", DAEMON, None, "finished", 10]
    told = said[-1]  # there is no terminal, and nothing has waited by `execute`
    assert "INFO holdfast: job 'numbers' starts: no checkpoints while it runs" in told
    assert "WARNING holdfast: job 'numbers': checkpoints are in the driver's memory" in told
    assert "INFO holdfast: job 'numbers' is finished" in told


@pytest.mark.slow
@pytest.mark.dealt("environ", "master", "daemon", "bar", take=1)
@pytest.mark.parametrize(
    ("environ", "master", "daemon", "bar"),
    [
        ({}, "local[5]", DAEMON, "false"),
        ({"MASTER": "local[*]"}, "local[*]", DAEMON, "false"),
        ({"MASTER": "local[*]"}, "local[*]", "pyspark.daemon", "true"),
    ],
    ids=["no master is named", "a master is named", "a master, a daemon and a bar are named"],
)
def test_options_of_a_session_are_read_before_it_is_made(
    tmp_path: Path, environ: dict[str, str], master: str, daemon: str, bar: str
) -> None:
    options = "spark.holdfast.parallelism.default 3\nspark.holdfast.state.backend.type rocksdb\n"
    if daemon != DAEMON:
        options += f"spark.python.daemon.module {daemon}\nspark.ui.showConsoleProgress {bar}\n"
    (tmp_path / "spark-defaults.conf").write_text(options)
    environ = {**environ, "SPARK_CONF_DIR": str(tmp_path)}
    found = ran([sys.executable], SHOWS + TELLS, tmp_path, **environ)
    assert found == [master, "holdfast", 3, "RocksDBStateBackend", daemon, bar]


@pytest.mark.slow
def test_a_server_of_connect_is_refused_before_anything_begins(tmp_path: Path) -> None:
    app = "try:\n    from holdfast.runtime import StreamEnvironment\n    StreamEnvironment()\n"
    app += "except Exception as error:\n    found = str(error)\nimport json\n"
    found = ran([sys.executable], app + TELLS, tmp_path, SPARK_REMOTE="sc://somewhere:15002")
    assert "Spark Connect cannot carry a job" in found
    assert "sc://somewhere:15002" in found


@pytest.mark.slow
def test_a_session_that_is_there_is_used_and_not_changed(spark: SparkSession) -> None:
    before = spark.conf.getAll
    found: list[SparkSession] = []
    # Which session is active is of a thread.
    thread = threading.Thread(target=lambda: found.append(choose_session(_never)))
    thread.start()
    thread.join()
    assert found == [spark]
    assert spark.conf.getAll == before


def _never(conf: Any) -> int:
    raise Invalid("no session is to be made", found=repr(conf))
