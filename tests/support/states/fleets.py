"""Slots of an operator that have state of every kind, for tests that move all of it."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.backends import (
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    SnapshotForm,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.storage import Invalid, JobStorage, StateSnapshot

__all__ = ["KEYS", "STATES", "WAIT_S", "Fleet", "Opener", "change", "content", "fill", "states_of"]

WAIT_S = 60
TTL = StateTtlConfig(ttl=timedelta(seconds=10))
KEYS = [f"key {number}" for number in range(60)]
STATES = {
    "value": ValueStateDescriptor("value", int),
    "list": ListStateDescriptor("list", tuple[int, str]),
    "map": MapStateDescriptor("map", str, float),
    "sum": ReducingStateDescriptor("sum", operator.add, int),
    "records": ValueStateDescriptor("records", list[dict[str, int]]),
    "dies": ValueStateDescriptor("dies", str, ttl=TTL),
    "dying list": ListStateDescriptor("dying list", int, ttl=TTL),
    "windows": ValueStateDescriptor("windows", int),
}


def states_of(state: KeyedStateBackend) -> dict[str, Any]:
    return {
        name: state.get_state(each, namespace_type=int if name == "windows" else None)
        for name, each in STATES.items()
    }


def change(state: KeyedStateBackend, keys: Sequence[str], seed: int) -> None:
    """Changes of all kinds under these keys, the same for the same seed."""
    chance, every = random.Random(seed), states_of(state)
    timers = state.timers("timers", namespace_type=int)
    for key in keys:
        state.set_current_key(key)
        for _ in range(chance.randrange(6)):
            number = chance.randrange(1000)
            every["value"].update(number)
            every["list"].add((number, f"n{number}"))
            every["map"].put(f"m{number % 7}", None if number % 5 == 0 else number / 4)
            every["sum"].add(number)
            every["records"].update([{"n": number}] * (number % 3))
            every["dies"].update(str(number))
            every["dying list"].add(number)
            every["windows"].set_current_namespace(number % 4)
            every["windows"].update(number)
            timers.register_event_time_timer(number, number % 3)
            timers.register_processing_time_timer(-number, 1)


def content(state: KeyedStateBackend) -> dict[Any, Any]:
    """All that there is; its timers are removed by that."""
    every = states_of(state)
    found: dict[Any, Any] = {}
    for key in sorted({key for name in STATES if name != "windows" for key in state.keys(name)}):
        state.set_current_key(key)
        windows = []
        for namespace in range(4):
            every["windows"].set_current_namespace(namespace)
            windows.append(every["windows"].value())
        found[key] = (
            every["value"].value(),
            every["list"].get(),
            sorted(every["map"].items()),
            every["sum"].get(),
            every["records"].value(),
            every["dies"].value(),
            every["dying list"].get(),
            windows,
        )
    timers = state.timers("timers", namespace_type=int)
    due = [*timers.due_event_time(2**62), *timers.due_processing_time(2**62)]
    found[""] = sorted((each.timestamp, each.key, each.namespace) for each in due)
    return found


@dataclass
class Fleet:
    """The slots of one operator."""

    slots: list[KeyedStateBackend]

    def snapshots(self, number: int, job: JobStorage, form: SnapshotForm) -> list[StateSnapshot]:
        futures = [slot.snapshot(number, job, form=form) for slot in self.slots]
        return [future.result(WAIT_S) for future in futures]

    def content(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {"": []}
        for slot in self.slots:
            for key, each in content(slot).items():
                if key == "":
                    found[""] = sorted(found[""] + each)
                else:
                    assert key not in found
                    found[key] = each
        return found


Opener = Callable[..., Fleet]


def fill(fleet: Fleet, seed: int = 1) -> None:
    for number, slot in enumerate(fleet.slots):
        mine = []
        for key in KEYS:
            try:
                slot.set_current_key(key)
                mine.append(key)
            except Invalid:
                pass
        change(slot, mine, seed + number)
