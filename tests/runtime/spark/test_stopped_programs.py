"""Programs that are stopped by a signal, on a real session: one line, and no traceback of anybody.

Who does not `execute` but waits in some way of his own, or for the session, gets the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.slow
@pytest.mark.dealt("way")
@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("result", signal.SIGINT),
        ("sleep", signal.SIGTERM),
        ("session", signal.SIGINT),
    ],
)
def test_one_line_is_all_there_is(way: str, kind: signal.Signals, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(STARTS)
    place, heard = tmp_path / "checkpoints", tmp_path / "heard"
    with heard.open("w") as stderr:
        begun = subprocess.Popen(
            [sys.executable, str(app), way, str(place)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "MASTER": "local[2]"},
        )
        assert begun.stdout is not None
        assert begun.stdout.readline() == "READY\n", heard.read_text()
        before = len(lines(heard))  # what Spark says while it starts
        begun.send_signal(kind)
        begun.communicate(timeout=90)
    told = lines(heard)
    assert begun.returncode == CODES[kind], told
    if way == "session":
        # The JVM that starts meanwhile greets after it.
        assert "interrupted before a job was started" in told, told
        assert not [line for line in told if "Traceback" in line or "Error" in line], told
        return
    assert len(told) == before + 1, told[before:]
    word = "terminated" if kind is signal.SIGTERM else "interrupted"
    assert f"job 'orders' is {word}; its checkpoints stay at" in told[-1]
    assert 'restore="latest"' in told[-1]
    assert list(place.glob("orders/**/_metadata*")), "there is what to go on from"
