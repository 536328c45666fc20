"""Clauses about timers: a set in order of time, in every snapshot, moving with its keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.backends.tables.contract import NO_NAMESPACE
from holdfast.backends.tables.timer_queues import Timer
from holdfast.backends.testing.gates import WAIT_S, Gate
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import INT64_MAX, INT64_MIN, KEYS
from holdfast.backends.testing.scenes import keyed, keys_of, memory, slots, taken, timers_of
from holdfast.storage import StateSnapshot
from holdfast.storage.testing.checks import same

__all__ = ["TimerClauses", "TimerCrowdClauses"]


class TimerClauses:
    """Clauses about timers."""

    def test_a_timer_is_registered_once(self, place: Place) -> None:
        """However often; under another key, namespace, service or time it is another one."""
        with keyed(place.open()) as state:
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
        with keyed(place.open()) as state:
            timers = state.timers("timers")
            state.set_current_key(1)
            for moment in (1, 2, 3):
                timers.register_event_time_timer(moment)
            for moment in (2, 4, 2):
                timers.delete_event_time_timer(moment)
            timers.delete_processing_time_timer(1)
            snapshot = taken(state, job)
            expected = [(1, 1, NO_NAMESPACE), (3, 1, NO_NAMESPACE)]
            same(timers_of(state), expected, "timers after a deletion")
        with keyed(place.open(), snapshot, job=job) as state:
            same(timers_of(state), expected, "and after a restore")

    def test_timers_fire_in_order_of_time(self, place: Place) -> None:
        """Each once, up to the time that is asked for, from the ends of 64 bits."""
        moments = [5, INT64_MAX, -1, 0, INT64_MIN, 300, 255, 256, 5 * 10**12]
        with keyed(place.open()) as state:
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
        with keyed(place.open()) as state:
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
            with keyed(place.open(), key_type=sample.annotation) as state, Gate(job) as gate:
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
            with keyed(place.open(), snapshot, job=job, key_type=sample.annotation) as state:
                found = timers_of(state)
                same(sorted(found, key=repr), sorted(expected, key=repr), f"timers, {name} keys")
                same([timer[0] for timer in found], [timer[0] for timer in expected], "their order")

    def test_timers_move_with_their_keys(self, place: Place) -> None:
        """When key groups are spread anew, each slot has just the timers of its keys."""
        job, keys = memory(), list(range(200))
        snapshots = []
        for key_groups in slots(2):
            with keyed(place.open(), key_groups=key_groups, key_type=int) as state:
                timers = state.timers("timers")
                for key in keys_of(state, keys):
                    state.set_current_key(key)
                    timers.register_event_time_timer(key % 7)
                snapshots.append(taken(state, job))
        fired = []
        for key_groups in slots(3):
            with keyed(place.open(), *snapshots, job=job, key_groups=key_groups) as state:
                mine = timers_of(state)
                owned = keys_of(state, keys)
                same(sorted(key for _, key, _ in mine), owned, "keys with timers in a slot")
                fired += mine
        same(
            sorted(each[:2] for each in fired),
            sorted((key % 7, key) for key in keys),
            "timers of all slots",
        )


_CROWD = 3001
"""A prime number of timers: more than a store keeps of one key in memory, if it keeps some."""


class TimerCrowdClauses:
    """Clauses about many timers, which a store need not keep in memory."""

    def test_thousands_of_timers_fire_in_order(self, place: Place) -> None:
        """Each once, in whatever order they were registered, and however far each step goes."""
        with keyed(place.open()) as state:
            timers = state.timers("timers")
            state.set_current_key("ann")
            moments = [INT64_MIN, *_scattered(-1000), INT64_MAX]
            for moment in moments:
                timers.register_event_time_timer(moment)
            found: list[int] = []
            for until in (INT64_MIN, -999, 500, 1999, INT64_MAX - 1, INT64_MAX):
                found += _moments(timers.due_event_time(until))
                expected = sorted(moment for moment in moments if moment <= until)
                same(found, expected, f"timers up to {until}")

    def test_timers_of_thousands_of_keys_fire_in_order(self, place: Place) -> None:
        """Also where many keys have one at the same time."""
        with keyed(place.open()) as state:
            timers = state.timers("timers", namespace_type=str)
            expected = set()
            for key in _scattered(0):
                state.set_current_key(key)
                for space in ("", "a"):
                    timers.register_event_time_timer(key % 7, space)
                    expected.add((key % 7, key, space))
            fired = [
                (timer.timestamp, timer.key, timer.namespace) for timer in timers.due_event_time(6)
            ]
            same((len(fired), set(fired)), (2 * _CROWD, expected), "timers of many keys")
            same([each[0] for each in fired], sorted(each[0] for each in fired), "their order")

    def test_an_earlier_timer_comes_first(self, place: Place) -> None:
        """Before thousands of any key, or between two of them, before and after some fired."""
        with keyed(place.open()) as state:
            timers = state.timers("timers")
            moments = {10 * moment for moment in _scattered(1)}
            for moment in moments:
                state.set_current_key(moment % 7)
                timers.register_event_time_timer(moment)
            for fired in (0, 20, 13_000):
                due = _moments(timers.due_event_time(fired))
                same(due, _up_to(moments, fired), "timers due")
                moments.difference_update(due)
                for moment in (fired + 15, fired + 5000, fired + 4, fired + 5, fired + 3):
                    state.set_current_key(moment % 7)
                    timers.register_event_time_timer(moment)
                    moments.add(moment)
                    same(timers.next_event_time(), min(moments), "the next timer")
            same(_moments(timers.due_event_time(10**6)), sorted(moments), "timers in the end")

    def test_timers_among_thousands_are_deleted(self, place: Place) -> None:
        """The first, the last, those between; all of them; and one that is registered again."""
        with keyed(place.open()) as state:
            timers = state.timers("timers")
            state.set_current_key("ann")
            for moment in _scattered(0):
                timers.register_event_time_timer(moment)
            same(timers.next_event_time(), 0, "the next timer")
            left = set(range(_CROWD))
            for moment in (0, 1, _CROWD - 1, *range(2, _CROWD, 3), 0, _CROWD):
                timers.delete_event_time_timer(moment)
                left.discard(moment)
            for moment in (1, 5, 2000, _CROWD - 1):
                timers.register_event_time_timer(moment)
                timers.delete_event_time_timer(moment)
                timers.register_event_time_timer(moment)
                left.add(moment)
            same(timers.next_event_time(), 1, "the next timer, after many were deleted")
            due = _moments(timers.due_event_time(1500))
            same(due, _up_to(left, 1500), "timers that were not deleted")
            for moment in left:
                timers.delete_event_time_timer(moment)
            same(timers.next_event_time(), None, "the next timer, after all were deleted")
            same(_moments(timers.due_event_time(_CROWD)), [], "timers, after all were deleted")

    def test_thousands_of_timers_change_while_they_fire(self, place: Place) -> None:
        """What is registered and deleted between two of them counts from then on."""
        with keyed(place.open()) as state:
            timers = state.timers("timers")
            state.set_current_key("ann")
            left = {3 * moment for moment in range(_CROWD)}
            for moment in left:
                timers.register_event_time_timer(moment)
            last = 2 * _CROWD
            for fired, timer in enumerate(timers.due_event_time(last), 1):
                expected = min(left)
                same(timer.timestamp, expected, f"timer {fired} of many that fire and change")
                left.remove(expected)
                for moment in (expected + 3, expected + 900, last + 3):
                    if fired % 5 == 1 and moment in left:
                        timers.delete_event_time_timer(moment)
                        left.remove(moment)
                for moment in (expected - 1, expected, expected + 1, expected + 901, last + 1):
                    if fired % 7 == 1 and fired < _CROWD:
                        timers.register_event_time_timer(moment)
                        left.add(moment)
            same(_up_to(left, last), [], "timers that are due and have not fired")
            same(_moments(timers.due_event_time(10**6)), sorted(left), "timers that are left")

    def test_a_snapshot_may_be_taken_while_timers_fire(self, place: Place) -> None:
        """It has those that have not fired yet, and what was registered and deleted by then."""
        job = memory()
        with keyed(place.open()) as state:
            timers = state.timers("timers")
            state.set_current_key("ann")
            left = set(range(_CROWD))
            for moment in left:
                timers.register_event_time_timer(moment)
            snapshots = []
            for number, timer in enumerate(timers.due_event_time(_CROWD), 1):
                left.remove(timer.timestamp)
                if number in (1, 300, 2500):
                    for moment in (timer.timestamp - 1, _CROWD + number):
                        timers.register_event_time_timer(moment)
                        left.add(moment)
                    timers.delete_event_time_timer(timer.timestamp + 1)
                    left.remove(timer.timestamp + 1)
                    snapshots.append((sorted(left), taken(state, job, number)))
        for expected, snapshot in snapshots:
            with keyed(place.open(), snapshot, job=job) as state:
                found = [timer[0] for timer in timers_of(state)]
                same(found, expected, "timers of a snapshot from between two that fired")

    def test_thousands_of_timers_move_with_their_keys(self, place: Place) -> None:
        """To more slots and to fewer, in whatever state they were left."""
        job, keys = memory(), list(range(300))
        expected = {(key * 7 % 50 + 50 * round_, key) for key in keys for round_ in range(10)}
        snapshots: list[StateSnapshot] = []
        for number, parallelism in enumerate((2, 3, 1), 1):
            parts, fired = [], set()
            for key_groups in slots(parallelism):
                with keyed(
                    place.open(), *snapshots, job=job, key_groups=key_groups, key_type=int
                ) as state:
                    timers = state.timers("timers")
                    if not snapshots:
                        for moment, key in expected:
                            if keys_of(state, [key]):
                                timers.register_event_time_timer(moment)
                    due = [(each.timestamp, each.key) for each in timers.due_event_time(number * 9)]
                    same(due, sorted(due, key=lambda each: each[0]), "their order")
                    fired.update(due)
                    parts.append(taken(state, job, number))
            due_now = {timer for timer in expected if timer[0] <= number * 9}
            same(fired, due_now, f"timers due in {parallelism} slots")
            expected -= due_now
            snapshots = parts
        with keyed(place.open(), *snapshots, job=job) as state:
            found = [timer[:2] for timer in timers_of(state)]
            same((len(found), set(found)), (len(expected), expected), "timers that are left")


def _scattered(first: int) -> list[int]:
    """As many moments as make a crowd, from `first` on, out of order."""
    return [first + number * 1297 % _CROWD for number in range(_CROWD)]


def _moments(due: Iterable[Timer]) -> list[int]:
    return [timer.timestamp for timer in due]


def _up_to(moments: Collection[int], until: int) -> list[int]:
    """The moments up to one, in order."""
    return sorted(moment for moment in moments if moment <= until)
