"""Programs that are stopped by a signal, on a real session: one line, and no traceback.

A program that waits in a way of its own instead of `execute`, or for the session, gets the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyspark
import pytest

STARTS = """
import sys, threading, time
from holdfast.runtime import CollectSink, StreamEnvironment

way, place = sys.argv[1:]
if way == "session":
    threading.Timer(1.0, lambda: print("READY", flush=True)).start()
env = StreamEnvironment(storage=place, parallelism=1, checkpointing="1s", log_level="WARNING")
frame = env.spark.readStream.format("rate").load().selectExpr("value")
rows = env.from_stream(frame, uid="rate").map(lambda row: (row.value,), "v long", uid="map")
rows.sink_to(CollectSink(), uid="out")
job = env.execute_async("orders")
while job.checkpoints().counts.completed == 0:
    time.sleep(0.1)
print("READY", flush=True)
try:
    if way == "result":
        job.result()
    while True:
        time.sleep(60)
finally:
    env.spark.stop()
"""
CODES = {signal.SIGINT: -signal.SIGINT, signal.SIGTERM: 143}


def lines(heard: Path) -> list[str]:
    """Without the blanks by which Spark clears its progress bar."""
    return [line for line in heard.read_text().splitlines() if line.strip()]


def submitted(app: Path) -> list[str]:
    """The command by which spark-submit runs a program."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return [str(submit), "--conf", "spark.log.level=WARN", str(app)]


def stopped(
    command: list[str], way: str, kind: signal.Signals, place: Path, *, is_group: bool = False
) -> tuple[int, list[str]]:
    """The exit code and what was told, after a signal to a program or to its process group."""
    heard = place.parent / "heard"
    with heard.open("w") as output:  # all of it: spark-submit has stderr of programs on stdout
        begun = subprocess.Popen(
            [*command, way, str(place)],
            stdout=output,
            stderr=output,
            env={**os.environ, "MASTER": "local[2]", "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )
    moment = threading.Event()
    while "READY" not in lines(heard):
        assert begun.poll() is None, lines(heard)
        moment.wait(0.05)
    if is_group:
        os.killpg(begun.pid, kind)
    else:
        begun.send_signal(kind)
    begun.wait(90)
    told = lines(heard)
    assert not [line for line in told if line.startswith("[Stage")], "no bar that never moves"
    ready = told.index("READY")  # before it Spark says what it says while it starts
    if way != "session":
        del told[:ready]
    return begun.returncode, [line for line in told if line != "READY"]


def check_line(told: list[str], kind: signal.Signals, place: Path) -> None:
    (line,) = told
    word = "terminated" if kind is signal.SIGTERM else "interrupted"
    assert f"job 'orders' is {word}; its checkpoints stay at" in line
    assert 'restore="latest"' in line
    assert list(place.glob("orders/**/_metadata*")), "there is what to go on from"


@pytest.mark.slow
@pytest.mark.dealt("way")
@pytest.mark.parametrize(
    ("way", "kind", "is_group"),
    [
        ("result", signal.SIGINT, False),
        ("sleep", signal.SIGTERM, True),
        ("session", signal.SIGINT, False),
    ],
)
def test_a_stopped_program_prints_one_line(
    way: str,
    kind: signal.Signals,
    is_group: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    app, place = tmp_path / "app.py", tmp_path / "checkpoints"
    app.write_text(STARTS)
    code, told = stopped([sys.executable, str(app)], way, kind, place, is_group=is_group)
    assert code == CODES[kind], told
    if way == "session":
        # The JVM that starts meanwhile greets after it.
        assert "interrupted before a job was started" in told, told
        assert not [line for line in told if "Traceback" in line or "Error" in line], told
        return
    check_line(told, kind, place)


@pytest.mark.slow
@pytest.mark.dealt("kind")
@pytest.mark.parametrize("kind", CODES)
def test_under_spark_submit_the_whole_process_group_is_signalled(
    kind: signal.Signals, tmp_path: Path
) -> None:
    """As a terminal does by Ctrl-C: the JVM ends at the same time."""
    app, place = tmp_path / "app.py", tmp_path / "checkpoints"
    app.write_text(STARTS)
    code, told = stopped(submitted(app), "result", kind, place, is_group=True)
    assert code == 128 + kind
    check_line(told, kind, place)
