"""What a driver that was killed with its JVM has left is gone once the next one has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support.waiting import wait_until

STARTS = """
import sys, time
from pyspark import SparkContext
from holdfast.runtime import FileSink, KeyedProcessFunction, StreamEnvironment
from holdfast.backends import ValueStateDescriptor

class Count(KeyedProcessFunction):
    def open(self, ctx):
        self.seen = ctx.get_state(ValueStateDescriptor("seen", int))

    def process_element(self, row, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield row.key, self.seen.value()

place = sys.argv[1]
env = StreamEnvironment(
    storage=f"{place}/checkpoints", parallelism=1, checkpointing="300ms", backend="rocksdb"
)
rows = env.spark.readStream.format("rate").option("rowsPerSecond", 20_000).load()
counts = env.from_stream(rows.selectExpr("value % 100 AS key"), uid="rate").key_by("key")
counts = counts.process(Count(), schema="key long, seen long", uid="count")
counts.sink_to(FileSink(f"{place}/out"), uid="out")
job = env.execute_async("killed", restore="latest")
before, latest = job.checkpoints().counts.completed, time.monotonic() + 120
while job.checkpoints().counts.completed < before + 2:
    assert time.monotonic() < latest, job.checkpoints()
    time.sleep(0.05)
print(SparkContext._gateway.proc.pid, flush=True)
time.sleep(600)
"""


def processes_with(folder: Path) -> list[int]:
    """Those that live and have this folder for temporary files."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if f"TMPDIR={folder}\0".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def started(app: Path, place: Path, temporary: Path) -> tuple[subprocess.Popen[str], int]:
    """A driver in a process group of its own that has taken checkpoints, and its JVM."""
    environment = {**os.environ, "TMPDIR": str(temporary), "HOLDFAST_RUN_DIR": str(place / "run")}
    for name in ("MASTER", "PYSPARK_SUBMIT_ARGS", "XDG_RUNTIME_DIR"):
        environment.pop(name, None)
    driver = subprocess.Popen(
        [sys.executable, str(app), str(place)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert driver.stdout is not None
    with driver.stdout as told:
        return driver, int(told.readline())


@pytest.mark.slow
def test_the_next_start_leaves_nothing_of_a_killed_driver_and_its_jvm(tmp_path: Path) -> None:
    app, temporary = tmp_path / "app.py", tmp_path / "temporary files"
    app.write_text(STARTS)
    temporary.mkdir()
    foreign = temporary / "spark-of-somebody-else"
    foreign.mkdir()
    driver, jvm = started(app, tmp_path, temporary)
    for process in (driver.pid, jvm):
        os.kill(process, signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not processes_with(temporary))
    left = set(temporary.iterdir()) - {foreign}
    assert any(temporary.glob("holdfast-spark-*/blockmgr-*")), "it was killed, so it leaves them"
    assert {each.name.split("-")[0] for each in left} == {"holdfast"}, left

    again, _ = started(app, tmp_path, temporary)
    assert not left & set(temporary.iterdir())
    again.send_signal(signal.SIGTERM)
    assert again.wait(60) == 143
    wait_until(lambda: not processes_with(temporary))
    assert list(temporary.iterdir()) == [foreign], "it has ended in order, and leaves nothing"
