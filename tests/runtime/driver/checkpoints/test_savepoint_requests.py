"""Savepoints in an attempt: what slots are told, and which requests are answered how."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.runtime.checkpoint.commands import Trigger
from holdfast.runtime.checkpoint.savepoint_orders import SavepointPurpose
from holdfast.runtime.driver.events import (
    CancelWanted,
    CheckpointStored,
    CheckpointWanted,
    SavepointWanted,
    SlotLost,
    SlotsEnded,
    StoreFailed,
)
from holdfast.runtime.driver.outcomes import Cancelled, Succeeded, Unsuccessful
from holdfast.runtime.protocol.elements import Barrier, EndOfInput
from holdfast.runtime.protocol.messages import (
    BeginSavepoint,
    CheckpointAborted,
    CheckpointCompleted,
    Decline,
    Finish,
    Finished,
    MarkSource,
    ToSlot,
)
from holdfast.storage import (
    CheckpointStorage,
    Unavailable,
)
from support.jobs.attempt_with_played_slots import (
    EXECUTORS,
    InlineExecutor,
    Stage,
    Step,
    an_order,
    error_of,
    marks_of,
    metadata_of,
)

KEEP, CANCEL, STOP, DRAIN = SavepointPurpose


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in EXECUTORS:
        monkeypatch.setattr(f"holdfast.runtime.driver.{module}.DaemonThreads", InlineExecutor)


def told(stage: Stage, *kinds: type) -> list[ToSlot]:
    return [each for each in stage.slots[0].told if isinstance(each, kinds)]


@pytest.mark.usefixtures("inline")
def test_slots_learn_the_folder_before_the_barrier_and_sinks_do_not_commit(
    storage: CheckpointStorage,
) -> None:
    stage, order = Stage(), an_order(storage)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from stage.acknowledged(7)
        yield None
        yield SlotLost(0, "the test is over")

    assert isinstance(stage.run(script), Unsuccessful)
    barriers = told(stage, MarkSource)
    assert len(barriers) == 2, "one for each source"
    begun = BeginSavepoint(
        checkpoint_id=7,
        directory=order.folder.storage.url,
        folder=order.folder.folder,
        format="native",
        ends_job=False,
    )
    assert told(stage, BeginSavepoint, MarkSource) == [begun, *barriers]
    assert [each.is_savepoint for each in marks_of(barriers, Barrier)] == [True, True]
    (store,) = stage.stored
    assert (store.savepoint, store.trigger, store.is_final) == (
        order.request,
        Trigger.SAVEPOINT,
        False,
    )
    assert told(stage, CheckpointCompleted, Finish) == []
    assert stage.retained == []


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("purpose", [KEEP, STOP])
def test_a_savepoint_is_aborted_if_a_slot_refuses_it(
    storage: CheckpointStorage, purpose: SavepointPurpose
) -> None:
    stage, order = Stage(), an_order(storage, purpose)
    stage.slots[1].refuses = BeginSavepoint

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        assert not any(feed.is_held for feed in stage.attempt.feeds.values())
        yield CheckpointWanted()
        assert marks_of(stage.slots[0].told, Barrier)[-1].checkpoint_id == 8
        yield SlotLost(0, "the test is over")

    assert isinstance(stage.run(script), Unsuccessful)
    assert "a slot cannot open its place" in error_of(order)
    assert not any(each.is_savepoint for each in marks_of(stage.slots[0].told, Barrier))
    assert stage.discarded == [(order, 7)]


@pytest.mark.usefixtures("inline")
def test_no_barrier_is_sent_before_every_slot_knows_the_folder(storage: CheckpointStorage) -> None:
    stage, order = Stage(), an_order(storage)
    stage.slots[1].error, stage.slots[1].fails_at = Unavailable("gone"), BeginSavepoint

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)

    assert isinstance(stage.run(script), Unsuccessful)
    assert marks_of(stage.slots[0].told, Barrier) == []


@pytest.mark.usefixtures("inline")
def test_a_job_is_stopped_when_it_is_complete(storage: CheckpointStorage) -> None:
    stage, order = Stage(), an_order(storage, STOP)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        feeds = stage.attempt.feeds.values()
        assert all(feed.is_held for feed in feeds), "nothing follows the barrier"
        yield from stage.acknowledged(7)
        yield None
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert told(stage, CheckpointCompleted, Finish) == [CheckpointCompleted(7), Finish()]
    assert marks_of(stage.slots[0].told, EndOfInput) == []


@pytest.mark.usefixtures("inline")
def test_a_drained_job_ends_its_sources_first(storage: CheckpointStorage) -> None:
    stage, order = Stage(interval="1s"), an_order(storage, DRAIN)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        assert len(marks_of(stage.slots[0].told, EndOfInput)) == 2
        yield 5_000
        assert marks_of(stage.slots[0].told, Barrier) == [], "no checkpoint of what is half drained"
        yield from (Finished(0), Finished(0), Finished(1), Finished(1))
        yield from stage.acknowledged(7)
        yield None
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    (store,) = stage.stored
    assert store.savepoint == order.request
    assert all(each.attributes == {"at": 0} for each in store.sources.values()), "not at an end"
    assert told(stage, CheckpointCompleted, Finish) == [CheckpointCompleted(7), Finish()]


@pytest.mark.usefixtures("inline")
def test_an_attempt_is_cancelled_when_that_was_waited_for(storage: CheckpointStorage) -> None:
    stage, order = Stage(), an_order(storage, CANCEL)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from stage.acknowledged(7)

    assert stage.run(script) == Cancelled()
    assert told(stage, CheckpointCompleted) == []


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("purpose", [KEEP, STOP])
def test_if_it_fails_the_job_goes_on_and_nothing_is_left(
    storage: CheckpointStorage, purpose: SavepointPurpose
) -> None:
    stage, order = Stage(), an_order(storage, purpose)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield Decline(checkpoint_id=7, slot=1, reason="the disk is full")
        assert not any(feed.is_held for feed in stage.attempt.feeds.values())
        yield from (Finished(0), Finished(1))
        yield from stage.acknowledged(8)
        yield None
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert error_of(order) == (
        f"the savepoint was not completed, and nothing is left of it [{order.folder.url}]: found "
        "declined: slot 1: the disk is full. Remove the cause, and ask for another one"
    )
    assert stage.discarded == [(order, 7)]
    assert told(stage, CheckpointAborted) == [CheckpointAborted(7)]
    assert [store.is_final for store in stage.stored] == [True]


@pytest.mark.usefixtures("inline")
def test_a_job_that_has_finished_does_not_fail_with_it(storage: CheckpointStorage) -> None:
    stage, order = Stage(max_concurrent=2), an_order(storage)
    stage.stores_at_once = False

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from stage.acknowledged(7)
        yield from (Finished(0), Finished(1))
        yield from stage.acknowledged(8)
        yield CheckpointStored(metadata_of(stage.stored[-1]))
        stage.slots[0].error = Unavailable("it has ended")
        yield StoreFailed(7, "the disk is full", is_fatal=False)
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert "the disk is full" in error_of(order)


@pytest.mark.usefixtures("inline")
def test_after_a_drain_there_is_no_way_on(storage: CheckpointStorage) -> None:
    stage, order = Stage(), an_order(storage, DRAIN)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from (Finished(0), Finished(1))
        yield Decline(checkpoint_id=7, slot=1, reason="the disk is full")

    outcome = stage.run(script)
    assert isinstance(outcome, Unsuccessful)
    assert "the job was drained" in outcome.reason
    assert "the disk is full" in error_of(order)


@pytest.mark.usefixtures("inline")
def test_a_savepoint_that_may_be_recorded_is_not_reported_as_deleted(
    storage: CheckpointStorage,
) -> None:
    stage, order = Stage(), an_order(storage, STOP)
    stage.stores_at_once = False

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from stage.acknowledged(7)
        order.is_needed = True
        yield StoreFailed(7, "the job was cancelled meanwhile", is_fatal=False)
        yield CancelWanted()

    assert stage.run(script) == Cancelled()
    assert "is complete, and it is not known" in error_of(order)


@pytest.mark.usefixtures("inline")
def test_a_job_that_does_not_run_begins_no_savepoint(storage: CheckpointStorage) -> None:
    stage = Stage()
    early, late, second = an_order(storage), an_order(storage), an_order(storage, STOP)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.opening()
        yield SavepointWanted(early)
        yield from stage.finishing()
        yield SavepointWanted(late)
        yield SavepointWanted(second)
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert "found one that is opening" in error_of(early)
    assert "no savepoint can be taken now" in error_of(late)
    assert "no savepoint can be taken now" in error_of(second)
