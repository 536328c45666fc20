"""The states of a chain of versions: how each is declared, changed and read, beside its model.

The model of what is at one key is a list of values, or a dict of them by map key.
"""

from __future__ import annotations

import dataclasses
import pickle
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any, Optional

from holdfast.backends import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from support.states.class_versions import Fields, Version

__all__ = ["CHAINED", "ChainedState", "Declared", "moved_class", "unpickled"]

TTL_MS = 5_000
"""Some of it passes in most runs of a chain, and all of it in a few."""
_MOVES = 3


@dataclass(frozen=True)
class Declared:
    """What a version declares the values of one state to be."""

    version: Version
    is_pickled: bool

    @property
    def cls(self) -> Any:
        """The class; another one at each call, if it is made."""
        if not self.is_pickled:
            return self.version.cls
        _Kept.__module__ = _module_of_pickles(self.version.number)
        return _Kept

    def value(self, rng: random.Random) -> Fields:
        """Some value."""
        return self.version.value(rng)

    def object_of(self, value: Fields, cls: Any) -> Any:
        """The same as an object of the class."""
        return _Kept(dict(value)) if self.is_pickled else self.version.object_of(value, cls)

    def fields_of(self, value: Any) -> Fields:
        """What the model has of such an object."""
        found: Fields = value.fields if self.is_pickled else self.version.fields_of(value)
        return found

    def written(self, value: Fields) -> Any:
        """What a tool reads of it."""
        return value if self.is_pickled else self.version.written(value)

    def takes(self, before: Declared) -> bool:
        """Whether values of that version can become such of this one."""
        return self.is_pickled or self.version.takes(before.version)

    def migrated(self, value: Fields) -> Fields:
        """What a value becomes that is written anew under this version."""
        return value if self.is_pickled else self.version.migrated(value)


class _Kept:
    """The class of what is pickled; it moves from module to module, and is still found in each."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields


def _module_of_pickles(number: int) -> str:
    """The module of the class under this version; to pickle it is like any other module."""
    name = f"jobs_with_pickles_{number % _MOVES}"
    if name not in sys.modules:
        module: Any = ModuleType(name)
        module._Kept = _Kept
        sys.modules[name] = module
    return name


def unpickled(value: Any) -> Any:
    """What tools read of a state, or what is in a pickle."""
    return pickle.loads(value).fields if isinstance(value, bytes) else value


def moved_class(name: str, version: Version) -> Any:
    """A class of keys, or of namespaces, that has another name and module in each version."""
    parts = [("number", int), ("name", str)]
    made = dataclasses.make_dataclass(f"{name}{version.number}", parts, frozen=True)
    made.__module__ = f"{version.module}.v{version.number}"
    return made


class _Bag(AggregateFunction[Any, list[Any], list[Any]]):
    """Keeps what is added."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        return [*accumulator, value]

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator


_Change = Callable[..., None]
"""Of a state, with chance: changes it, and the model of what is at the key."""


def _list_of(cls: Any) -> Any:
    return list[cls]


@dataclass(frozen=True)
class ChainedState:
    """One state of the job."""

    descriptor: Callable[[Any], StateDescriptor]
    change: _Change
    read: Callable[[Any], Any]
    is_map: bool = False
    is_pickled: bool = False
    is_in_one: bool = False
    """Whether all values at a key are one value of the table."""
    ttl_ms: int | None = None
    """None for state that does not expire in a test."""

    def value_type(self, cls: Any) -> Any:
        """What the values of its table are declared to be."""
        if self.is_map:
            return Optional[cls]  # noqa: UP045 - some of these classes have no |
        return _list_of(cls) if self.is_in_one else cls

    def declared(self, version: Version) -> Declared:
        """What its values are under a version."""
        return Declared(version, self.is_pickled)


def _change_value(
    state: Any, rng: random.Random, declared: Declared, cls: Any, values: list[Any]
) -> None:
    values.clear()
    if rng.random() < 0.3:
        state.clear()
    else:
        values.append(declared.value(rng))
        state.update(declared.object_of(values[0], cls))


def _change_list(
    state: Any, rng: random.Random, declared: Declared, cls: Any, values: list[Any]
) -> None:
    made = [declared.value(rng) for _ in range(rng.randint(1, 2))]
    objects = [declared.object_of(each, cls) for each in made]
    match rng.choice(("add", "add", "update", "clear")):
        case "add":
            state.add_all(objects)
            values += made
        case "update":
            state.update(objects)
            values[:] = made
        case _:
            state.clear()
            values.clear()


def _change_map(
    state: Any, rng: random.Random, declared: Declared, cls: Any, values: dict[str, Any]
) -> None:
    map_key = rng.choice("xyz")
    match rng.choice(("put", "put", "remove", "clear")):
        case "put":
            values[map_key] = declared.value(rng)
            state.put(map_key, declared.object_of(values[map_key], cls))
        case "remove":
            values.pop(map_key, None)
            state.remove(map_key)
        case _:
            state.clear()
            values.clear()


def _add(
    state: Any,
    rng: random.Random,
    declared: Declared,
    cls: Any,
    values: list[Any],
    *,
    keeps_all: bool,
) -> None:
    """Add to what reduces to the newest, or to what has all."""
    if rng.random() < 0.3:
        state.clear()
        values.clear()
    else:
        made = declared.value(rng)
        state.add(declared.object_of(made, cls))
        values[:] = [*values, made] if keeps_all else [made]


def _one(value: Any) -> list[Any]:
    return [] if value is None else [value]


_DAY = StateTtlConfig(ttl=timedelta(days=1))
_SECONDS = StateTtlConfig(ttl=timedelta(milliseconds=TTL_MS))
CHAINED: Mapping[str, ChainedState] = {
    "value": ChainedState(
        partial(ValueStateDescriptor, "value"), _change_value, lambda state: _one(state.value())
    ),
    "list": ChainedState(
        partial(ListStateDescriptor, "list"), _change_list, lambda state: list(state.get())
    ),
    "map": ChainedState(
        partial(MapStateDescriptor, "map", str),
        _change_map,
        lambda state: dict(state.items()),
        is_map=True,
    ),
    "reduced": ChainedState(
        partial(ReducingStateDescriptor, "reduced", lambda _, newest: newest),
        partial(_add, keeps_all=False),
        lambda state: _one(state.get()),
    ),
    "aggregated": ChainedState(
        lambda cls: AggregatingStateDescriptor("aggregated", _Bag(), _list_of(cls)),
        partial(_add, keeps_all=True),
        lambda state: list(state.get() or []),
        is_in_one=True,
    ),
    "lasting": ChainedState(
        partial(MapStateDescriptor, "lasting", str, ttl=_DAY),
        _change_map,
        lambda state: dict(state.items()),
        is_map=True,
    ),
    "mortal": ChainedState(
        partial(ValueStateDescriptor, "mortal", ttl=_SECONDS),
        _change_value,
        lambda state: _one(state.value()),
        ttl_ms=TTL_MS,
    ),
    "pickled": ChainedState(
        partial(ListStateDescriptor, "pickled", pickle=True),
        _change_list,
        lambda state: list(state.get()),
        is_pickled=True,
    ),
}
"""A state of each kind, with time to live and without, typed and pickled."""
