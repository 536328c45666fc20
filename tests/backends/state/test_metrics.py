"""Metrics of state: their values are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.backends import (
    HashMapStateBackend,
    KeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    StateMetrics,
    ValueState,
    ValueStateDescriptor,
)
from holdfast.backends.byte_tables.store import ByteTableStore
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.rocksdb.memory import SlotMemory
from holdfast.backends.rocksdb.store import RocksStore
from holdfast.storage import Invalid, ManualClock, load_storage
from support.documents.told_metrics import documented

ALL = KeyGroupRange(0, 127)
COUNTED = {"cache_hits", "cache_misses", "cache_hit_ratio", "stalled_s"}
VALUE = b"v" * 100


def opened(backend: Any, uid: str = "op") -> KeyedStateBackend:
    state: KeyedStateBackend = backend.open(
        uid=uid, key_groups=ALL, max_parallelism=128, key_type=int
    )
    return state


@contextmanager
def rocks(tmp_path: Any, **options: Any) -> Iterator[tuple[KeyedStateBackend, ValueState[Any]]]:
    """State in RocksDB with one value state, `v`, of bytes."""
    backend = RocksDBStateBackend(memory="16m", directories=[str(tmp_path)], **options)
    with opened(backend) as state:
        yield state, state.get_state(ValueStateDescriptor("v", bytes))


def fill(value: ValueState[Any], keys: range) -> None:
    value.put_many(keys, [VALUE] * len(keys))


def flush(state: KeyedStateBackend) -> None:
    state.snapshot(1, load_storage("memory").job("job")).result(30)


def compact(state: KeyedStateBackend, name: str) -> None:
    assert isinstance(state.store, ByteTableStore)
    assert isinstance(state.store._store, RocksStore)
    state.store._store._rocks.families[name].table.compact_range(None, None)


def told(state: KeyedStateBackend, name: str = "v") -> Mapping[str, float]:
    return state.metrics().states[name]


def test_rocksdb_reports_the_documented_metrics(tmp_path: Any) -> None:
    with rocks(tmp_path) as (state, _):
        state.timers("user")
        metrics = state.metrics()
        assert set(metrics.store) == documented("`store`")
        assert set(metrics.states) == {"v", "_timers/user/event", "_timers/user/processing"}
        for numbers in metrics.states.values():
            assert set(numbers) == documented("`states`")
    assert set(RocksDBStateBackend().metrics()) == documented("`backend`")


def test_counted_metrics_are_absent_without_statistics(tmp_path: Any) -> None:
    with rocks(tmp_path, statistics=False) as (state, value):
        fill(value, range(1_000))
        assert set(state.metrics().store) == documented("`store`") - COUNTED
        assert set(told(state)) == documented("`states`")


def test_sizes_are_in_buffers_first_and_then_in_files(tmp_path: Any) -> None:
    with rocks(tmp_path, options={"compression": "kNoCompression"}) as (state, value):
        empty = told(state)
        assert (empty["entries"], empty["files_bytes"], empty["runs"]) == (0, 0, 0)
        fill(value, range(10_000))
        buffered = told(state)
        assert buffered["entries"] == 10_000
        assert buffered["files_bytes"] == 0
        assert 1_000_000 < buffered["buffered_bytes"] < 3_000_000
        flush(state)
        in_files = told(state)
        assert in_files["entries"] == 10_000
        assert 1_000_000 < in_files["files_bytes"] < 2_000_000
        assert in_files["buffered_bytes"] < 10_000
        assert in_files["runs"] == 1


def test_compaction_debt_is_the_bytes_yet_to_be_merged(tmp_path: Any) -> None:
    with rocks(tmp_path, options={"compression": "kNoCompression"}) as (state, value):
        fill(value, range(10_000))
        flush(state)
        compact(state, "v")
        paid = told(state)
        assert (paid["runs"], paid["compaction_debt_bytes"]) == (1, 0)
        fill(value, range(0, 10_000, 10))
        flush(state)
        owed = told(state)
        assert owed["runs"] == 2
        assert 100_000 < owed["compaction_debt_bytes"] < 200_000
        assert owed["entries"] == 11_000, "what is overwritten counts until then"
        assert owed["pending_compaction_bytes"] == 0, "universal compaction has no such estimate"
        compact(state, "v")
        paid = told(state)
        assert (paid["runs"], paid["compaction_debt_bytes"]) == (1, 0)
        assert paid["entries"] == 10_000


def test_levels_have_rocksdbs_own_estimate(tmp_path: Any) -> None:
    options = {"level0_file_num_compaction_trigger": 2, "disable_auto_compactions": True}
    with rocks(tmp_path, predefined="flash-ssd", options=options) as (state, value):
        for number in range(4):
            fill(value, range(number, 10_000))
            flush(state)
        assert told(state)["runs"] == 4
        assert told(state)["pending_compaction_bytes"] > 0


def test_a_cache_is_missed_and_then_hit_and_not_by_compaction(tmp_path: Any) -> None:
    with rocks(tmp_path) as (state, value):
        fill(value, range(20_000))
        before = state.metrics().store
        assert before["cache_hit_ratio"] == 1
        flush(state)
        value.get_many(range(0, 20_000, 100))
        first = state.metrics().store
        assert first["cache_misses"] > 100
        value.get_many(range(0, 20_000, 100))
        second = state.metrics().store
        assert second["cache_misses"] == first["cache_misses"]
        assert second["cache_hits"] > first["cache_hits"] + 100
        looked = second["cache_hits"] + second["cache_misses"]
        assert second["cache_hit_ratio"] == second["cache_hits"] / looked
        fill(value, range(20_000))
        flush(state)
        compact(state, "v")
        assert state.metrics().store["cache_misses"] < second["cache_misses"] + 20
        assert state.metrics().store["background_errors"] == 0


def test_operators_of_a_slot_have_counts_of_their_own_and_memory_together(tmp_path: Any) -> None:
    backend = RocksDBStateBackend(memory="16m", directories=[str(tmp_path)])
    with opened(backend, "busy") as busy, opened(backend, "idle") as idle:
        for state in (busy, idle):
            fill(state.get_state(ValueStateDescriptor("v", bytes)), range(20_000))
            flush(state)
        before = idle.metrics().store
        busy.get_state(ValueStateDescriptor("v", bytes)).get_many(range(20_000))
        assert busy.metrics().store["cache_misses"] > 100
        assert idle.metrics().store == before
        numbers = backend.metrics()
        assert 1_000_000 < numbers["cache_bytes"] <= numbers["cache_limit_bytes"] < 2**24
        assert numbers["write_buffers_limit_bytes"] == pytest.approx(2**24 / 3, abs=1)
        fill(busy.get_state(ValueStateDescriptor("v", bytes)), range(10_000))
        assert backend.metrics()["write_buffers_bytes"] > numbers["write_buffers_bytes"] + 10**6


class SlowDisk:
    """A user of write buffers, the largest ones, whose flush takes a quarter of a second."""

    buffered_bytes = 2**40

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def flush(self) -> None:
        self.clock.advance(250)


def test_the_wait_for_write_buffers_is_measured(tmp_path: Any) -> None:
    clock = ManualClock()
    memory = SlotMemory(2**24, 0.5, clock)
    backend = RocksDBStateBackend(memory="16m", directories=[str(tmp_path)])
    vars(backend)["_slot_memory"] = memory
    with opened(backend) as state:
        waiting = state.get_state(ValueStateDescriptor("waiting", bytes))
        fill(state.get_state(ValueStateDescriptor("quick", bytes)), range(10))
        memory.buffers_of(SlowDisk(clock))
        memory.buffers_bytes = 1
        fill(waiting, range(10))
        state.set_current_key(1)
        waiting.update(VALUE)
        for numbers in (told(state, "waiting"), backend.metrics()):
            assert (numbers["room_waits"], numbers["room_waited_s"]) == (2, 0.5)
        assert told(state, "quick")["room_waits"] == 0


def test_writes_that_rocksdb_slows_down_are_counted_by_state(tmp_path: Any) -> None:
    options = {
        "level0_file_num_compaction_trigger": 2,
        "level0_slowdown_writes_trigger": 2,
        "level0_stop_writes_trigger": 100,
    }
    with rocks(tmp_path, options=options) as (state, value):
        quick = state.get_state(ValueStateDescriptor("quick", bytes))
        fill(quick, range(10))
        for number in range(4):
            fill(value, range(number, 10_000))
            flush(state)
        assert told(state)["slowdowns"] > 0
        assert told(state, "quick")["slowdowns"] == 0
        assert state.metrics().store["stalled_s"] >= 0


def test_metrics_follow_states_that_are_added_and_dropped(tmp_path: Any) -> None:
    backend = RocksDBStateBackend(memory="16m", directories=[str(tmp_path)])
    names = [f"state-{number}" for number in range(40)]
    with opened(backend) as state:
        for number, name in enumerate(names):
            fill(state.get_state(ValueStateDescriptor(name, bytes)), range(number))
        assert {name: told(state, name)["entries"] for name in names} == {
            name: number for number, name in enumerate(names)
        }
        spec = state._states["state-7"].spec
        state.store.drop_table(spec)
        assert set(state.metrics().states) == {*names} - {"state-7"}
    with pytest.raises(Invalid, match="closed"):
        state.metrics()
    assert backend.metrics()["write_buffers_bytes"] < 10**6


def test_metrics_are_reported_after_a_restore(tmp_path: Any) -> None:
    job = load_storage(f"file://{tmp_path}/checkpoints").job("job")
    with rocks(tmp_path) as (state, value):
        state.get_state(ValueStateDescriptor("other", bytes))
        fill(value, range(5_000))
        snapshot = state.snapshot(1, job).result(30)
    backend = RocksDBStateBackend(memory="16m", directories=[str(tmp_path)])
    restored = backend.open(
        uid="op", key_groups=ALL, max_parallelism=128, restore=[snapshot], storage=job
    )
    with restored as state:
        (name,) = [each for each in state.metrics().states if each.endswith("/v")]
        assert name.startswith("_restored/")
        assert told(state, name)["entries"] == 5_000
        state.get_state(ValueStateDescriptor("v", bytes)).get_many(range(5_000))
        assert told(state)["entries"] == 5_000
        assert name not in state.metrics().states
        assert state.metrics().store["cache_misses"] > 0


def test_the_hashmap_reports_its_number_of_entries() -> None:
    backend = HashMapStateBackend()
    with opened(backend) as state:
        fill(state.get_state(ValueStateDescriptor("v", bytes)), range(100))
        lists = state.get_state(ListStateDescriptor("l", int))
        maps = state.get_state(MapStateDescriptor("m", str, int))
        for key in range(3):
            state.set_current_key(key)
            lists.update([1, 2, 3])
            maps.put("a", 1)
            maps.put("b", 1)
        state.set_current_key(0)
        lists.clear()
        entries = {"v": 100, "l": 2, "m": 3}
        assert state.metrics() == StateMetrics(
            states={name: {"entries": number} for name, number in entries.items()}
        )
        flush(state)
        assert told(state)["entries"] == 100
    assert backend.metrics() == {}


def test_operator_state_reports_its_number_of_entries() -> None:
    with OperatorStateBackend.open(uid="op", slot=0, parallelism=1) as state:
        state.get_list_state(ListStateDescriptor("l", int)).update([1, 2, 3])
        state.get_broadcast_state(MapStateDescriptor("b", str, int)).put("a", 1)
        assert state.metrics().states == {"l": {"entries": 3}, "b": {"entries": 1}}
        assert set(state.metrics().states["l"]) == documented("`operator_states`")
    with pytest.raises(Invalid, match="closed"):
        state.metrics()
