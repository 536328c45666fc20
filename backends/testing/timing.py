"""Clauses about timers: a set in order of time, in every snapshot, moving with its keys."""

from __future__ import annotations

from holdfast.backends.tables import NO_NAMESPACE
from holdfast.backends.testing.place import Place, opened
from holdfast.backends.testing.samples import INT64_MAX, INT64_MIN, KEYS
from holdfast.backends.testing.scenes import (
    WAIT_S,
    Gate,
    keyed,
    keys_of,
    memory,
    slots,
    taken,
    timers_of,
)
from holdfast.backends.timers import Timer
from holdfast.storage.testing.checks import same

__all__ = ["TimerClauses"]


class TimerClauses:
    """What timers owe."""

    def test_a_timer_is_registered_once(self, place: Place) -> None:
        """However often; under another key, namespace, service or time it is another one."""
        with keyed(opened(place)) as state:
            timers = state.timers("a", namespace_type=str)
            others = state.timers("b", namespace_type=str)
            for _ in range(3):
                for key in ("ann", "bob"):
                    state.set_current_key(key)
                    for space in ("", "a", "a\0"):
                        timers.register_event_time_timer(5, space)
                        timers.register_processing_time_timer(6, space)
                others.register_event_time_timer(5, "a")
            expected = {(key, space) for key in ("ann", "bob") for space in ("", "a", "a\0")}
            event = [(timer.key, timer.namespace) for timer in timers.due_event_time(5)]
            processing = [(timer.key, timer.namespace) for timer in timers.due_processing_time(6)]
            for found in (event, processing):
                same((len(found), set(found)), (6, expected), "timers that fired")
            found_others = list(others.due_event_time(5))
            same(found_others, [Timer(5, "bob", "a")], "timers of another service")

    def test_a_deleted_timer_does_not_fire(self, place: Place) -> None:
        """Not now and not after a restore; to delete what is not there is to do nothing."""
        job = memory()
        with keyed(opened(place)) as state:
            timers = state.timers("timers")
            state.set_current_key(1)
            for moment in (1, 2, 3):
                timers.register_event_time_timer(moment)
            for moment in (2, 4, 2):
                timers.delete_event_time_timer(moment)
            timers.delete_processing_time_timer(1)
            snapshot = taken(state, job)
            same(
                timers_of(state),
                [(1, 1, NO_NAMESPACE), (3, 1, NO_NAMESPACE)],
                "timers after a deletion",
            )
        with keyed(opened(place), snapshot, job=job) as state:
            same(
                timers_of(state),
                [(1, 1, NO_NAMESPACE), (3, 1, NO_NAMESPACE)],
                "and after a restore",
            )

    def test_timers_fire_in_order_of_time(self, place: Place) -> None:
        """Each once, up to the time that is asked for, from the ends of 64 bits."""
        moments = [5, INT64_MAX, -1, 0, INT64_MIN, 300, 255, 256, 5 * 10**12]
        with keyed(opened(place)) as state:
            timers = state.timers("timers")
            for number, moment in enumerate(moments):
                state.set_current_key(number)
                timers.register_event_time_timer(moment)
            for until in (-1, 255, INT64_MAX, INT64_MAX):
                expected = sorted(moment for moment in moments if moment <= until)
                same(timers.next_event_time(), min(moments, default=None), "the next timer")
                found = [timer.timestamp for timer in timers.due_event_time(until)]
                same(found, expected, f"timers up to {until}")
                moments = [moment for moment in moments if moment > until]

    def test_a_timer_may_register_others(self, place: Place) -> None:
        """While timers fire; those that are due by then fire too, in order of time."""
        with keyed(opened(place)) as state:
            timers = state.timers("timers")
            state.set_current_key(1)
            timers.register_event_time_timer(1)
            fired = []
            for timer in timers.due_event_time(5):
                fired.append(timer.timestamp)
                state.set_current_key(timer.key)
                timers.register_event_time_timer(timer.timestamp + 1)
                timers.register_event_time_timer(timer.timestamp + 100)
            same(fired, [1, 2, 3, 4, 5], "timers that were registered by timers")
            same(timers.next_event_time(), 6, "the next one")

    def test_timers_are_in_snapshots(self, place: Place) -> None:
        """As they were at the barrier, whatever fires or comes after it."""
        job = memory()
        for name, sample in KEYS.items():
            with keyed(opened(place), key_type=sample.annotation) as state, Gate(job) as gate:
                timers = state.timers("timers")
                for number, key in enumerate(sample.instances):
                    state.set_current_key(key)
                    timers.register_event_time_timer(number % 3)
                list(timers.due_event_time(0))
                future = state.snapshot(1, gate)
                timers.register_event_time_timer(100)
                expected = timers_of(state)[:-1]
                gate.open.set()
                snapshot = future.result(WAIT_S)
            with keyed(opened(place), snapshot, job=job, key_type=sample.annotation) as state:
                found = timers_of(state)
                same(sorted(found, key=repr), sorted(expected, key=repr), f"timers, {name} keys")
                same([timer[0] for timer in found], [timer[0] for timer in expected], "their order")

    def test_timers_move_with_their_keys(self, place: Place) -> None:
        """When key groups are spread anew, each slot has just the timers of its keys."""
        job, keys = memory(), list(range(200))
        snapshots = []
        for key_groups in slots(2):
            with keyed(opened(place), key_groups=key_groups, key_type=int) as state:
                timers = state.timers("timers")
                for key in keys_of(state, keys):
                    state.set_current_key(key)
                    timers.register_event_time_timer(key % 7)
                snapshots.append(taken(state, job))
        fired = []
        for key_groups in slots(3):
            with keyed(opened(place), *snapshots, job=job, key_groups=key_groups) as state:
                mine = timers_of(state)
                owned = keys_of(state, keys)
                same(sorted(key for _, key, _ in mine), owned, "keys with timers in a slot")
                fired += mine
        same(
            sorted(each[:2] for each in fired),
            sorted((key % 7, key) for key in keys),
            "timers of all slots",
        )
