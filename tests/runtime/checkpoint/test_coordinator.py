"""What a checkpoint needs, and when one begins; each rule by itself."""

from collections.abc import Sequence

import pytest

from holdfast.runtime.checkpoint.commands import (
    AbortReason,
    Begin,
    Command,
    Notify,
    Retain,
    Store,
    Trigger,
)
from holdfast.runtime.protocol.checkpoints import SlotStatistics
from holdfast.storage import Invalid
from support.simulations.coordinator_driver import (
    SLOTS,
    START_MS,
    Driver,
    abort,
    begin,
    brief,
    completed,
    part,
)


def test_a_checkpoint_is_stored_when_all_have_answered_and_told_when_it_is_stored() -> None:
    driver = Driver(sources=["orders"], next_id=7)
    assert driver.after(1_000) == [
        Begin(checkpoint_id=7, triggered_ms=START_MS + 1_000, trigger=Trigger.PERIODIC, base=None)
    ]
    assert driver.acknowledge(7, 1) == []
    assert driver.acknowledge(7, 0) == []
    position = part()
    assert driver.coordinator.source_position(
        driver.now_ms, 7, uid="orders", position=position
    ) == [
        Store(
            checkpoint_id=7,
            triggered_ms=START_MS + 1_000,
            trigger=Trigger.PERIODIC,
            operators={"sum": (part(0), part(1))},
            sources={"orders": position},
        )
    ]
    assert driver.stored(7) == [Notify(7), Retain(7)]
    assert driver.coordinator.pending == ()


def test_the_last_slot_may_come_after_the_sources() -> None:
    driver = Driver(sources=["a", "b"])
    driver.after(1_000)
    for uid in ("b", "a"):
        driver.coordinator.source_position(driver.now_ms, 1, uid=uid, position=part())
    assert driver.acknowledge(1, 0) == []
    (store,) = driver.acknowledge(1, 1)
    assert isinstance(store, Store)
    assert list(store.sources) == ["a", "b"]


def test_an_operator_that_left_nothing_is_listed_all_the_same() -> None:
    driver = Driver()
    driver.after(1_000)
    answered: Sequence[Command] = ()
    for slot, parts in ((0, {"z": [part(0)], "a": []}), (1, {"a": []})):
        answered = driver.coordinator.acknowledged(
            driver.now_ms, 1, slot=slot, parts=parts, statistics=SlotStatistics()
        )
    (store,) = answered
    assert isinstance(store, Store)
    assert list(store.operators.items()) == [("a", ()), ("z", (part(0),))]


def test_a_second_answer_is_nothing_and_the_first_counts() -> None:
    driver = Driver()
    driver.after(1_000)
    driver.acknowledge(1, 0)
    answered = driver.coordinator.acknowledged(
        driver.now_ms, 1, slot=0, parts={"other": [part(0)]}, statistics=SlotStatistics()
    )
    assert answered == []
    (store,) = driver.acknowledge(1, 1)
    assert isinstance(store, Store)
    assert set(store.operators) == {"sum"}
    assert driver.acknowledge(1) == []
    driver.stored(1)
    assert driver.acknowledge(1) == ()  # its files are in use: nothing to discard


def test_a_second_position_is_nothing_and_the_first_counts() -> None:
    driver = Driver(sources=["a"])
    driver.after(1_000)
    for size_bytes in (1, 2):
        driver.coordinator.source_position(
            driver.now_ms, 1, uid="a", position=part(size_bytes=size_bytes)
        )
    (store,) = driver.acknowledge(1)
    assert isinstance(store, Store)
    assert store.sources == {"a": part(size_bytes=1)}


def test_an_answer_to_an_aborted_checkpoint_is_nothing() -> None:
    driver = Driver(tolerable_failures=1, sources=["a"])
    driver.after(1_000)
    driver.decline(1)
    assert driver.acknowledge(1, 1) == ()
    assert driver.decline(1) == ()
    assert driver.coordinator.source_position(driver.now_ms, 1, uid="a", position=part()) == ()
    assert driver.coordinator.trigger_failed(driver.now_ms, 1, reason="?") == ()


def test_an_answer_to_a_checkpoint_of_an_earlier_attempt_is_nothing() -> None:
    driver = Driver(next_id=7)
    assert driver.acknowledge(6, 0) == ()
    assert driver.decline(6) == ()


@pytest.mark.parametrize("slot", [-1, SLOTS])
def test_a_slot_that_does_not_exist_is_an_error(slot: int) -> None:
    driver = Driver()
    driver.after(1_000)
    with pytest.raises(Invalid, match="slot that the job does not have"):
        driver.acknowledge(1, slot)
    with pytest.raises(Invalid, match="slot that the job does not have"):
        driver.decline(1, slot=slot)


def test_an_impossible_answer_is_an_error() -> None:
    driver = Driver(sources=["a"])
    driver.after(1_000)
    with pytest.raises(Invalid, match="has not begun"):
        driver.acknowledge(2)
    with pytest.raises(Invalid, match="source 'b'"):
        driver.coordinator.source_position(driver.now_ms, 1, uid="b", position=part())
    with pytest.raises(Invalid, match=r"not being stored: expected none, found checkpoint 1"):
        driver.stored(1)
    with pytest.raises(Invalid, match="not being stored"):
        driver.store_failed(1)
    assert driver.coordinator.pending == (1,)


def test_the_interval_is_from_trigger_to_trigger() -> None:
    driver = Driver()
    assert driver.after(999) == []
    assert brief(driver.after(1)) == [begin(1)]
    driver.now_ms += 600
    driver.complete(1)
    assert driver.after(399) == []
    assert brief(driver.after(1)) == [begin(2)]


def test_a_checkpoint_longer_than_the_interval_is_followed_at_once() -> None:
    driver = Driver()
    driver.after(1_000)
    driver.acknowledge(1)
    assert driver.after(5_000) == []
    assert brief(driver.stored(1)) == [*completed(1), begin(2)]


def test_the_pause_is_from_the_end_of_the_last_one() -> None:
    driver = Driver(min_pause="800ms")
    driver.after(1_000)
    driver.now_ms += 500
    driver.complete(1)
    assert driver.after(799) == []
    assert brief(driver.after(1)) == [begin(2)]


def test_the_pause_is_from_the_end_of_one_that_failed_too() -> None:
    driver = Driver(min_pause="2s", tolerable_failures=9)
    driver.after(1_000)
    driver.after(500)
    driver.decline(1)
    assert driver.after(1_999) == []
    assert brief(driver.after(1)) == [begin(2)]


def test_so_many_are_under_way_at_once_and_no_more() -> None:
    driver = Driver(max_concurrent=2)
    assert brief(driver.after(1_000)) == [begin(1)]
    assert brief(driver.after(1_000)) == [begin(2)]
    assert driver.after(1_000) == []
    assert driver.coordinator.pending == (1, 2)
    assert brief(driver.complete(1)) == [*completed(1, since=1), begin(3)]


def test_without_an_interval_only_requests_begin_one() -> None:
    driver = Driver(interval=None)
    assert driver.coordinator.next_tick_ms() is None
    assert driver.after(10**9) == []
    assert brief(driver.request()) == [begin(1, Trigger.REQUESTED)]


def test_a_request_ignores_interval_and_pause_and_moves_the_interval() -> None:
    driver = Driver(min_pause="1min")
    driver.after(1_000)
    driver.complete(1)
    driver.now_ms += 700
    assert brief(driver.request()) == [begin(2, Trigger.REQUESTED)]
    driver.complete(2)
    assert driver.after(59_999) == []
    assert brief(driver.after(1)) == [begin(3)]


def test_requests_wait_for_room_and_share_one_checkpoint() -> None:
    driver = Driver()
    driver.after(1_000)
    assert driver.request() == []
    assert driver.request() == []
    assert brief(driver.complete(1)) == [*completed(1), begin(2, Trigger.REQUESTED)]
    assert brief(driver.complete(2)) == completed(2)


def test_a_request_that_failed_is_not_repeated() -> None:
    driver = Driver(interval=None, tolerable_failures=1)
    driver.request()
    assert brief(driver.decline(1)) == [abort(1, AbortReason.DECLINED)]
    assert driver.after(10**6) == []


def test_the_coordinator_says_when_its_next_tick_is() -> None:
    driver = Driver(timeout="30s", tolerable_failures=1)
    assert driver.coordinator.next_tick_ms() == START_MS + 1_000
    driver.after(1_000)
    assert driver.coordinator.next_tick_ms() == START_MS + 31_000
    driver.acknowledge(1)
    assert driver.coordinator.next_tick_ms() is None
    driver.stored(1)
    assert driver.coordinator.next_tick_ms() == START_MS + 2_000
    driver.shutdown()
    assert driver.coordinator.next_tick_ms() is None


def test_a_clock_that_goes_back_is_taken_to_stand_still() -> None:
    driver = Driver(tolerable_failures=1)
    driver.after(1_000)
    driver.after(-500_000)
    driver.complete(1)
    (completed,) = driver.coordinator.history.overview().recent
    assert completed.duration_ms == 0
