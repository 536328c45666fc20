"""Clauses about time to live, by a clock that the test moves."""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import Any

from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.backends.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    StateVisibility,
    TtlUpdateType,
    ValueStateDescriptor,
)
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.scenes import keyed, memory, of_each_kind, taken
from holdfast.storage import ManualClock
from holdfast.storage.testing.checks import same

__all__ = ["TimeToLiveClauses"]

_START_MS = 1_000_000
_TTL_MS = 1000


class TimeToLiveClauses:
    """Clauses about state with a time to live of one second."""

    def test_a_value_lives_from_its_last_write(self, place: Place) -> None:
        """Up to its time and not a millisecond longer, by the row and by the batch."""
        clock = ManualClock(_START_MS)
        with keyed(place.open(), clock=clock) as state:
            value = state.get_state(_value())
            state.set_current_key(1)
            value.update(5)
            clock.advance(_TTL_MS - 1)
            found = (value.value(), value.get_many([1]).to_pylist())
            same(found, (5, [5]), "a value just before its time")
            value.update(6)
            clock.advance(_TTL_MS - 1)
            same(value.value(), 6, "a value that was written again")
            value.put_many([1, 2], [7, 8])
            clock.advance(_TTL_MS - 1)
            same(value.get_many([1, 2]).to_pylist(), [7, 8], "values written by the batch")
            clock.advance(1)
            same(value.get_many([1, 2]).to_pylist(), [None, None], "values at their time")
            same((value.value(), list(state.keys("v"))), (None, []), "what is left of them")

    def test_reading_renews_where_it_should(self, place: Place) -> None:
        """With ON_READ_AND_WRITE what is read goes on living, and what is not read dies."""
        clock = ManualClock(_START_MS)
        renewing = _config(update_type=TtlUpdateType.ON_READ_AND_WRITE)
        with keyed(place.open(), clock=clock) as state:
            value, seen, entries = of_each_kind(state, int, ttl=renewing)
            state.set_current_key(1)
            value.put_many([1, 2, 3], [1, 2, 3])
            seen.add(2)
            entries.put_all({"a": 3, "b": 4})
            for _ in range(5):
                clock.advance(_TTL_MS - 1)
                found = (value.value(), seen.get(), entries.get("a"))
                same(found, (1, [2], 3), "what is read again and again")
                same(value.get_many([2]).to_pylist(), [2], "what is read by the batch")
            same(
                (entries.contains("b"), value.get_many([3]).to_pylist()),
                (False, [None]),
                "the rest",
            )
            clock.advance(_TTL_MS)
            found = (value.value(), seen.get(), list(entries.items()))
            same(found, (None, [], []), "what was not read for its time")

    def test_reading_renews_nothing_else(self, place: Place) -> None:
        """With ON_CREATE_AND_WRITE reading does not count as use."""
        clock = ManualClock(_START_MS)
        with keyed(place.open(), clock=clock) as state:
            value, seen, entries = of_each_kind(state, int, ttl=_config())
            state.set_current_key(1)
            value.update(1)
            seen.add(2)
            entries.put("a", 3)
            clock.advance(_TTL_MS - 1)
            same((value.value(), seen.get(), entries.get("a")), (1, [2], 3), "just before")
            clock.advance(1)
            found = (value.value(), seen.get(), entries.get("a"), entries.contains("a"))
            same(found, (None, [], None, False), "what was read just before its time")

    def test_an_expired_value_may_be_returned_once(self, place: Place) -> None:
        """Where the visibility says so, until the reading that finds it has removed it."""
        clock = ManualClock(_START_MS)
        shown = _config(visibility=StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
        with keyed(place.open(), clock=clock) as state:
            value, seen, entries = of_each_kind(state, int, ttl=shown)
            state.set_current_key(1)
            value.put_many([1, 2], [1, 2])
            seen.add(3)
            entries.put("a", 4)
            clock.advance(5 * _TTL_MS)
            once: list[Any] = [(1, [2], [3], 4), (None, [None], [], None)]
            for expected in once:
                found = (
                    value.value(),
                    value.get_many([2]).to_pylist(),
                    seen.get(),
                    entries.get("a"),
                )
                same(found, expected, "what is past its time")

    def test_elements_and_entries_expire_one_by_one(self, place: Place) -> None:
        """Each from its own last write; with the last of them the list or map is gone."""
        clock = ManualClock(_START_MS)
        with keyed(place.open(), clock=clock) as state:
            seen = state.get_state(ListStateDescriptor("l", str, ttl=_config()))
            entries = state.get_state(MapStateDescriptor("m", str, int, ttl=_config()))
            state.set_current_key(1)
            for name in "abc":
                seen.add(name)
                entries.put(name, None)
                clock.advance(400)
            for left in (["b", "c"], ["c"]):
                found = (seen.get(), sorted(entries.keys()))
                same(found, (left, left), "elements and entries that still live")
                clock.advance(400)
            same((seen.get(), entries.is_empty()), ([], True), "when all are past their time")
            same((list(state.keys("l")), list(state.keys("m"))), ([], []), "their keys")

    def test_nothing_is_added_to_an_expired_value(self, place: Place) -> None:
        """A sum begins anew when its time has passed; a merge leaves out what is past it."""
        clock = ManualClock(_START_MS)
        summed = ReducingStateDescriptor("s", operator.add, int, ttl=_config())
        with keyed(place.open(), clock=clock) as state:
            total = state.get_state(summed, namespace_type=int)
            state.set_current_key(1)
            total.set_current_namespace(1)
            total.add(1)
            clock.advance(_TTL_MS)
            total.add(2)
            same(total.get(), 2, "a sum after its time had passed")
            total.set_current_namespace(2)
            total.add(4)
            clock.advance(_TTL_MS)
            total.set_current_namespace(3)
            total.add(8)
            total.merge_namespaces(3, [1, 2])
            same(total.get(), 8, "a merge with what is past its time")

    def test_a_huge_time_to_live_never_ends(self, place: Place) -> None:
        """It overflows nowhere: not in memory, not in a snapshot, not before 1970."""
        job = memory()
        forever = _value(_config(ttl=timedelta.max))
        for start_ms in (-(2**62), 0, _START_MS, 2**62):
            clock = ManualClock(start_ms)
            with keyed(place.open(), clock=clock) as state:
                state.set_current_key(1)
                state.get_state(forever).update(1)
                snapshot = taken(state, job)
            with keyed(place.open(), snapshot, job=job, clock=clock) as state:
                clock.advance(10**15)
                value = state.get_state(forever)
                state.set_current_key(1)
                same(value.value(), 1, f"a value for ever, from {start_ms} on")

    def test_accesses_clean_up_expired_entries_that_are_not_read(self, place: Place) -> None:
        """With each access to a state some entries of it are looked at, round and round."""
        clock = ManualClock(_START_MS)
        config = _config(cleanup_entries=5)
        with keyed(place.open(), clock=clock) as state:
            value, seen, entries = of_each_kind(state, int, ttl=config)
            for key in range(100):
                state.set_current_key(key)
                value.update(1)
                seen.add(1)
                entries.put("a", 1)
            clock.advance(2 * _TTL_MS)
            state.set_current_key(-1)
            value.update(1)
            for _ in range(100):
                value.value()
                seen.get()
                entries.get("a")
            left = [list(state.keys(name)) for name in "vlm"]
            same(left, [[-1], [], []], "keys after a hundred accesses to other keys")

    def test_a_clean_up_keeps_live_entries(self, place: Place) -> None:
        """However often it comes by; of a list or map it takes just what is past its time."""
        clock = ManualClock(_START_MS)
        config = _config(cleanup_entries=50)
        with keyed(place.open(), clock=clock) as state:
            seen = state.get_state(ListStateDescriptor("l", int, ttl=config))
            entries = state.get_state(MapStateDescriptor("m", int, int, ttl=config))
            for number in range(2):
                for key in range(20):
                    state.set_current_key(key)
                    seen.add(number)
                    entries.put(number, number)
                clock.advance(_TTL_MS // 2)
            state.set_current_key(-1)
            for _ in range(10):
                seen.get()
                entries.get(0)
            clock.advance(-_TTL_MS)
            for key in range(20):
                state.set_current_key(key)
                found = (seen.get(), dict(entries.items()))
                same(found, ([1], {1: 1}), "what a clean-up left, seen by an earlier clock")

    def test_snapshots_leave_out_expired_entries(self, place: Place) -> None:
        """Neutral ones, where the configuration says so; without time to live all is shown."""
        job = memory()
        for cleans, expected in ((True, [2]), (False, [1, 2])):
            clock = ManualClock(_START_MS)
            config = _config(cleanup_in_snapshot=cleans)
            with keyed(place.open(), clock=clock) as state:
                value = state.get_state(_value(config))
                seen = state.get_state(ListStateDescriptor("l", int, ttl=config))
                state.set_current_key(1)
                for number in (1, 2):
                    value.put_many([number], [number])
                    seen.add(number)
                    clock.advance(_TTL_MS - 1)
                snapshot = taken(state, job, form=SnapshotForm.NEUTRAL)
            with keyed(place.open(), snapshot, job=job, clock=clock) as state:
                state.get_state(ValueStateDescriptor("v", int))
                same(sorted(state.keys("v")), expected, "keys after the restore")
                state.set_current_key(1)
                found = state.get_state(ListStateDescriptor("l", int)).get()
                same(found, expected, "elements after the restore")

    def test_time_goes_on_over_a_restore(self, place: Place) -> None:
        """What was written before a snapshot expires when it would have without one."""
        job, clock = memory(), ManualClock(_START_MS)
        with keyed(place.open(), clock=clock) as state:
            state.set_current_key(1)
            state.get_state(_value()).update(1)
            clock.advance(600)
            state.get_state(MapStateDescriptor("m", str, int, ttl=_config())).put("a", None)
            snapshot = taken(state, job)
        clock.advance(399)
        with keyed(place.open(), snapshot, job=job, clock=clock) as state:
            value = state.get_state(_value())
            entries = state.get_state(MapStateDescriptor("m", str, int, ttl=_config()))
            state.set_current_key(1)
            same((value.value(), entries.contains("a")), (1, True), "just before their time")
            clock.advance(1)
            same((value.value(), entries.contains("a")), (None, True), "when one is past it")
            clock.advance(600)
            same(entries.contains("a"), False, "when both are past it")

    def test_time_to_live_may_be_added_and_removed(self, place: Place) -> None:
        """With a restore: what had none lives anew from there; what had it is there for ever."""
        job, clock = memory(), ManualClock(_START_MS)
        mortal, immortal = _value(), ValueStateDescriptor("v", int)
        with keyed(place.open(), clock=clock) as state:
            state.set_current_key(1)
            state.get_state(immortal).update(1)
            without = taken(state, job, 1)
        clock.advance(100 * _TTL_MS)
        with keyed(place.open(), without, job=job, clock=clock) as state:
            value = state.get_state(mortal)
            state.set_current_key(1)
            clock.advance(_TTL_MS - 1)
            same(value.value(), 1, "a value that is mortal since the restore")
            with_it = taken(state, job, 2)
            clock.advance(1)
            same(value.value(), None, "the same at its time")
        with keyed(place.open(), with_it, job=job, clock=clock) as state:
            clock.advance(100 * _TTL_MS)
            value = state.get_state(immortal)
            state.set_current_key(1)
            same(value.value(), 1, "a value that is immortal since the restore")


def _config(**options: Any) -> StateTtlConfig:
    return StateTtlConfig(
        **{"ttl": timedelta(milliseconds=_TTL_MS), "cleanup_entries": 0, **options}
    )


def _value(config: StateTtlConfig | None = None) -> ValueStateDescriptor:
    return ValueStateDescriptor("v", int, ttl=config or _config())
