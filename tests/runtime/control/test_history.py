"""The checkpoints of jobs as a table: of one that runs, and of what is stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime import checkpoint_history
from holdfast.savepoints.history import HISTORY
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    InlineHandle,
    Invalid,
    NotFound,
    OperatorState,
    StateSnapshot,
    load_storage,
)
from support.jobs.job_with_endpoint import Live, live_job
from support.jobs.run_of_played_attempts import play_attempts
from support.waiting import wait_until

BEGAN_MS = 1_700_000_000_000


def part(size: int) -> StateSnapshot:
    return StateSnapshot(kind="any", handles={"a": InlineHandle(b"x" * size)})


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Two jobs with checkpoints."""
    storage = load_storage(str(tmp_path / "checkpoints"))
    for job in ("a job", "orders"):
        owner = storage.job(job).take_over()
        for number in (1, 2):
            owner.commit(
                CheckpointMetadata(
                    job_id=job,
                    checkpoint_id=number,
                    triggered_ms=BEGAN_MS + number,
                    completed_ms=BEGAN_MS + number + 250,
                    operators={
                        "spend": OperatorState(
                            parallelism=2, max_parallelism=8, parts=(part(3), part(number))
                        ),
                        "out": OperatorState(parallelism=2, max_parallelism=8),
                    },
                    sources={"in": part(10)},
                    properties={"trigger": "periodic"},
                )
            )
    return tmp_path / "checkpoints"


def test_stored_checkpoints_are_listed(stored: Path) -> None:
    table = checkpoint_history(str(stored))
    assert table.schema.equals(HISTORY)
    rows = table.to_pylist()
    assert [(row["job"], row["checkpoint"]) for row in rows] == [
        ("a job", 1),
        ("a job", 2),
        ("orders", 1),
        ("orders", 2),
    ]
    began = dt.datetime.fromtimestamp(BEGAN_MS / 1000, dt.UTC)
    assert rows[-1] == {
        "job": "orders",
        "checkpoint": 2,
        "kind": "checkpoint",
        "status": "completed",
        "trigger": "periodic",
        "triggered": began + dt.timedelta(milliseconds=2),
        "ended": began + dt.timedelta(milliseconds=252),
        "duration_ms": 250,
        "size_bytes": 15,
        "written_bytes": 15,
        "operators": [("out", 0), ("spend", 5)],
        "path": f"file://{stored}/orders/chk-00000000000000000002",
        "reason": None,
    }
    one = checkpoint_history(f"file://{stored}/a~20job/")
    assert one.to_pylist() == rows[:2]


@pytest.fixture
def live(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A job called `job`, which runs."""
    monkeypatch.setenv("HOLDFAST_RUN_DIR", str(quick_path / "runs"))
    play_attempts(monkeypatch)
    with live_job(quick_path / "runs") as running:
        yield running


def test_a_job_that_runs_is_asked(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        live.client.trigger_checkpoint()
    rows: list[Any] = []

    def all_ended() -> bool:
        rows[:] = checkpoint_history("job").to_pylist()
        return len(rows) == 3 and all(row["ended"] for row in rows)

    wait_until(all_ended)
    rows.sort(key=lambda row: int(row["checkpoint"]))
    assert [row["status"] for row in rows] == ["completed", "completed", "aborted"]
    assert rows[0]["duration_ms"] == 250
    assert (rows[0]["size_bytes"], rows[0]["written_bytes"]) == (2048, 1024)
    assert rows[0]["path"] == f"{live.stage.job.url}/chk-00000000000000000001"
    assert rows[0]["operators"] is None
    assert "too slow" in rows[2]["reason"]
    run = live.found.registration.run
    assert checkpoint_history(run[:8]).num_rows == 3
    with pytest.raises(NotFound, match=r"no job 'jop' of yours runs.*'job'"):
        checkpoint_history("jop")
    (tmp_path / "jop").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match="no checkpoints of any job"):
        checkpoint_history("jop")


def test_a_history_of_nothing_is_refused(stored: Path) -> None:
    with pytest.raises(NotFound, match="no checkpoints of any job"):
        checkpoint_history(str(stored / "nothing"))
    with pytest.raises(Invalid, match="endpoint"):
        checkpoint_history(str(stored), storage_options={"endpoint": "x"})


def test_damage_is_named(stored: Path) -> None:
    file = stored / "orders" / "chk-00000000000000000002" / "_metadata"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(Corrupt, match="chk-00000000000000000002/_metadata"):
        checkpoint_history(str(stored))
