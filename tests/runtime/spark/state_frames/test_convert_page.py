"""The story of docs/convert.md, word for word: a job that moves from hashmap to RocksDB."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.storage import SystemClock
from support.jobs.spark_sessions import prepare_environment

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[4] / "docs" / "convert.md").read_text()
USERS = 20
_PATIENCE_S = 300.0


def block(kind: str, number: int) -> str:
    found: list[str] = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    return found[number]


@pytest.fixture
def place(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prepare_environment()
    monkeypatch.setenv("HOLDFAST_RUN_DIR", str(quick_path / "runs"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(quick_path)
    (quick_path / "in").mkdir()
    (quick_path / "spend.py").write_text(block("python", 0))
    return quick_path


def write_orders(place: Path, number: int) -> None:
    lines = [json.dumps({"user": f"u{user}", "amount": 1}) for user in range(USERS)]
    fresh = place / "fresh.json"
    fresh.write_text("\n".join(lines))
    fresh.rename(place / "in" / f"{number}.json")


def totals(place: Path) -> list[int]:
    """All that was written, of each user alike."""
    files = [
        path for path in (place / "out").rglob("*.json") if not path.name.startswith((".", "_"))
    ]
    return sorted(
        json.loads(line)["total"] for path in files for line in path.read_text().splitlines()
    )


@contextmanager
def running(command: str) -> Iterator[None]:
    """A job that a block of the page starts; when the context ends, it has ended."""
    with Path("job.log").open("w") as log:
        job = subprocess.Popen(["bash", "-c", f"exec {command}"], stdout=log, stderr=log)
        try:
            yield
            assert job.wait(_PATIENCE_S) == 0, Path("job.log").read_text()
        finally:
            job.kill()
            job.wait()


def run(command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=_PATIENCE_S
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr, Path("job.log").read_text())
    return done.stdout


def await_that(holds: Callable[[], bool]) -> None:
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + _PATIENCE_S
    while not holds():
        assert clock.monotonic_s() < deadline_s, Path("job.log").read_text()
        clock.sleep_s(0.2)


def test_the_story_is_as_it_is_told(place: Path) -> None:
    start, stop, convert, check, again = (block("sh", number).strip() for number in range(5))
    write_orders(place, 1)
    with running(start):
        await_that(lambda: len(totals(place)) == USERS)
        run(stop)
    assert "a savepoint is complete: file://" in run(convert)
    assert "whole: " in run(check)
    write_orders(place, 2)
    with running(again):
        await_that(lambda: len(totals(place)) == 2 * USERS)
        run(stop)
    assert totals(place) == [1] * USERS + [2] * USERS
