"""Time to live and timers, by a clock that the test moves."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    StateVisibility,
    Timer,
    TtlUpdateType,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.storage import Invalid, JobStorage, ManualClock, StateSnapshot, load_storage

SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path)).job("job")


def opened(
    clock: ManualClock, *snapshots: StateSnapshot, job: JobStorage | None = None
) -> KeyedStateBackend:
    backend = load_backend("hashmap").open(
        uid="op",
        key_groups=KeyGroupRange(0, 127),
        max_parallelism=128,
        restore=snapshots,
        storage=job,
        clock=clock,
    )
    backend.set_current_key(1)
    return backend


def config(**options: Any) -> StateTtlConfig:
    return StateTtlConfig(**{"ttl": SECOND, "cleanup_entries": 0, **options})


def test_a_value_lives_from_its_last_write(clock: ManualClock) -> None:
    with opened(clock) as backend:
        state = backend.get_state(ValueStateDescriptor("v", int, ttl=config()))
        state.update(5)
        clock.advance(999)
        assert state.value() == 5
        assert state.get_many([1]).to_pylist() == [5]
        state.update(6)
        clock.advance(999)
        assert state.value() == 6
        clock.advance(1)
        assert state.value() is None
        assert list(backend.keys("v")) == []


def test_reading_renews_the_time_to_live_where_configured(clock: ManualClock) -> None:
    renewing = config(update_type=TtlUpdateType.ON_READ_AND_WRITE)
    with opened(clock) as backend:
        value = backend.get_state(ValueStateDescriptor("v", int, ttl=renewing))
        listed = backend.get_state(ListStateDescriptor("l", int, ttl=renewing))
        mapped = backend.get_state(MapStateDescriptor("m", str, int, ttl=renewing))
        value.update(1)
        listed.add(2)
        mapped.put("a", 3)
        for _ in range(5):
            clock.advance(900)
            assert (value.value(), listed.get(), list(mapped.items())) == (1, [2], [("a", 3)])
            assert value.get_many([1]).to_pylist() == [1]
        clock.advance(1000)
        assert (value.value(), listed.get(), list(mapped.items())) == (None, [], [])


def test_an_expired_value_is_returned_once_where_configured(clock: ManualClock) -> None:
    shown = config(visibility=StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
    with opened(clock) as backend:
        state = backend.get_state(ValueStateDescriptor("v", int, ttl=shown))
        mapped = backend.get_state(MapStateDescriptor("m", str, int, ttl=shown))
        state.update(1)
        mapped.put("a", 2)
        clock.advance(5000)
        assert (state.value(), state.value()) == (1, None)
        assert (mapped.get("a"), mapped.get("a")) == (2, None)


def test_elements_and_entries_expire_one_by_one(clock: ManualClock) -> None:
    with opened(clock) as backend:
        listed = backend.get_state(ListStateDescriptor("l", str, ttl=config()))
        mapped = backend.get_state(MapStateDescriptor("m", str, int, ttl=config()))
        for name in ("a", "b", "c"):
            listed.add(name)
            mapped.put(name, None)
            clock.advance(400)
        assert (listed.get(), sorted(mapped.keys())) == (["b", "c"], ["b", "c"])
        clock.advance(400)
        assert (listed.get(), sorted(mapped.keys())) == (["c"], ["c"])
        assert (mapped.contains("c"), mapped.contains("b")) == (True, False)
        clock.advance(400)
        assert (listed.get(), mapped.is_empty()) == ([], True)


def test_a_huge_time_to_live_does_not_overflow(clock: ManualClock, job: JobStorage) -> None:
    forever = ValueStateDescriptor("v", int, ttl=config(ttl=timedelta.max))
    with opened(clock) as backend:
        backend.get_state(forever).update(1)
        snapshot = backend.snapshot(1, job).result(30)
    with opened(clock, snapshot, job=job) as backend:
        clock.advance(10**15)
        assert backend.get_state(forever).value() == 1


def test_accesses_clean_up_expired_entries_that_are_not_read(clock: ManualClock) -> None:
    with opened(clock) as backend:
        state = backend.get_state(ValueStateDescriptor("v", int, ttl=config(cleanup_entries=5)))
        state.put_many(list(range(100)), list(range(100)))
        clock.advance(2000)
        backend.set_current_key(-1)
        state.update(1)
        for _ in range(50):
            state.value()
        assert list(backend.keys("v")) == [-1]


def test_snapshots_leave_out_expired_entries(clock: ManualClock, job: JobStorage) -> None:
    for cleans, expected in ((True, [2]), (False, [1, 2])):
        state_ttl = config(cleanup_in_snapshot=cleans)
        with opened(clock) as backend:
            state = backend.get_state(ValueStateDescriptor("v", int, ttl=state_ttl))
            state.update(1)
            clock.advance(1500)
            backend.set_current_key(2)
            state.update(2)
            snapshot = backend.snapshot(1, job).result(30)
        with opened(clock, snapshot, job=job) as backend:
            backend.get_state(ValueStateDescriptor("v", int))
            assert sorted(backend.keys("v")) == expected


def test_time_to_live_is_switched_on_and_off_by_a_restore(
    clock: ManualClock, job: JobStorage
) -> None:
    mortal, immortal = ValueStateDescriptor("v", int, ttl=config()), ValueStateDescriptor("v", int)
    with opened(clock) as backend:
        backend.get_state(immortal).update(1)
        without = backend.snapshot(1, job).result(30)
    clock.advance(100_000)
    with opened(clock, without, job=job) as backend:
        state = backend.get_state(mortal)
        clock.advance(999)
        assert state.value() == 1
        with_ttl = backend.snapshot(2, job).result(30)
        clock.advance(1)
        assert state.value() is None
    with opened(clock, with_ttl, job=job) as backend:
        clock.advance(100_000)
        assert backend.get_state(immortal).value() == 1


@pytest.mark.parametrize("options", [{"ttl": timedelta(0)}, {"cleanup_entries": -1}])
def test_settings_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="out of range"):
        config(**options)


def test_timers_fire_once_in_order_of_time(clock: ManualClock) -> None:
    with opened(clock) as backend:
        timers = backend.timers("user", namespace_type=str)
        for key, timestamp, namespace in ((1, 30, "a"), (2, 10, "b"), (1, 30, "a"), (1, 10, "a")):
            backend.set_current_key(key)
            timers.register_event_time_timer(timestamp, namespace)
            timers.register_processing_time_timer(timestamp * 2, namespace)
        timers.delete_processing_time_timer(60, "a")
        timers.delete_processing_time_timer(61, "a")
        assert (timers.next_event_time(), timers.next_processing_time()) == (10, 20)
        fired = list(timers.due_event_time(29))
        assert fired == [Timer(10, 2, "b"), Timer(10, 1, "a")]
        assert list(timers.due_event_time(29)) == []
        assert list(timers.due_event_time(30)) == [Timer(30, 1, "a")]
        assert [timer.timestamp for timer in timers.due_processing_time(1000)] == [20, 20]
        assert (timers.next_event_time(), timers.next_processing_time()) == (None, None)


def test_many_timers_of_one_moment_fire_in_order_of_registration(clock: ManualClock) -> None:
    with opened(clock) as backend:
        timers = backend.timers("user")
        for key in range(50_000):
            backend.set_current_key(key)
            timers.register_event_time_timer(7)
        fired = []
        for timer in timers.due_event_time(7):
            fired.append(timer.key)
            if timer.key == 3:
                backend.set_current_key(5)
                timers.delete_event_time_timer(7)
                timers.register_event_time_timer(6)
                backend.set_current_key(1)
                timers.register_event_time_timer(7)
        assert fired == [0, 1, 2, 3, 5, 4, *range(6, 50_000), 1]


def test_timers_that_are_registered_while_others_fire_are_due_too(clock: ManualClock) -> None:
    with opened(clock) as backend:
        timers = backend.timers("user")
        timers.register_event_time_timer(1)
        seen = []
        for timer in timers.due_event_time(5):
            seen.append(timer.timestamp)
            backend.set_current_key(timer.key)
            timers.register_event_time_timer(timer.timestamp + 1)
        assert seen == [1, 2, 3, 4, 5]
        assert timers.next_event_time() == 6


def test_timers_are_restored_with_their_keys(clock: ManualClock, job: JobStorage) -> None:
    with opened(clock) as backend:
        timers = backend.timers("user")
        for key in range(100):
            backend.set_current_key(key)
            timers.register_event_time_timer(key % 7 - 3)
        list(timers.due_event_time(-3))
        snapshot = backend.snapshot(1, job).result(30)
    fired: list[Timer] = []
    for key_groups in key_groups_of_slots(3, 128):
        with load_backend("hashmap").open(
            uid="op",
            key_groups=key_groups,
            max_parallelism=128,
            restore=[snapshot],
            storage=job,
            clock=clock,
        ) as part:
            moments = list(part.timers("user").due_event_time(100))
            assert moments == sorted(moments, key=lambda timer: timer.timestamp)
            fired += moments
    assert sorted((timer.key, timer.timestamp) for timer in fired) == [
        (key, key % 7 - 3) for key in range(100) if key % 7 != 0
    ]


@pytest.mark.parametrize("moment", [datetime(2024, 5, 17, tzinfo=UTC), 1.5, "1", None, 2**63])
def test_the_time_of_a_timer_is_whole_milliseconds(clock: ManualClock, moment: Any) -> None:
    with opened(clock) as backend:
        timers = backend.timers("user")
        for call in (timers.register_event_time_timer, timers.delete_processing_time_timer):
            with pytest.raises(Invalid, match="the time of a timer is no whole number") as caught:
                call(moment)
            assert "key" not in str(caught.value)
            assert type(moment).__name__ in caught.value.found


def test_a_timer_service_without_namespaces_refuses_one(clock: ManualClock) -> None:
    with opened(clock) as backend, pytest.raises(Invalid, match="no namespaces"):
        backend.timers("user").register_event_time_timer(1, "a")
