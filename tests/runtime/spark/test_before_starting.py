"""What is seen before a job starts, without a session of Spark."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest

from holdfast.backends import StateBackend
from holdfast.runtime import CollectSink, JobHandle, StreamEnvironment
from holdfast.runtime.plan import JobPlan, plan_job
from holdfast.runtime.sinks import Sink
from holdfast.runtime.spark import environment
from holdfast.runtime.spark.live_jobs import LiveJobs, SlotHold
from holdfast.runtime.spark.travel import check_travels
from holdfast.storage import Invalid, JobManagerCheckpointStorage, load_storage
from simulated_jobs import ORDERS, Builder


@pytest.mark.parametrize(
    ("argument", "value", "told"),
    [
        ("parallelism", "2", "the parallelism is not legal"),
        ("parallelism", 0, "the parallelism is not legal"),
        ("parallelism", 2.0, "the parallelism is not legal"),
        ("parallelism", True, "the parallelism is not legal"),
        ("max_parallelism", 1, "the parallelism is not legal: expected a whole number from 1 to"),
        ("max_parallelism", 0, "max parallelism"),
        ("max_parallelism", 32_769, "max parallelism"),
        ("max_parallelism", "128", "max parallelism"),
        ("backend", 5, "backend is of another kind: expected a StateBackend, a registered name"),
        ("storage", 5, "storage is of another kind: expected a CheckpointStorage, a path, a URL"),
        ("restart", "fixed", "restart is of another kind: expected a RestartStrategy, such as"),
        ("checkpointing", 0, "interval is out of range"),
        ("allow_pickle", "yes", "allow_pickle is a switch"),
        ("spark", 5, "this session cannot carry a job: .* found builtins.int"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_at_once(
    argument: str, value: Any, told: str
) -> None:
    with pytest.raises(Invalid, match=told):
        StreamEnvironment(**{argument: value})


def plan(sink: Sink) -> JobPlan:
    builder = Builder()
    builder.source("orders", ORDERS).sink_to(sink, uid="out")
    return plan_job(builder.graph, job_id="job", parallelism=2, max_parallelism=16)


class Locked:
    """A mixin that makes what it is mixed into impossible to pickle."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class LockedStorage(Locked, JobManagerCheckpointStorage):
    """A storage that keeps a lock, and settings that pickle takes as they are."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __reduce__(self) -> Any:
        raise pickle.PicklingError("a lock")


def test_what_cannot_get_into_slots_is_named(backend: StateBackend) -> None:
    storage = load_storage("memory://")
    check_travels(plan(CollectSink()), backend, storage)
    with pytest.raises(Invalid, match="checkpoint storage LockedStorage cannot be pickled"):
        check_travels(plan(CollectSink()), backend, LockedStorage())
    locked: Any = Locked()
    with pytest.raises(Invalid, match="the state backend Locked cannot be pickled") as caught:
        check_travels(plan(CollectSink()), locked, storage)
    assert caught.value.found == "TypeError: cannot pickle '_thread.lock' object"


def test_task_slots_are_held_as_long_as_their_jobs_live() -> None:
    jobs = LiveJobs()
    first = jobs.hold("session", "a", 2, 4)
    assert isinstance(first, SlotHold)
    assert jobs.hold("session", "b", 2, 4) == {"a": 2}, "nothing would be left to read sources"
    second = jobs.hold("session", "a", 1, 4)
    assert isinstance(second, SlotHold)
    assert jobs.hold("session", "b", 1, 4) == {"a": 3}
    assert isinstance(jobs.hold("other", "b", 3, 4), SlotHold)
    for _ in range(2):
        first.release()
    assert isinstance(jobs.hold("session", "b", 2, 4), SlotHold)
    assert jobs.hold("empty", "b", 4, 4) == {}


def test_of_jobs_that_start_together_none_takes_what_another_has() -> None:
    jobs = LiveJobs()
    with ThreadPoolExecutor(8) as threads:
        held = list(threads.map(lambda number: jobs.hold("session", str(number), 1, 4), range(32)))
    assert sum(isinstance(each, SlotHold) for each in held) == 3


def test_an_interrupt_is_the_death_of_the_driver_and_no_cancel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Mock(spec=JobHandle)
    monkeypatch.setattr(StreamEnvironment, "execute_async", lambda *_, **__: job)
    monkeypatch.setattr(environment, "follow", Mock(side_effect=KeyboardInterrupt))
    env = StreamEnvironment.__new__(StreamEnvironment)
    with pytest.raises(KeyboardInterrupt):
        env.execute("job")
    job.interrupt.assert_called_once_with()
    job.cancel.assert_not_called()
