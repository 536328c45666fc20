"""How a checkpoint ends, how failures are counted, how all ends; each rule by itself."""

from collections.abc import Sequence

import pytest

from holdfast.runtime.checkpoint.commands import (
    Abort,
    AbortReason,
    Command,
    FailJob,
    Store,
    Trigger,
)
from holdfast.runtime.checkpoint.statistics import CheckpointStatus
from support.simulations.coordinator_driver import (
    COUNTED,
    START_MS,
    Driver,
    abort,
    begin,
    brief,
    completed,
)


def test_an_expired_checkpoint_names_the_missing_answers() -> None:
    driver = Driver(timeout="5s", tolerable_failures=1, sources=["orders"])
    driver.after(1_000)
    driver.acknowledge(1, 0)
    assert driver.after(4_999) == []
    expired = Abort(
        checkpoint_id=1,
        reason=AbortReason.EXPIRED,
        detail="no answer from slots 1 and sources 'orders' within 5 s",
    )
    assert driver.after(1)[0] == expired


def test_a_checkpoint_being_stored_cannot_expire_or_be_declined() -> None:
    driver = Driver(timeout="5s")
    driver.after(1_000)
    driver.acknowledge(1)
    assert driver.after(60_000) == []
    assert driver.decline(1) == ()
    assert driver.coordinator.trigger_failed(driver.now_ms, 1, reason="?") == ()
    assert brief(driver.stored(1)) == [*completed(1), begin(2)]


def test_a_checkpoint_that_waits_to_be_stored_expires() -> None:
    driver = Driver(timeout="5s", tolerable_failures=1, max_concurrent=2)
    driver.after(1_000)
    driver.after(1_000)
    driver.acknowledge(1)
    driver.acknowledge(2)
    assert driver.after(4_999) == []
    (expired, *_) = driver.after(1)
    assert isinstance(expired, Abort)
    assert expired.checkpoint_id == 2
    assert expired.detail == "checkpoint 1 was still being stored after 5 s"


def test_completing_one_subsumes_those_before_it() -> None:
    driver = Driver(max_concurrent=3)
    for _ in range(3):
        driver.after(1_000)
    driver.acknowledge(1, 0)
    assert brief(driver.complete(2)) == completed(2, abort(1, AbortReason.SUBSUMED), since=1)
    assert driver.coordinator.pending == (3,)
    assert driver.acknowledge(1, 1) == ()


def test_ready_checkpoints_are_stored_in_order() -> None:
    driver = Driver(max_concurrent=3)
    for _ in range(3):
        driver.after(1_000)
    assert brief(driver.acknowledge(1)) == [(Store, 1)]
    assert driver.acknowledge(3) == []
    assert driver.acknowledge(2) == []
    assert brief(driver.stored(1)) == [*completed(1, since=1), (Store, 2)]
    assert brief(driver.stored(2)) == [*completed(2, since=1), (Store, 3)]
    assert brief(driver.stored(3)) == completed(3)


def test_a_checkpoint_overtaken_by_a_later_one_is_subsumed_if_that_succeeds() -> None:
    for is_stored in (True, False):
        driver = Driver(max_concurrent=2, tolerable_failures=1)
        driver.after(1_000)
        driver.after(1_000)
        assert brief(driver.acknowledge(2)) == [(Store, 2)]
        assert driver.acknowledge(1) == []
        if is_stored:
            assert brief(driver.stored(2)) == completed(2, abort(1, AbortReason.SUBSUMED))
        else:
            assert brief(driver.store_failed(2)) == [abort(2, AbortReason.FINALIZE), (Store, 1)]
            assert brief(driver.stored(1)) == completed(1)


def test_the_first_failure_fails_the_job_unless_some_are_tolerated() -> None:
    driver = Driver()
    driver.after(1_000)
    (aborted, failed) = driver.decline(1)
    assert aborted == Abort(checkpoint_id=1, reason=AbortReason.DECLINED, detail="slot 0: no disk")
    assert failed == FailJob(
        "checkpoint 1 failed (declined: slot 0: no disk); "
        "1 failed in a row, tolerable_failures is 0"
    )
    assert driver.coordinator.is_shut_down


def fail(driver: Driver, number: int, reason: AbortReason) -> Sequence[Command]:
    """Let a checkpoint that has begun end in this way."""
    if reason is AbortReason.EXPIRED:
        return driver.after(60_000)
    if reason is AbortReason.FINALIZE:
        driver.acknowledge(number)
        return driver.store_failed(number)
    if reason is AbortReason.IO:
        return driver.coordinator.trigger_failed(driver.now_ms, number, reason="no position")
    return driver.decline(number)


@pytest.mark.parametrize("reason", COUNTED)
def test_more_failures_in_a_row_than_tolerated_fail_the_job(reason: AbortReason) -> None:
    driver = Driver(tolerable_failures=2, timeout="1min", interval="1h")
    for number in (1, 2):
        driver.request()
        assert brief(fail(driver, number, reason)) == [abort(number, reason)]
    driver.request()
    assert brief(fail(driver, 3, reason)) == [abort(3, reason), (FailJob,)]


def test_a_trigger_that_failed_counts() -> None:
    driver = Driver()
    driver.after(1_000)
    told = driver.coordinator.trigger_failed(driver.now_ms, 1, reason="no position")
    assert brief(told) == [abort(1, AbortReason.IO), (FailJob,)]


def test_a_checkpoint_counts_once() -> None:
    driver = Driver(tolerable_failures=1, interval=None)
    driver.request()
    driver.decline(1)
    assert driver.decline(1, slot=1) == ()
    assert not driver.coordinator.is_shut_down


def test_a_success_lets_the_count_begin_anew() -> None:
    driver = Driver(tolerable_failures=1, interval=None)
    for number in (1, 3, 5):
        driver.request()
        assert brief(driver.decline(number)) == [abort(number, AbortReason.DECLINED)]
        driver.request()
        assert brief(driver.complete(number + 1)) == completed(number + 1)


def test_a_subsumed_checkpoint_does_not_count_as_failed() -> None:
    driver = Driver(max_concurrent=2)
    driver.after(1_000)
    driver.after(1_000)
    assert brief(driver.complete(2)) == completed(2, abort(1, AbortReason.SUBSUMED))


def test_when_the_job_fails_all_is_given_up() -> None:
    driver = Driver(max_concurrent=3)
    for _ in range(3):
        driver.after(1_000)
    driver.acknowledge(1)
    assert brief(driver.decline(2)) == [
        abort(2, AbortReason.DECLINED),
        abort(3, AbortReason.SHUTDOWN),
        (FailJob,),
    ]
    assert driver.shutdown() == ()


def test_several_that_expire_together_fail_the_job_once() -> None:
    driver = Driver(max_concurrent=3, timeout="10s")
    driver.after(1_000)
    for _ in range(2):
        driver.request()
    assert brief(driver.after(60_000)) == [
        abort(1, AbortReason.EXPIRED),
        abort(2, AbortReason.SHUTDOWN),
        abort(3, AbortReason.SHUTDOWN),
        (FailJob,),
    ]


def test_the_final_checkpoint_begins_at_once_and_is_the_last() -> None:
    driver = Driver(min_pause="1min")
    driver.after(1_000)
    driver.complete(1)
    assert brief(driver.request_final()) == [begin(2, Trigger.FINAL)]
    assert driver.request_final() == []
    (store,) = driver.acknowledge(2)
    assert isinstance(store, Store)
    assert store.is_final
    assert driver.coordinator.next_tick_ms() is None
    assert brief(driver.stored(2)) == completed(2)
    assert driver.coordinator.is_finished
    assert driver.request() == []
    assert driver.request_final() == []
    assert driver.after(10**6) == []
    assert driver.coordinator.next_tick_ms() is None


def test_the_final_checkpoint_waits_for_room() -> None:
    driver = Driver()
    driver.after(1_000)
    assert driver.request_final() == []
    assert driver.after(5_000) == []
    assert brief(driver.complete(1)) == [*completed(1), begin(2, Trigger.FINAL)]


def test_the_final_checkpoint_takes_the_room_that_there_is() -> None:
    driver = Driver(max_concurrent=2)
    driver.after(1_000)
    assert brief(driver.request_final()) == [begin(2, Trigger.FINAL)]
    assert brief(driver.complete(2)) == completed(2, abort(1, AbortReason.SUBSUMED))
    assert driver.coordinator.is_finished


def test_the_final_checkpoint_is_tried_again_after_a_moment() -> None:
    driver = Driver(tolerable_failures=1)
    driver.request_final()
    assert brief(driver.decline(1)) == [abort(1, AbortReason.DECLINED)]
    assert driver.coordinator.next_tick_ms() == START_MS + 1_000
    assert driver.after(999) == []
    assert brief(driver.after(1)) == [begin(2, Trigger.FINAL)]
    assert brief(driver.decline(2)) == [abort(2, AbortReason.DECLINED), (FailJob,)]


def test_the_final_checkpoint_answers_requests_too() -> None:
    driver = Driver()
    driver.after(1_000)
    driver.request()
    driver.request_final()
    assert brief(driver.complete(1)) == [*completed(1), begin(2, Trigger.FINAL)]
    assert brief(driver.complete(2)) == completed(2)


def test_a_shutdown_gives_up_what_has_begun_and_nothing_follows() -> None:
    driver = Driver(max_concurrent=2)
    driver.after(1_000)
    driver.after(1_000)
    assert brief(driver.shutdown()) == [
        abort(1, AbortReason.SHUTDOWN),
        abort(2, AbortReason.SHUTDOWN),
    ]
    assert driver.shutdown() == ()
    assert driver.acknowledge(1) == ()
    assert driver.decline(2) == ()
    for answered in (driver.after(60_000), driver.request(), driver.request_final()):
        assert answered == []


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_checkpoint_being_stored_at_a_shutdown_may_complete(*, is_stored: bool) -> None:
    driver = Driver()
    driver.after(1_000)
    driver.acknowledge(1)
    assert driver.shutdown() == []
    assert (driver.stored(1) if is_stored else driver.store_failed(1)) == ()
    (known,) = driver.coordinator.history.overview().recent
    expected = CheckpointStatus.COMPLETED if is_stored else CheckpointStatus.ABORTED
    assert known.status is expected
