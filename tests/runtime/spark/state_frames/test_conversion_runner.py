"""Pieces of work as tasks of Spark: told as they come, side by side, and none after a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import SnapshotForm, load_backend
from holdfast.runtime.spark.state_frames.conversion import SparkRunner, spark_error_line
from holdfast.savepoints import compare, find_snapshot
from holdfast.savepoints.conversion import PiecePhase, PieceResult, PieceTask
from holdfast.savepoints.conversion.plan import OperatorPlan
from holdfast.storage import Corrupt, Unavailable
from support.states.stored_snapshots import stored

pytestmark = pytest.mark.slow

OPERATOR = OperatorPlan(uid="spend", parallelism=1, max_parallelism=1)


@dataclass(frozen=True, slots=True)
class _Noted(PieceTask):
    """Notes each time that it is unpickled in a file of its own."""

    folder: str = ""

    def __reduce__(self) -> Any:
        number, folder = self.number, self.folder

        def unpickled() -> PieceTask:
            from pathlib import Path  # noqa: PLC0415 - it travels by value

            with (Path(folder) / str(number)).open("a") as note:
                note.write("once ")
            return PieceTask(PiecePhase.CHECK, number, OPERATOR, number)

        return unpickled, ()


def tasks(count: int) -> list[PieceTask]:
    return [PieceTask(PiecePhase.CHECK, 0, OPERATOR, piece) for piece in range(count)]


def work_of(folder: Path, do: Callable[[int, Path, Callable[[str], None]], None]) -> Any:
    """A worker pickled by value; `do` gets the piece, the folder, and a way to wait for files.

    A file of it says that a piece was begun.
    """
    place = str(folder)

    class Doing:
        def do(self, task: PieceTask) -> PieceResult:
            import threading  # noqa: PLC0415 - it travels by value
            from pathlib import Path  # noqa: PLC0415

            folder, moment = Path(place), threading.Event()

            def wait_for(file: str) -> None:
                for _ in range(1_500):
                    if (folder / file).exists():
                        return
                    moment.wait(0.01)
                raise AssertionError(f"no task has made {file}")

            (folder / f"begun-{task.piece}").touch()
            do(task.piece, folder, wait_for)
            return PieceResult()

    return Doing()


def test_finished_pieces_are_reported_while_others_run(tmp_path: Path, spark: SparkSession) -> None:
    def do(piece: int, _: Path, wait_for: Callable[[str], None]) -> None:
        if piece:
            wait_for("told-0")

    pieces = []
    for task, result in SparkRunner(spark.sparkContext).run(work_of(tmp_path, do), tasks(4)):
        assert result == PieceResult()
        pieces.append(task.piece)
        (tmp_path / f"told-{task.piece}").touch()
    assert pieces[0] == 0
    assert sorted(pieces) == [0, 1, 2, 3]


def test_two_are_done_side_by_side(tmp_path: Path, spark: SparkSession) -> None:
    def do(piece: int, _: Path, wait_for: Callable[[str], None]) -> None:
        wait_for(f"begun-{1 - piece}")

    done = list(SparkRunner(spark.sparkContext).run(work_of(tmp_path, do), tasks(2)))
    assert len(done) == 2


def test_after_one_that_fails_no_others_are_begun(tmp_path: Path, spark: SparkSession) -> None:
    def do(piece: int, _: Path, wait_for: Callable[[str], None]) -> None:
        if piece == 0:
            raise Corrupt("a file is damaged", where="the first piece")
        wait_for("never")

    with pytest.raises(Corrupt, match="the first piece"):
        list(SparkRunner(spark.sparkContext).run(work_of(tmp_path, do), tasks(40)))
    assert len(list(tmp_path.glob("begun-*"))) < 40
    assert spark.range(3).count() == 3, "the session lives on"


def test_an_abandoned_conversion_ends_its_spark_job(tmp_path: Path, spark: SparkSession) -> None:
    def do(piece: int, _: Path, wait_for: Callable[[str], None]) -> None:
        if piece:
            wait_for("never")

    for task, _ in SparkRunner(spark.sparkContext).run(work_of(tmp_path, do), tasks(40)):
        assert task.piece == 0
        break
    assert len(list(tmp_path.glob("begun-*"))) < 40


def test_a_failure_of_spark_is_told_as_one(tmp_path: Path, spark: SparkSession) -> None:
    def do(piece: int, *_: Any) -> None:
        raise Unavailable("the storage is away", where=str(piece))

    with pytest.raises(Unavailable, match=r"(?s)Spark could not do.*the storage is away"):
        list(SparkRunner(spark.sparkContext).run(work_of(tmp_path, do), tasks(2)))


def test_a_task_is_given_its_own_piece_alone(tmp_path: Path, spark: SparkSession) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    listed = [_Noted(PiecePhase.CHECK, n, OPERATOR, n, folder=str(seen)) for n in range(4)]
    done = list(SparkRunner(spark.sparkContext).run(work_of(tmp_path, lambda *_: None), listed))
    assert sorted(task.number for task, _ in done) == [0, 1, 2, 3]
    assert {each.name: each.read_text() for each in seen.iterdir()} == dict.fromkeys(
        ("0", "1", "2", "3"), "once "
    )


def test_workers_on_this_machine_are_the_python_of_the_command(tmp_path: Path) -> None:
    """Not the one that is found first, which may not have Holdfast."""
    source = stored(tmp_path / "from", load_backend("hashmap"), "savepoint", SnapshotForm.CANONICAL)
    (tmp_path / "bin").mkdir()
    for name in ("python", "python3"):
        other = tmp_path / "bin" / name
        other.write_text("#!/bin/sh\nexit 3\n")
        other.chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    command = [str(Path(sys.executable).with_name("holdfast")), "savepoint", "convert"]
    subprocess.run(
        [*command, source.folder.url, str(tmp_path / "to"), "--spark", "local[2]"],
        env=mine | {"PATH": path},
        check=True,
        timeout=300,
    )
    assert compare(source, find_snapshot(str(tmp_path / "to")), lambda _: None).are_equal


OF_JAVA = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'no'
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3150)
"""


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (OF_JAVA, "org.apache.spark.SparkException: Could not parse Master URL: 'no'"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited.", "[JAVA_GATEWAY_EXITED] Java "),
        ("", "RuntimeError('')"),
    ],
)
def test_of_an_error_of_spark_the_line_is_told_that_says_what_is_wrong(
    told: str, shown: str
) -> None:
    assert spark_error_line(RuntimeError(told)).startswith(shown)
