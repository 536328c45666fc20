"""The installed command, and a job on Spark that it starts, reaches, loses and cancels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.runtime.cli.application import application
from holdfast.storage import SystemClock
from support.jobs.spark_sessions import prepare_environment

pytestmark = pytest.mark.slow

CLOCK = SystemClock()
COMMAND = Path(sys.executable).with_name("holdfast")
_PATIENCE_S = 300.0
EACH = 10

PROGRAM = """
import sys
from pathlib import Path
from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import CheckpointConfig, FileSink, KeyedProcessFunction, StreamEnvironment

root = Path(sys.argv[1])

class Count(KeyedProcessFunction):
    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count", int))

    def process_element(self, order, ctx):
        self.count.update((self.count.value() or 0) + order.amount)
        yield order.user, self.count.value()

env = StreamEnvironment(
    storage=str(root / "checkpoints"), checkpointing=CheckpointConfig(interval="1h", retained=3)
)
print("backend", type(env.backend).__name__, "slots", env.parallelism, flush=True)
orders = env.spark.readStream.schema("user string, amount long").json(str(root / "in"))
(env.from_stream(orders, uid="orders").key_by("user")
    .process(Count(), "user string, count long", uid="count")
    .sink_to(FileSink(str(root / "out"), format="json"), uid="out"))
job = env.execute_async("orders", restore="latest")
print(*job.notes, flush=True)
print(job.result(), flush=True)
"""


@pytest.fixture
def root(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prepare_environment()
    monkeypatch.setenv("HOLDFAST_RUN_DIR", str(quick_path / "runs"))
    (quick_path / "in").mkdir()
    (quick_path / "orders.py").write_text(PROGRAM)
    return quick_path


def command(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [str(COMMAND), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def document(*arguments: str) -> Any:
    return json.loads(command(*arguments, "--json"))


def write_orders(root: Path, number: int) -> None:
    lines = [json.dumps({"user": f"u{n % 2}", "amount": 1}) + "\n" for n in range(EACH)]
    fresh = root / f"{number}.tmp"
    fresh.write_text("".join(lines))
    fresh.rename(root / "in" / f"{number}.json")


def wait_for(holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The job, as `holdfast list` has it, once this holds of it.

    It is looked for in this process: to start the command takes a second of a processor.
    """
    deadline_s = CLOCK.monotonic_s() + _PATIENCE_S
    while CLOCK.monotonic_s() < deadline_s:
        listed = CliRunner().invoke(application, ["list", "--json"])
        assert listed.exit_code == 0, (listed.output, listed.exception)
        if any(map(holds, json.loads(listed.stdout)["jobs"])):
            (found,) = document("list")["jobs"]
            job: dict[str, Any] = found
            return job
        CLOCK.sleep_s(0.2)
    raise AssertionError(document("list"))


def last_words(program: subprocess.Popen[str]) -> str:
    """What a program has said that ends by itself, and well."""
    said, _ = program.communicate(timeout=_PATIENCE_S)
    assert program.returncode == 0
    return said


def counts(root: Path) -> list[int]:
    """What each of the two users has counted to, step by step: the same for both."""
    found: dict[str, list[int]] = {"u0": [], "u1": []}
    for path in (root / "out").rglob("*.json"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["user"]].append(row["count"])
    assert sorted(found["u0"]) == sorted(found["u1"])
    return sorted(found["u0"])


def has_read(rows: int) -> Callable[[dict[str, Any]], bool]:
    def holds(job: dict[str, Any]) -> bool:
        slots = job["metrics"]["slots"].values()
        return job["status"] == "running" and sum(int(slot["rows"]) for slot in slots) >= rows

    return holds


@contextmanager
def running(root: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    arguments = [str(COMMAND), "run", *options, str(root / "orders.py"), str(root)]
    with (
        (root / "err").open("a") as errors,
        subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=root
        ) as program,
    ):
        try:
            yield program
        finally:
            program.kill()


def test_a_job_is_started_reached_killed_restored_stopped_and_cancelled(root: Path) -> None:
    write_orders(root, 1)
    with running(root, "-Dparallelism.default=1") as program:
        job = wait_for(has_read(EACH))
        assert (job["pid"], job["job"]) == (program.pid, "orders")
        taken = document("checkpoints", "trigger", "orders")["checkpoint"]
        assert taken["status"] == "completed"
        assert document("checkpoints", "orders")["last_completed"] == taken
        stored = document("checkpoints", str(root / "checkpoints"))
        assert [each["checkpoint"] for each in stored["jobs"][0]["checkpoints"]] == [1]
        assert counts(root) == list(range(1, EACH // 2 + 1))
        program.kill()
        assert program.stdout is not None
        said = program.stdout.read()
    assert "backend HashMapStateBackend slots 1\n" in said
    assert document("list")["jobs"] == []
    assert list((root / "runs").iterdir()) == []
    command("cancel", "orders", code=1)

    write_orders(root, 2)
    options = ("-Dstate.backend.type=rocksdb", "-Dparallelism.default=2")
    with running(root, "-s", taken["folder"], *options) as program:
        wait_for(has_read(EACH))
        first = document("savepoint", job["job"], str(root / "savepoints"))["savepoint"]
        told = document("stop", "--savepoint-path", str(root / "savepoints"), "orders")
        assert told["status"] == "finished"
        said = last_words(program)
    assert "backend RocksDBStateBackend slots 2\n" in said
    assert "as the command line says, and not from 'latest'" in said
    assert "JobStatus.FINISHED" in said
    assert counts(root) == list(range(1, EACH + 1))
    folders = {f"file://{path.parent}" for path in (root / "savepoints").glob("*/_metadata")}
    assert folders == {first, told["savepoint"]}

    write_orders(root, 3)
    with running(root, "-s", told["savepoint"], *options) as program:
        wait_for(has_read(EACH))
        document("checkpoints", "trigger", "orders")
        assert document("cancel", "orders")["status"] == "cancelled"
        said = last_words(program)
    assert "JobStatus.CANCELLED" in said
    assert counts(root) == list(range(1, 3 * EACH // 2 + 1))
    assert list((root / "runs").iterdir()) == []


def test_a_command_line_that_contradicts_the_program_starts_nothing(root: Path) -> None:
    place = root / "elsewhere"
    option = f"-Dexecution.checkpointing.dir={place}"
    done = subprocess.run(
        [
            str(COMMAND),
            "run",
            option,
            str(root / "orders.py"),
            str(root),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"HOLDFAST_RUN_DIR": str(root / "runs")},
    )
    assert done.returncode == 1
    assert "do not agree about storage" in done.stderr
    assert not place.exists()
    assert not (root / "checkpoints").exists()
