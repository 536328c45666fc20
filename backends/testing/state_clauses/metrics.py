"""Clauses about metrics, which are optional: those that a backend has must be valid."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from holdfast.backends.keyed.backend import KeyedStateBackend
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.tables.metrics import StateMetrics
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.scenes import (
    ALL,
    STATES,
    churn,
    content,
    keyed,
    memory,
    slots,
    taken,
    timers_of,
)
from holdfast.storage import Invalid
from holdfast.storage.testing.checks import owed, require, same

__all__ = ["MetricsClauses"]

_KEYS = list(range(200))
_RESTORED = re.compile(r"_restored/\d+/")
_TIMERS = {"_timers/timers/event", "_timers/timers/processing"}


class MetricsClauses:
    """Clauses about `metrics` of a store and of a backend, if there are any."""

    def test_metrics_are_numbers_by_state(self, place: Place) -> None:
        """Sound ones, under the names that states were declared with, whatever became of them."""
        backend, job = place.open(), memory()
        snapshots = []
        with keyed(backend, key_type=int) as state:
            _check(state, set(), "before any state was asked for")
            for number in range(1, 4):
                churn(state, _KEYS, 400, number)
                state.set_current_key(1)
                state.timers("timers").register_event_time_timer(number)
                _check(state, {*STATES, *_TIMERS}, f"of state, {number}")
                snapshots.append(taken(state, job, number))
                _check(state, {*STATES, *_TIMERS}, f"after snapshot {number}")
        for key_groups in (ALL, *slots(2)):
            _check_restored(place, key_groups, snapshots[-1], job)
        _check_numbers(backend.metrics(), "metrics of the backend")

    def test_metrics_change_nothing(self, place: Place) -> None:
        """Reading them leaves state, the current key, snapshots and timers unchanged."""
        job = memory()
        with keyed(place.open(), key_type=int) as state:
            churn(state, _KEYS, 600)
            state.timers("timers").register_event_time_timer(7)
            before = content(state)
            for number in range(1, 4):
                state.set_current_key(_KEYS[number])
                state.metrics()
                same(state.key, _KEYS[number], "the current key, after metrics")
                same(content(state), before, "state, after metrics")
            snapshot = taken(state, job)
            same(len(timers_of(state)), 1, "timers, after metrics")
        with keyed(place.open(), snapshot, job=job) as state:
            same(content(state), before, "state of a snapshot after metrics")

    def test_a_closed_backend_has_no_metrics(self, place: Place) -> None:
        """Of keyed state that is closed there are none: Invalid, and nothing worse."""
        state = keyed(place.open(), key_type=int)
        churn(state, _KEYS, 100)
        state.close()
        with owed(Invalid, "metrics, after close"):
            state.metrics()


def _check_restored(place: Place, key_groups: KeyGroupRange, snapshot: Any, job: Any) -> None:
    """Undeclared state may have metrics, too, under a name that says that it was restored."""
    with keyed(place.open(), snapshot, job=job, key_groups=key_groups) as state:
        _check(state, {*STATES, *_TIMERS}, "of restored state")
        for descriptor in STATES.values():
            state.get_state(descriptor)
        state.timers("timers")
        _check(state, {*STATES, *_TIMERS}, "of restored state that was asked for")
        waiting = sorted(name for name in state.metrics().states if _RESTORED.match(name))
        require(not waiting, f"state that was asked for must not be told as {waiting}")


def _check(state: KeyedStateBackend, declared: set[str], what: str) -> None:
    told = state.metrics()
    require(isinstance(told, StateMetrics), f"metrics {what} must be StateMetrics")
    strange = sorted({_RESTORED.sub("", name) for name in told.states} - declared)
    require(not strange, f"metrics {what} must be by declared names, not {strange}")
    _check_numbers(told.store, f"metrics {what}")
    for name, numbers in told.states.items():
        _check_numbers(numbers, f"metrics {what}, of {name!r}")


def _check_numbers(numbers: Mapping[str, float], what: str) -> None:
    for name, number in numbers.items():
        require(type(name) is str and name, f"{what}: names must be text, not {name!r}")
        require(
            type(number) in (int, float) and math.isfinite(number) and number >= 0,
            f"{what}: {name} must be a finite number, not below 0, and is {number!r}",
        )
