"""What a terminal shows of a job, and what is written where there is none."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from holdfast.runtime import JobFailed, JobStatus, NotEnded
from holdfast.runtime.checkpoint.statistics import CheckpointHistory
from holdfast.runtime.spark.launching.interrupts import follow


class Job:
    """A job that ends when it was asked often enough."""

    job_id = "orders"

    def __init__(self, asked: int = 2, error: Exception | None = None) -> None:
        self.asked = asked
        self.error = error
        self.status = JobStatus.RUNNING
        self.trouble = ""
        self.timeouts: list[float | None] = []

    def result(self, timeout_s: float | None = None) -> JobStatus:
        self.timeouts.append(timeout_s)
        if timeout_s is not None and len(self.timeouts) <= self.asked:
            self.trouble = "checkpoint 8 is not committed"
            raise NotEnded("not yet")
        if self.error is not None:
            raise self.error
        self.status = JobStatus.FINISHED
        return self.status

    def metrics(self) -> dict[str, Any]:
        return {"attempts": 3, "sources": {"in": {"rows": 1_234}}, "slots": {0: {"rows": 567.0}}}

    def checkpoints(self) -> Any:
        return CheckpointHistory().overview()


def followed(job: Any, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> str:
    said = io.StringIO()
    console = Console(file=said, force_terminal=is_terminal, width=200)
    monkeypatch.setattr("holdfast.runtime.spark.launching.interrupts.Console", lambda **_: console)
    try:
        follow(job)
    finally:
        job.said = said.getvalue()
    return said.getvalue()


def test_a_terminal_shows_how_far_a_job_is(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    followed(job, monkeypatch, is_terminal=True)
    assert len(job.timeouts) == 3
    assert None not in job.timeouts
    assert job.status is JobStatus.FINISHED


def test_the_line_has_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("rich.status.Status.update", lambda _, line: lines.append(line))
    followed(Job(), monkeypatch, is_terminal=True)
    line = "orders is running: 1,234 rows in, 567 processed, 0 checkpoints, attempt 3"
    assert lines == [line, *[f"{line}; checkpoint 8 is not committed"] * 2]


def test_elsewhere_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    assert followed(job, monkeypatch, is_terminal=False) == ""
    assert job.timeouts == [None]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_failure_is_raised(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> None:
    with pytest.raises(JobFailed, match="no"):
        followed(Job(error=JobFailed("no")), monkeypatch, is_terminal=is_terminal)


def test_a_job_that_had_ended_has_said_so_already(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(asked=0)
    job.status = JobStatus.FINISHED
    assert "restored" not in followed(job, monkeypatch, is_terminal=True)
