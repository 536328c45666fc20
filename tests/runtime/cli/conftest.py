"""A running job that commands can reach, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.jobs.job_with_endpoint import Live, live_job
from support.jobs.run_of_played_attempts import play_attempts


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parallel test runner may pass on a width: readline sets one for child processes."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def runs(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where jobs of this test register, and commands look."""
    monkeypatch.setenv("HOLDFAST_RUN_DIR", str(quick_path / "runs"))
    return quick_path / "runs"


@pytest.fixture
def live(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A job called `job`, in its second attempt; see `job_with_endpoint.py`."""
    play_attempts(monkeypatch)
    with live_job(runs) as live:
        yield live
