"""What is seen before a job starts, without a session of Spark."""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest

from holdfast.backends import StateBackend
from holdfast.runtime import CollectSink, JobHandle, StreamEnvironment
from holdfast.runtime.planning.job_plan import JobPlan, plan_job
from holdfast.runtime.sinks import Sink
from holdfast.runtime.spark.launching import interrupts
from holdfast.runtime.spark.launching.pickling import check_pickles
from holdfast.runtime.spark.sessions.session_checks import _held_in_time
from holdfast.runtime.spark.sessions.task_slots import LiveJobs, SlotHold, most_task_slots
from holdfast.storage import Invalid, JobManagerCheckpointStorage, load_storage
from support.simulations.jobs import ORDERS, Builder


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


def test_objects_that_cannot_be_pickled_are_named(backend: StateBackend) -> None:
    storage = load_storage("memory://")
    check_pickles(plan(CollectSink()), backend, storage)
    with pytest.raises(Invalid, match="checkpoint storage LockedStorage cannot be pickled"):
        check_pickles(plan(CollectSink()), backend, LockedStorage())
    locked: Any = Locked()
    with pytest.raises(Invalid, match="the state backend Locked cannot be pickled") as caught:
        check_pickles(plan(CollectSink()), locked, storage)
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


def test_of_jobs_that_start_again_one_waits_if_there_is_room_for_one() -> None:
    jobs = LiveJobs()
    first, second = (jobs.hold("session", name, 3, 7) for name in ("a", "b"))
    assert isinstance(first, SlotHold)
    assert isinstance(second, SlotHold)
    assert first.enter(7)
    assert second.enter(7)
    assert first.needed() == second.needed() == 7
    for hold in (first, second):
        hold.leave()
    assert (first.needed(), second.needed()) == (4, 4)
    assert not first.enter(3), "nothing would be left to read sources"
    assert first.enter(5)
    assert (first.needed(), second.needed()) == (4, 7)
    assert not second.enter(5)
    first.release()
    assert second.enter(5)


@pytest.mark.parametrize(
    ("master", "conf", "most"),
    [
        ("local", {}, 3),
        ("local[*, 4]", {}, 3),
        ("local-cluster[2,3,1024]", {}, 6),
        ("local-cluster[2, 3, 1024]", {"spark.task.cpus": "2"}, 3),
        ("spark://here:7077", {}, None),
        ("spark://here:7077", {"spark.cores.max": "8", "spark.executor.instances": "9"}, 8),
        ("yarn", {"spark.executor.instances": "4"}, None),
        ("k8s://here", {"spark.executor.instances": "4", "spark.executor.cores": "2"}, 8),
        ("k8s://here", {"spark.executor.instances": "1", "spark.executor.cores": "1"}, 3),
    ],
)
def test_how_many_task_slots_may_come(master: str, conf: dict[str, str], most: int | None) -> None:
    assert most_task_slots(master, conf, 3) == most


class PlayedSession:
    """As much of a session's context as is asked before a job holds its task slots."""

    applicationId = "played"  # noqa: N815 - Spark's name

    def __init__(self, master: str, there: Iterator[int]) -> None:
        self.master = master
        self.looks = 0
        self._there = there

    def getConf(self) -> Any:  # noqa: N802 - Spark's name
        return Mock(getAll=list)

    @property
    def _jsc(self) -> Any:
        def there(_: Any) -> int:
            self.looks += 1
            return next(self._there)

        return Mock(**{"sc.return_value.maxNumConcurrentTasks": there})


def test_executors_that_register_late_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    context = PlayedSession("spark://here", iter([0, 2, 3]))
    hold = _held_in_time(context, 2, "late", wait_s=60)
    hold.release()
    assert context.looks == 3
    (said,) = (record.getMessage() for record in caplog.records)
    assert said == (
        "job 'late' waits for executors, 60 s at most (slot.request.timeout): it needs 3 task "
        "slots, and 0 have registered"
    )


@pytest.mark.parametrize(("master", "wait_s"), [("spark://here", 0.3), ("local[2]", 60)])
def test_executors_are_waited_for_no_longer_than_that_helps(master: str, wait_s: float) -> None:
    context = PlayedSession(master, itertools.repeat(2))
    with pytest.raises(Invalid, match="the session is too small for the job"):
        _held_in_time(context, 2, "large", wait_s=wait_s)
    assert (context.looks == 1) == (master == "local[2]")


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
    monkeypatch.setattr(interrupts, "follow", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    env = StreamEnvironment.__new__(StreamEnvironment)
    env.storage = load_storage("memory://")
    with pytest.raises(KeyboardInterrupt):
        env.execute("job")
    job.interrupt.assert_called_once_with()
    job.cancel.assert_not_called()
