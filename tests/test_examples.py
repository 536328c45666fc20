import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from holdfast.storage import SystemClock
from support.documents.pages import Page, programs

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PATIENCE_S = 200.0  # for what takes 10 s where nothing else runs
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


def test_the_storage_tour_tells_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "storage_tour.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert "retained the newest two: (2, 3)" in lines[4]
    assert "the first driver commits late and is refused" in lines[6]
    assert "completed is still (2, 3)" in lines[7]
    assert "left: 0" in lines[8]
    assert "one bit flipped on disk: a file of a checkpoint was changed" in lines[9]


def test_the_state_tour_tells_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "state_tour.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert "user-7 now has 1000045" in lines[2]
    assert "together 1000 users, who spent 45000" in lines[-1]


@pytest.mark.slow
def test_the_demo_kills_a_slot_and_ends_with_the_answer_of_a_batch() -> None:
    demo = [sys.executable, str(EXAMPLES / "orders_demo.py")]
    ended = subprocess.run(demo, capture_output=True, text=True, check=False, timeout=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""  # nothing of Spark's comes between the lines
    story = iter(ended.stdout.splitlines())
    for said in (
        "6,000 orders of 150 users",
        "the job runs",
        "checkpoint 1 is complete",
        "kill -9",
        "the job fails",
        "it starts again, from checkpoint",
        "the job runs",
        "checkpoint",
        "the job has finished",
        "spend: 6,000 rows committed, 6,000 by Spark SQL: the same, row for row",
        "suspicious: 134 rows committed, 134 by Spark SQL: the same, row for row",
    ):
        assert any(said in line for line in story), f"{said!r} is not where it should be"


@pytest.mark.slow
def test_the_example_of_the_readme_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (options,) = re.findall(r"^holdfast run (.*) spend\.py", readme, re.MULTILINE)
    (tmp_path / "spend.py").write_text(program.replace("/tmp/shop", str(tmp_path)))
    order(tmp_path, "1.json", '{"user": "ann", "amount": 3}\n{"user": "bob", "amount": 4}')
    with running(tmp_path / "spend.py", sys.executable):
        await_rows(tmp_path, [("ann", 3), ("bob", 4)])
    order(tmp_path, "2.json", '{"user": "ann", "amount": 5}')
    with running(tmp_path / "spend.py", HOLDFAST, "run", *shlex.split(options)):
        await_rows(tmp_path, [("ann", 3), ("bob", 4), ("ann", 8)])


@contextmanager
def running(program: Path, *by: str) -> Iterator[None]:
    """A driver of its own, that is killed in the end."""
    # It leaves its temporary files, since it is killed; and lives too short for a JVM to optimize.
    home = str(program.parent)
    around = os.environ | {"TMPDIR": home, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    command = [*by, str(program)]
    with (
        (program.parent / "log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=around) as driver,
    ):
        try:
            yield
            assert driver.poll() is None
        finally:
            driver.kill()


def order(home: Path, name: str, lines: str) -> None:
    """Orders of a file that appears whole."""
    (home / name).write_text(lines)
    (home / "orders").mkdir(exist_ok=True)
    (home / name).rename(home / "orders" / name)


def await_rows(home: Path, expected: list[tuple[str, int]]) -> None:
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + PATIENCE_S
    found: Counter[tuple[str, int]] = Counter()
    while found != Counter(expected):
        assert clock.monotonic_s() < deadline_s, f"{found}\n{(home / 'log').read_text()}"
        clock.sleep_s(0.1)
        tables = [pq.read_table(file) for file in (home / "spend").glob("part-*.parquet")]
        found = Counter((row["user"], row["spent"]) for each in tables for row in each.to_pylist())


ON_SPARK = ("write-a-job", "changelog", "state", "write-a-sink")
RUN = """
import runpy, sys
for program in sys.argv[1:]:
    print(program)
    runpy.run_path(program, run_name="__main__")
"""


@pytest.mark.slow
def test_programs_of_pages_print_what_the_pages_say(tmp_path: Path) -> None:
    """One after the other in one process: a session of Spark is what takes long."""
    expected = []
    for name in ON_SPARK:
        page = Page(name, (ROOT / "docs" / f"{name}.md").read_text())
        for number, program in enumerate(programs(page)):
            said = re.findall(r"^# prints (.*)$", program, re.MULTILINE)
            if not said:  # a piece that is not a whole program
                continue
            path = tmp_path / f"{name}-{number}.py"
            (tmp_path / path.stem).mkdir()
            path.write_text(re.sub(r"/tmp/\w+", str(tmp_path / path.stem), program))
            expected += [str(path), *said]
    files = [line for line in expected if line.endswith(".py")]
    assert len(files) > len(ON_SPARK)
    ended = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", RUN, *files],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines() == expected
