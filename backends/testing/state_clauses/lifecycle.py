"""Clauses about a backend as a whole: light, isolated, closed for good, leaving nothing behind."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.backends.interface import BackendCapabilities, StateBackend
from holdfast.backends.keyed.backend import KeyedStateBackend
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from holdfast.backends.testing.gates import WAIT_S, Gate
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.scenes import (
    ALL,
    MAX_PARALLELISM,
    UID,
    churn,
    content,
    elsewhere,
    keyed,
    keys_of,
    memory,
    owners_of,
    slots,
    taken,
)
from holdfast.storage import Invalid, Unavailable
from holdfast.storage.testing.checks import owed, require, same

__all__ = ["LifecycleClauses"]

_LIGHT_BYTES = 64 * 1024
_KEYS = list(range(100))
_TOTAL = ValueStateDescriptor("total", int)


class LifecycleClauses:
    """Clauses about opening, pickling, sharing, closing and misusing a backend."""

    def test_a_backend_is_light(self, place: Place) -> None:
        """It goes to every slot by pickle: settings only, however much state it has made."""
        backend = place.open()
        require(isinstance(backend, StateBackend), "a backend is a StateBackend")
        with keyed(backend) as state:
            state.set_current_key(1)
            state.get_state(ValueStateDescriptor("v", bytes)).update(bytes(2 * _LIGHT_BYTES))
            pickled = pickle.dumps(backend)
            require(
                len(pickled) <= _LIGHT_BYTES,
                f"a pickled backend must be light: at most {_LIGHT_BYTES} bytes, not "
                f"{len(pickled)}",
            )
            copy = pickle.loads(pickled)
            same(type(copy), type(backend), "the type of a pickled backend")
            same(copy.capabilities, backend.capabilities, "its capabilities")
            with keyed(copy) as other:
                churn(other, _KEYS, 100)
                require(content(other), "state of a pickled backend")

    def test_a_backend_says_what_it_is(self, place: Place) -> None:
        """Its capabilities are there before anything else, and stay what they are."""
        backend = place.open()
        before = backend.capabilities
        require(isinstance(before, BackendCapabilities), "capabilities are BackendCapabilities")
        with keyed(backend) as state:
            same((state.uid, state.key_groups), (UID, ALL), "what keyed state says of itself")
            same(backend.capabilities, before, "capabilities while a store is open")
        same(backend.capabilities, before, "capabilities after it was closed")

    def test_state_is_apart(self, place: Place) -> None:
        """Of operators, of slots, of two attempts of one slot: opened side by side."""
        backend = place.open()
        left, right = slots(2)
        scenes = {
            "one operator's left half": (UID, left),
            "its right half": (UID, right),
            "another attempt of the left half": (UID, left),
            "another operator": (f"{UID}/2", ALL),
            "an operator of an odd name": ("../ü 部\n" + "n" * 300, ALL),
            "an operator without a name": ("", ALL),
        }
        every: dict[str, KeyedStateBackend] = {}
        try:
            for what, (uid, key_groups) in scenes.items():
                every[what] = keyed(backend, uid=uid, key_groups=key_groups, key_type=int)
            expected = {}
            for what, state in every.items():
                churn(state, keys_of(state, _KEYS), 300, what)
                owners = owners_of(state)
                same(keys_of(state, owners), owners, f"keys of {what}")
                expected[what] = content(state)
            for what in list(every)[::2]:
                every.pop(what).close()
            for what, state in every.items():
                same(content(state), expected[what], f"state of {what}")
        finally:
            for state in every.values():
                state.close()

    def test_a_reopened_store_begins_empty(self, place: Place) -> None:
        """The same operator, opened again, begins empty: only a snapshot brings state back."""
        backend = place.open()
        for _ in range(2):
            with keyed(backend) as state:
                same(content(state), {}, "state of an operator that was opened again")
                churn(state, _KEYS, 200)

    def test_a_closed_backend_is_invalid(self, place: Place) -> None:
        """Whatever is called; closing it once more does nothing."""
        job = memory()
        state = keyed(place.open())
        total = state.get_state(_TOTAL)
        seen = state.get_state(ListStateDescriptor("seen", int))
        timers = state.timers("timers")
        state.set_current_key(1)
        total.update(1)
        state.close()
        state.close()
        for what, call in _uses(state, total, seen, timers, job).items():
            with owed(Invalid, f"{what}, after close"):
                call()

    def test_a_second_thread_is_invalid(self, place: Place) -> None:
        """It would read and write under the other's key; closing alone is any thread's."""
        job = memory()
        with keyed(place.open()) as state:
            total = state.get_state(_TOTAL)
            state.set_current_key(1)
            total.update(1)
            for what, call in {
                "set_current_key": lambda: state.set_current_key(2),
                "get_state": lambda: state.get_state(ValueStateDescriptor("other", int)),
                "timers": lambda: state.timers("timers"),
                "get_many": lambda: total.get_many([1]),
                "put_many": lambda: total.put_many([1], [2]),
                "keys": lambda: list(state.keys("total")),
                "snapshot": lambda: state.snapshot(1, job),
            }.items():
                found = elsewhere(call)
                require(isinstance(found, Invalid), f"{what} in a second thread must be Invalid")
            same((total.value(), list(state.keys("total"))), (1, [1]), "state after that")
            elsewhere(state.close)
            with owed(Invalid, "use after another thread has closed"):
                total.get_many([1])

    def test_closing_cancels_running_snapshots(self, place: Place) -> None:
        """Snapshots that are written or wait; then nothing is touched any more."""
        with Gate(memory()) as gate:
            state = keyed(place.open())
            churn(state, _KEYS, 200)
            futures = [state.snapshot(number, gate) for number in range(3)]
            require(gate.entered.wait(WAIT_S), "a snapshot must be written in the background")
            futures[-1].add_done_callback(lambda _: gate.open.set())
            state.close()
            require(all(future.done() for future in futures), "snapshots must be given up")

    def test_closing_may_come_at_any_time(self, place: Place) -> None:
        """Right after opening, in the middle of a walk, after a failure, with frozen tables."""
        backend = place.open()
        keyed(backend).close()
        state = keyed(backend)
        churn(state, _KEYS, 200)
        walk = state.keys("value")
        next(walk)
        taken(state, memory())
        state.close()
        with owed(Invalid, "an operator whose key groups do not fit"):
            keyed(backend, max_parallelism=MAX_PARALLELISM // 2)
        with keyed(backend) as state:
            churn(state, _KEYS, 50)
            require(content(state), "state after others were closed")

    def test_invalid_settings_are_refused(self, place: Place) -> None:
        """Key groups past the max parallelism, a type that no key can have."""
        settings: dict[str, dict[str, Any]] = {
            "key groups past the max parallelism": {"key_groups": KeyGroupRange(0, 128)},
            "no max parallelism": {"max_parallelism": 0, "key_groups": KeyGroupRange.empty()},
            "keys that are lists": {"key_type": list[int]},
        }
        for what, options in settings.items():
            with owed(Invalid, f"opening with {what}"):
                keyed(place.open(), **options).close()

    def test_only_holdfast_errors_are_raised(self, place: Place) -> None:
        """Whatever fails below, opening raises Unavailable or Invalid, and names the place."""
        if place.unusable is None:
            pytest.skip("the place offers no backend that cannot work")
        backend = place.unusable()
        try:
            state = keyed(backend)
        except (Unavailable, Invalid) as error:
            require(str(error).strip(), "the error must say what is wrong")
        except Exception as error:
            raise AssertionError(
                f"opening what cannot work: Unavailable or Invalid is owed, raised was {error!r}"
            ) from error
        else:
            state.close()
            raise AssertionError("opening what cannot work must raise, not wait for the first use")


def _uses(
    state: KeyedStateBackend, total: Any, seen: Any, timers: Any, job: Any
) -> dict[str, Callable[[], object]]:
    return {
        "set_current_key": lambda: state.set_current_key(1),
        "get_state": lambda: state.get_state(_TOTAL),
        "keys": lambda: list(state.keys("total")),
        "snapshot": lambda: state.snapshot(1, job),
        "value": total.value,
        "update": lambda: total.update(2),
        "get_many": lambda: total.get_many([1]),
        "put_many": lambda: total.put_many([1], [2]),
        "add to a list": lambda: seen.add(1),
        "get of a list": seen.get,
        "register a timer": lambda: timers.register_event_time_timer(1),
        "notify": lambda: state.notify_checkpoint_complete(1),
    }
