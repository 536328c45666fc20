"""What a task answers that pushes rows into slots which are gone: no failure, if they are."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pyarrow as pa
import pytest

from holdfast.runtime.network import SlotClient
from holdfast.runtime.planning.job_plan import plan_job
from holdfast.runtime.sinks import CollectSink
from holdfast.runtime.spark.sources import push as pushing
from holdfast.runtime.spark.sources.push import Pushed, Pusher
from holdfast.runtime.spark.sources.source_parts import counted
from holdfast.storage import Fenced, Unavailable
from support.jobs.networked_slots import SCHEMA, TRUSTED, ZOMBIE, Slot, rows
from support.simulations.jobs import Builder


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Mock(**{"partitionId.return_value": 3, "taskAttemptId.return_value": 9})
    monkeypatch.setattr(pushing, "TaskContext", Mock(**{"get.return_value": task}))
    monkeypatch.setattr(pushing, "_cached", None)


@pytest.fixture
def slot() -> Iterator[Slot]:
    slot = Slot()
    with slot.server:
        yield slot


def answer(address: str) -> Pushed:
    builder = Builder()
    builder.source("s", SCHEMA).sink_to(CollectSink(), uid="out")
    plan = plan_job(builder.graph, job_id="job", parallelism=1, max_parallelism=16)
    pusher = Pusher(
        source="s",
        batch=1,
        edges=plan.source_edges("s"),
        time_column=None,
        slots={0: address},
        max_parallelism=16,
        credentials=TRUSTED,
    )
    (told,) = pusher(iter([rows(1, 2)]))
    return Pushed(**told.to_pylist()[0])


def test_a_slot_that_is_gone_is_told_and_no_failure_of_the_task() -> None:
    slot = Slot()
    slot.server.close()
    told = answer(slot.server.address)
    assert (told.split, told.attempt, told.rows, told.is_void) == (3, 9, 0, False)
    assert "the other side cannot be reached" in told.lost
    with pytest.raises(Unavailable, match="a slot cannot be reached: found the other side"):
        counted([told])


def test_a_slot_of_another_attempt_counts_as_gone() -> None:
    slot = Slot(credentials=ZOMBIE)
    with slot.server:
        told = answer(slot.server.address)
    assert told.is_void
    with pytest.raises(Fenced, match="the slots are done with this attempt"):
        counted([told, told._replace(is_void=False, lost="gone")])


def test_a_slot_that_can_be_reached_after_all_is_worth_another_attempt(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlotClient, "push", Mock(side_effect=Unavailable("a moment's trouble")))
    with pytest.raises(Unavailable, match="a moment's trouble"):
        answer(slot.server.address)


def test_a_task_answers_with_the_declared_columns() -> None:
    types = {"int": pa.int32(), "long": pa.int64(), "boolean": pa.bool_(), "string": pa.string()}
    named = dict(column.split() for column in pushing.PUSHED_SCHEMA.split(", "))
    assert tuple(named) == Pushed._fields
    assert tuple(types[kind] for kind in named.values()) == pushing._PUSHED_TYPES
