"""Timers in RocksDB and on the heap: each option restores snapshots of the other one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    StateBackend,
    key_groups_of_slots,
    load_backend,
)
from holdfast.backends.testing.scenes import keys_of
from holdfast.storage import JobManagerCheckpointStorage, JobStorage, StateSnapshot

ALL = KeyGroupRange(0, 127)
KEYS = range(200)
BACKENDS = {
    "ordered, files": {"timers": "rocksdb", "incremental": True},
    "ordered, entries": {"timers": "rocksdb", "incremental": False},
    "heap, files": {"timers": "heap", "incremental": True},
    "heap, entries": {"timers": "heap", "incremental": False},
}
TIMERS = {(key * 37 % 11 - 5, key, space) for key in KEYS for space in ("", "a")}


@pytest.fixture
def job() -> JobStorage:
    return JobManagerCheckpointStorage(max_state_bytes=1 << 30).job("job")


def named(name: str) -> StateBackend:
    return load_backend("rocksdb", memory="32m", **BACKENDS[name])


def opened(
    backend: StateBackend,
    job: JobStorage,
    snapshots: Sequence[StateSnapshot] = (),
    key_groups: KeyGroupRange = ALL,
) -> KeyedStateBackend:
    return backend.open(
        uid="op",
        key_groups=key_groups,
        max_parallelism=128,
        key_type=int,
        restore=snapshots,
        storage=job,
    )


def written(backend: StateBackend, job: JobStorage, key_groups: KeyGroupRange) -> StateSnapshot:
    with opened(backend, job, key_groups=key_groups) as state:
        timers = state.timers("t", namespace_type=str)
        mine = keys_of(state, KEYS)
        for moment, key, space in sorted(TIMERS):
            if key in mine:
                state.set_current_key(key)
                timers.register_event_time_timer(moment, space)
                timers.register_processing_time_timer(moment, space)
        return state.snapshot(1, job).result(30)


def all_of(state: KeyedStateBackend) -> None:
    """Both domains have just the timers that were registered; all go."""
    timers = state.timers("t", namespace_type=str)
    for due in (timers.due_event_time(100), timers.due_processing_time(100)):
        found = [(timer.timestamp, timer.key, timer.namespace) for timer in due]
        assert [each[0] for each in found] == sorted(each[0] for each in found)
        assert (len(found), set(found)) == (len(TIMERS), TIMERS)


@pytest.mark.slow
@pytest.mark.parametrize("after", BACKENDS)
@pytest.mark.parametrize("before", BACKENDS)
def test_restored_timers_follow_the_option_of_where_timers_are(
    before: str, after: str, job: JobStorage
) -> None:
    snapshot = written(named(before), job, ALL)
    with opened(named(after), job, [snapshot]) as state:
        carried = state.snapshot(2, job).result(30)  # they are not declared yet
        all_of(state)
    with opened(named(before), job, [carried]) as state:
        all_of(state)
        empty = state.snapshot(3, job).result(30)
    with opened(named(after), job, [empty]) as state:
        assert state.timers("t", namespace_type=str).next_event_time() is None


def test_timers_of_slots_with_different_options_are_restored(job: JobStorage) -> None:
    slots = key_groups_of_slots(4, 128)
    snapshots = [
        written(named(name), job, key_groups)
        for name, key_groups in zip(BACKENDS, slots, strict=True)
    ]
    for name in BACKENDS:
        with opened(named(name), job, snapshots) as state:
            again = state.snapshot(2, job).result(30)
            all_of(state)
        with opened(named(name), job, [again]) as state:
            all_of(state)
