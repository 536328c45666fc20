"""Changes of state by the hundred: done to live state, and to a model of dicts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    StateBackend,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.backends.tables.contract import NO_NAMESPACE
from holdfast.storage import JobStorage, ManualClock, StateSnapshot

__all__ = [
    "ALL",
    "GROUPS",
    "NOW_MS",
    "STATES",
    "TIMERS",
    "TTL_MS",
    "UID",
    "Content",
    "Record",
    "Step",
    "apply",
    "content",
    "group_of",
    "modelled",
    "opened",
    "step",
    "steps",
]

UID = "op"
GROUPS = 128
ALL = KeyGroupRange(0, GROUPS - 1)
NOW_MS = 1_700_000_000_000
TTL_MS = 10_000
TIMERS = "timers"
_MOMENTS = 7


@dataclass
class Record:
    """A value that can be changed."""

    name: str
    amounts: list[int] = field(default_factory=list)


_LIVES = StateTtlConfig(ttl=timedelta(milliseconds=TTL_MS))
STATES: dict[str, tuple[StateDescriptor, Any]] = {
    "value": (ValueStateDescriptor("value", int), None),
    "record": (ValueStateDescriptor("record", Record), str),
    "list": (ListStateDescriptor("list", str), str),
    "records": (ListStateDescriptor("records", Record), None),
    "map": (MapStateDescriptor("map", str, int), None),
    "mortal": (ListStateDescriptor("mortal", int, ttl=_LIVES), None),
    "mortal map": (MapStateDescriptor("mortal map", str, int, ttl=_LIVES), str),
}
"""States of every kind of table, and the type of their namespaces."""

_LISTS = ("list", "records", "mortal")
_MAPS = ("map", "mortal map")
_SPACES = ("", "a\0")
_MAP_KEYS = ("", "x", "x\0")


@dataclass(frozen=True)
class Step:
    """A change: `put`, `append`, `remove` or `remove entry`. The number tells what it puts."""

    table: str
    what: str
    key: int
    number: int

    @property
    def namespace(self) -> Any:
        """Where it puts it."""
        has_namespaces = self.table == TIMERS or STATES[self.table][1]
        return _SPACES[self.number % len(_SPACES)] if has_namespaces else NO_NAMESPACE

    @property
    def map_key(self) -> str:
        """In a map."""
        return _MAP_KEYS[self.number % len(_MAP_KEYS)]

    @property
    def moment(self) -> int:
        """Of a timer."""
        return self.number % _MOMENTS

    @property
    def value(self) -> Any:
        """What it puts or appends."""
        match self.table:
            case "record" | "records":
                return Record(f"r{self.number}", [self.number] * (self.number % 3))
            case "map" | "mortal map":
                return self.number if self.number % 4 else None
            case "list":
                return f"e{self.number}"
        return self.number


def step(table: str, pick: int, key: int, number: int) -> Step:
    """One that fits the table; which, is picked by a number."""
    whats = ["put", "put", "remove"]
    if table in _LISTS:
        whats = ["append", "append", "append", "put", "remove"]
    elif table in _MAPS:
        whats = ["put", "put", "put", "remove entry", "remove"]
    return Step(table, whats[pick % len(whats)], key, number)


def steps(count: int, seed: int, *, keys: int = 40) -> list[Step]:
    """So many, the same ones for the same seed."""
    chance = random.Random(seed)
    tables = (*STATES, TIMERS)
    return [
        step(chance.choice(tables), chance.randrange(15), chance.randrange(keys), number)
        for number in range(count)
    ]


Content = dict[tuple[Any, ...], Any]
"""By table, key and namespace; of timers by their moment too."""


def modelled(every: Iterable[Step]) -> Content:
    """What is there after these steps."""
    found: Content = {}
    for each in every:
        at: tuple[Any, ...] = (each.table, each.key, each.namespace)
        if each.table == TIMERS:
            at = (*at, each.moment)
        match each.what:
            case "put" if each.table in _MAPS:
                found.setdefault(at, {})[each.map_key] = each.value
            case "put" if each.table in _LISTS:
                found[at] = [each.value]
            case "put":
                found[at] = True if each.table == TIMERS else each.value
            case "append":
                found.setdefault(at, []).append(each.value)
            case "remove":
                found.pop(at, None)
            case _ if at in found:
                found[at].pop(each.map_key, None)
    return {at: value for at, value in found.items() if value not in ({}, [])}


def opened(
    backend: StateBackend,
    *snapshots: StateSnapshot,
    job: JobStorage | None = None,
    key_groups: KeyGroupRange = ALL,
    clock: ManualClock | None = None,
    allow_pickle: bool = False,
) -> KeyedStateBackend:
    """The state of the operator, empty or restored."""
    return backend.open(
        uid=UID,
        key_groups=key_groups,
        max_parallelism=GROUPS,
        key_type=int,
        restore=snapshots,
        storage=job,
        clock=clock or ManualClock(NOW_MS),
        allow_pickle=allow_pickle,
    )


def group_of(key: int) -> int:
    """The key group of a key."""
    return key_group(key_codec_for(int).hash(key), GROUPS)


def apply(state: KeyedStateBackend, every: Iterable[Step]) -> None:
    """Change live state; what belongs to other slots is passed over."""
    for each in every:
        if group_of(each.key) not in state.key_groups:
            continue
        state.set_current_key(each.key)
        if each.table == TIMERS:
            timers = state.timers(TIMERS, namespace_type=str)
            if each.what == "put":
                timers.register_event_time_timer(each.moment, each.namespace)
            else:
                timers.delete_event_time_timer(each.moment, each.namespace)
        else:
            _change(_state(state, each.table, each.namespace), each)


def _state(state: KeyedStateBackend, table: str, namespace: Any) -> Any:
    descriptor, namespace_type = STATES[table]
    one = state.get_state(descriptor, namespace_type=namespace_type)
    if namespace_type is not None:
        one.set_current_namespace(namespace)
    return one


def _change(one: Any, each: Step) -> None:
    match each.what:
        case "put" if each.table in _MAPS:
            one.put(each.map_key, each.value)
        case "put" if each.table in _LISTS:
            one.update([each.value])
        case "put":
            one.update(each.value)
        case "append":
            one.add(each.value)
        case "remove":
            one.clear()
        case _:
            one.remove(each.map_key)


def content(state: KeyedStateBackend, tables: Sequence[str] = (*STATES, TIMERS)) -> Content:
    """What is in live state; its timers are gone by that."""
    found: Content = {}
    for table in tables:
        if table == TIMERS:
            for timer in state.timers(TIMERS, namespace_type=str).due_event_time(_MOMENTS):
                found[TIMERS, timer.key, timer.namespace, timer.timestamp] = True
            continue
        descriptor, namespace_type = STATES[table]
        state.get_state(descriptor, namespace_type=namespace_type)
        for namespace in (NO_NAMESPACE,) if namespace_type is None else _SPACES:
            for key in list(state.keys(table, namespace)):
                state.set_current_key(key)
                found[table, key, namespace] = _read(_state(state, table, namespace), table)
    return found


def _read(one: Any, table: str) -> Any:
    if table in _LISTS:
        return one.get()
    return dict(one.items()) if table in _MAPS else one.value()
