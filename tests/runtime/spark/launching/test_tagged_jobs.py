"""After an error no task of a job runs any more: with a context that only tells what it is told."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from holdfast.runtime.spark.launching.tagged_jobs import TaggedJobs
from holdfast.storage import ManualClock

TAG = "holdfast-test"


class Context:
    """A job of two stages; each look at the second one finds the next number of tasks."""

    def __init__(self, *active: int) -> None:
        self.active = list(active)
        self.looks = 0
        self.calls: list[str] = []
        self._jsc = SimpleNamespace(sc=lambda: self)

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - the names are Spark's
        self.calls.append(f"add {tag}")

    def removeJobTag(self, tag: str) -> None:  # noqa: N802
        self.calls.append(f"remove {tag}")

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        self.calls.append(f"cancel {tag}")

    def statusTracker(self) -> Any:  # noqa: N802
        return self

    def getJobIdsForTag(self, tag: str) -> list[int]:  # noqa: N802
        assert tag == TAG
        return [7, 8]

    def getJobInfo(self, job: int) -> Any:  # noqa: N802
        return SimpleNamespace(stageIds=[1, 2]) if job == 7 else None

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802
        if stage == 1:
            return None
        self.looks += 1
        return SimpleNamespace(numActiveTasks=self.active.pop(0) if self.active else 0)


def fail_in(context: Any, clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="of a task"), TaggedJobs(context, TAG, clock):
        raise ValueError("of a task")


def test_after_an_error_it_waits_until_nothing_runs() -> None:
    context = Context(2, 0, 1, 0, 0)
    fail_in(context, ManualClock())
    assert context.active == [], "one task began to be told of after none was"
    assert context.looks == 3 + 3, "and then there was none three times"
    assert context.calls == [f"add {TAG}", f"remove {TAG}", f"cancel {TAG}"]


def test_the_wait_for_running_tasks_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with caplog.at_level(logging.WARNING):
        fail_in(Context(*[1] * 10_000), clock)
    assert "still run, and may leave files" in caplog.text
    assert clock.monotonic_s() < 100


def test_a_successful_job_is_not_waited_for() -> None:
    context = Context(5)
    with TaggedJobs(context, TAG):  # type: ignore[arg-type]
        pass
    assert context.calls == [f"add {TAG}", f"remove {TAG}"]
    assert context.looks == 0


def test_a_spark_that_is_gone_hides_no_error(caplog: pytest.LogCaptureFixture) -> None:
    class Gone(Context):
        def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
            raise Py4JError("gone")

    fail_in(Gone(1), ManualClock())
    assert "were not waited for: gone" in caplog.text
