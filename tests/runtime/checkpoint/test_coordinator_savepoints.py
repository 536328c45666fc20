"""Savepoints beside checkpoints: begun at once, no base, and the last one if they end the job."""

from __future__ import annotations

import pytest

from holdfast.runtime.checkpoint.commands import AbortReason, Begin, FailJob, Retain, Store, Trigger
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.checkpoint.statistics import CheckpointStatus
from holdfast.storage import HoldfastError, Invalid, Unavailable
from support.simulations.coordinator_driver import Driver, abort, an_order, begin, brief, completed

ENDING = pytest.mark.parametrize("purpose", [SavepointPurpose.STOP, SavepointPurpose.DRAIN])
SUSPENDING = [each for each in SavepointPurpose if each is not SavepointPurpose.KEEP_RUNNING]


def begun(number: int) -> tuple[object, ...]:
    return begin(number, Trigger.SAVEPOINT)


def test_a_savepoint_begins_at_once_beside_pending_checkpoints() -> None:
    driver = Driver(min_pause="10s")
    assert brief(driver.after(10_000)) == [begin(1)]
    assert brief(driver.request_savepoint()) == [begun(2)]
    assert brief(driver.request_savepoint()) == [begun(3)]
    assert driver.coordinator.pending == (1, 2, 3)


def test_its_number_is_of_the_same_row_and_it_tells_what_is_complete() -> None:
    driver = Driver(next_id=8, restored=5)
    (command,) = driver.request_savepoint()
    assert isinstance(command, Begin)
    assert (command.checkpoint_id, command.base) == (8, 5)
    assert command.savepoint is not None
    driver.complete(8)
    assert brief(driver.after(1_000)) == [begin(9)]


def test_a_savepoint_of_a_continuing_job_notifies_and_deletes_nothing() -> None:
    driver = Driver(restored=1, next_id=2, tolerable_failures=1)
    driver.request_savepoint()
    assert brief(driver.acknowledge(2)) == [(Store, 2)]
    assert driver.stored(2) == []
    (checkpoint,) = driver.after(1_000)
    assert isinstance(checkpoint, Begin)
    assert checkpoint.base == 1, "no checkpoint builds on a savepoint"
    overview = driver.coordinator.history.overview()
    assert overview.last_completed is None
    assert overview.last_savepoint is not None
    assert overview.last_savepoint.savepoint == an_order().folder.url
    assert overview.last_savepoint.written_bytes == overview.last_savepoint.size_bytes > 0


def test_a_checkpoint_that_is_complete_before_it_does_not_make_it_obsolete() -> None:
    driver = Driver(max_concurrent=2)
    driver.request_savepoint()
    driver.after(1_000)
    assert brief(driver.complete(2)) == completed(2), "it keeps no base"
    assert driver.coordinator.pending == (1,)
    assert brief(driver.acknowledge(1)) == [(Store, 1)]
    assert driver.stored(1) == []


def test_savepoints_are_stored_beside_checkpoints_and_each_other() -> None:
    driver = Driver(max_concurrent=3)
    driver.request_savepoint()
    driver.after(1_000)
    driver.request_savepoint()
    assert [brief(driver.acknowledge(number)) for number in (2, 1, 3)] == [
        [(Store, 2)],
        [(Store, 1)],
        [(Store, 3)],
    ]
    assert driver.stored(3) == []
    assert brief(driver.stored(2)) == completed(2)
    assert driver.stored(1) == []


def test_periodic_ones_wait_for_it_as_for_each_other() -> None:
    driver = Driver()
    driver.request_savepoint()
    assert driver.after(5_000) == []
    driver.acknowledge(1)
    assert brief(driver.stored(1)) == [begin(2)]


def test_a_savepoint_does_not_move_interval_and_pause() -> None:
    driver = Driver(interval="1s", min_pause="1s")
    driver.after(500)
    driver.request_savepoint()
    driver.complete(1)
    assert brief(driver.after(500)) == [begin(2)]


def test_that_it_fails_is_no_failure_of_the_job() -> None:
    driver = Driver(tolerable_failures=0, timeout="5s", interval=None)
    driver.request_savepoint()
    assert brief(driver.decline(1)) == [abort(1, AbortReason.DECLINED)]
    driver.request_savepoint()
    assert brief(driver.after(5_000)) == [abort(2, AbortReason.EXPIRED)]
    driver.request_savepoint()
    driver.acknowledge(3)
    assert brief(driver.store_failed(3)) == [abort(3, AbortReason.FINALIZE)]
    driver.request_savepoint()
    failed = driver.coordinator.trigger_failed(driver.now_ms, 4, reason="no position")
    assert brief(failed) == [abort(4, AbortReason.IO)]
    assert all(command.savepoint is not None for command in failed)  # type: ignore[union-attr]
    assert not driver.coordinator.is_shut_down


def test_a_savepoint_being_stored_cannot_expire_or_be_declined() -> None:
    driver = Driver(timeout="5s", interval=None)
    driver.request_savepoint()
    driver.acknowledge(1)
    assert driver.after(60_000) == []
    assert driver.decline(1) == ()
    with pytest.raises(Invalid, match=r"not being stored: expected checkpoint 1, found"):
        driver.stored(2)
    assert driver.stored(1) == []


def test_a_shutdown_aborts_pending_savepoints_except_those_being_stored() -> None:
    driver = Driver(interval=None)
    driver.request_savepoint()
    driver.request_savepoint()
    driver.acknowledge(1)
    assert brief(driver.shutdown()) == [abort(2, AbortReason.SHUTDOWN)]
    assert driver.stored(1) == []
    statuses = [each.status for each in driver.coordinator.history.overview().recent]
    assert statuses == [CheckpointStatus.COMPLETED, CheckpointStatus.ABORTED]


@ENDING
def test_a_savepoint_that_ends_the_job_is_the_last_checkpoint(purpose: SavepointPurpose) -> None:
    driver = Driver(max_concurrent=2, restored=3, next_id=4)
    driver.after(1_000)
    commands = driver.request_savepoint(purpose)
    if purpose is SavepointPurpose.DRAIN:
        assert commands == ()
        assert driver.after(60_000) == [], "no checkpoint may be taken of what is half drained"
        commands = driver.drained()
    assert brief(commands) == [begun(5)]
    assert driver.request() == []
    assert brief(driver.acknowledge(5)) == [(Store, 5)]
    assert brief(driver.stored(5)) == completed(5, abort(4, AbortReason.SUBSUMED))
    assert driver.coordinator.is_finished
    assert driver.after(60_000) == []


def test_a_drain_is_over_in_its_own_time() -> None:
    driver = Driver(timeout="5s")
    driver.request_savepoint(SavepointPurpose.DRAIN)
    assert driver.coordinator.is_draining
    assert driver.after(60_000) == []
    assert brief(driver.drained()) == [begun(1)]
    assert driver.after(4_999) == []
    assert brief(driver.after(1)) == [abort(1, AbortReason.EXPIRED), (FailJob,)]


def test_a_drain_that_was_not_requested_is_refused() -> None:
    driver = Driver()
    with pytest.raises(Invalid, match="no savepoint with a drain was requested"):
        driver.drained()
    driver.request_savepoint(SavepointPurpose.STOP)
    with pytest.raises(Invalid, match="no savepoint with a drain was requested"):
        driver.drained()


@pytest.mark.parametrize("purpose", [SavepointPurpose.STOP, SavepointPurpose.CANCEL])
def test_if_the_last_one_fails_checkpoints_go_on(purpose: SavepointPurpose) -> None:
    driver = Driver(tolerable_failures=0)
    driver.request_savepoint(purpose)
    assert driver.after(5_000) == []
    assert brief(driver.decline(1)) == [abort(1, AbortReason.DECLINED)]
    assert driver.after(999) == []
    assert brief(driver.after(1)) == [begin(2)]
    driver.complete(2)
    assert brief(driver.request_savepoint(purpose)) == [begun(3)]


def test_the_final_checkpoint_waits_for_one_that_ends_the_job_and_comes_if_that_fails() -> None:
    driver = Driver()
    driver.request_savepoint(SavepointPurpose.STOP)
    assert driver.request_final() == []
    assert brief(driver.decline(1)) == [abort(1, AbortReason.DECLINED), begin(2, Trigger.FINAL)]


def test_before_a_cancel_no_checkpoint_follows_and_nothing_is_committed() -> None:
    driver = Driver()
    driver.request_savepoint(SavepointPurpose.CANCEL)
    driver.acknowledge(1)
    assert driver.stored(1) == []
    assert driver.after(60_000) == []
    assert not driver.coordinator.is_finished


def refused(driver: Driver, purpose: SavepointPurpose) -> str:
    with pytest.raises(Unavailable, match="no savepoint can be taken now") as told:
        driver.request_savepoint(purpose)
    return told.value.found


@pytest.mark.parametrize("wanted", [*SavepointPurpose])
@pytest.mark.parametrize("there", SUSPENDING)
def test_after_the_last_there_is_no_other(
    there: SavepointPurpose, wanted: SavepointPurpose
) -> None:
    driver = Driver()
    driver.request_savepoint(there)
    assert "another savepoint is on its way" in refused(driver, wanted)


@pytest.mark.parametrize("wanted", [*SavepointPurpose])
def test_an_ending_job_refuses_savepoints(wanted: SavepointPurpose) -> None:
    driver = Driver()
    driver.request_final()
    assert "about to finish" in refused(driver, wanted)
    driver.shutdown()
    assert "over" in refused(driver, wanted)


def test_retention_does_not_depend_on_a_savepoint() -> None:
    driver = Driver(max_concurrent=3, restored=1, next_id=2)
    driver.request_savepoint()
    driver.after(1_000)
    commands = driver.complete(3)
    assert Retain(3) in commands


def test_of_what_is_said_of_an_order_the_first_counts() -> None:
    order: SavepointOrder = an_order()
    assert order.fail(Unavailable("no"))
    order.complete()
    assert not order.fail(Unavailable("twice"))
    with pytest.raises(HoldfastError, match=r"^no$"):
        order.outcome.result(0)
    other = an_order()
    other.complete()
    assert other.is_decided
    assert not other.fail(Unavailable("late"))
    other.outcome.result(0)
