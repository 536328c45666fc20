"""What is tried on a backend: states of every kind, keys of several types, and values for them.

A campaign, by Hypothesis or by a seed, only ever picks numbers (`Picks`). What they stand for is
here, so that a live backend, the model beside it and a process that replays both do the same.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.backends.state.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    StateVisibility,
    TtlUpdateType,
    ValueStateDescriptor,
)
from holdfast.backends.tables.contract import NO_NAMESPACE

__all__ = [
    "KEY_KINDS",
    "SUBJECT_COUNT",
    "TIMER_NAMESPACES",
    "TTLS",
    "Account",
    "Action",
    "City",
    "Distinct",
    "KeyKind",
    "Mean",
    "Picks",
    "Subject",
    "action_of",
    "ends_of",
    "reading_of",
    "subjects_of",
    "verbs_of",
]


@dataclass
class Account:
    """A value of a mutable type."""

    owner: str
    amounts: list[int] = field(default_factory=list)


class City(NamedTuple):
    """A key of a class of the user's."""

    name: str
    number: int | None


class Mean(AggregateFunction[int, tuple[int, int], float]):
    """The mean of whole numbers; its accumulator cannot be changed in place."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
        return first[0] + second[0], first[1] + second[1]


class Distinct(AggregateFunction[str, list[str], int]):
    """How many different strings there were; changes its accumulator in place."""

    def create_accumulator(self) -> list[str]:
        return []

    def add(self, value: str, accumulator: list[str]) -> list[str]:
        if value not in accumulator:
            accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[str]) -> int:
        return len(accumulator)

    def merge(self, first: list[str], second: list[str]) -> list[str]:
        return [*first, *(value for value in second if value not in first)]


def ends_of(old: str, new: str) -> str:
    """The end of both strings together: its order matters, and its grouping does not."""
    return (old + new)[-12:]


@dataclass(frozen=True, slots=True)
class KeyKind:
    """A type of keys, keys of it, and whether a column of them can be made without a schema."""

    annotation: Any
    keys: tuple[Any, ...]
    has_column: bool = False
    is_inferred: bool = True
    """A backend finds the type by itself."""


KEY_KINDS: dict[str, KeyKind] = {
    "int": KeyKind(int, (0, 1, -1, 7, 300, -(2**63), 2**63 - 1, 255), has_column=True),
    "str": KeyKind(str, ("", "a", "b", "a\x00", "\x01", "kéy", "鍵🗝", "a" * 40), has_column=True),
    "bytes": KeyKind(
        bytes,
        (b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\x01", b"\xff", b"\xff\xff", b"abc"),
        has_column=True,
    ),
    "tuple": KeyKind(
        tuple[str, int],
        (("", 0), ("a", 0), ("a", 1), ("a", -1), ("a\x00", 0), ("b", 0), ("b", 9), ("ü", 300)),
    ),
    "class": KeyKind(
        City,
        tuple(City(name, number) for name in ("", "Ulm", "Żory") for number in (None, 0, -1)),
        is_inferred=False,
    ),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """A state that is tried."""

    kind: str
    descriptor: StateDescriptor
    values: tuple[Any, ...]
    namespace_type: Any = None
    namespaces: tuple[Any, ...] = (NO_NAMESPACE,)
    map_keys: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        return self.descriptor.name

    @property
    def ttl(self) -> StateTtlConfig | None:
        return self.descriptor.ttl


_INTS = (0, 1, -1, 127, 128, -(2**31), 2**53)
_TEXTS = ("", "a", "\x00", "ü", "鍵" * 9, "x" * 300)
_ACCOUNTS = (Account(""), Account("ann", [1]), Account("bob", [1, -2]), Account("ü", [2**60] * 5))
_SPACES: dict[str, Any] = {"namespace_type": str, "namespaces": ("", "a", "\x00z")}
_WINDOWS: dict[str, Any] = {
    "namespace_type": tuple[int, int],
    "namespaces": ((-5, 0), (0, 5), (0, 10)),
}

SUBJECT_COUNT = 11
TIMER_NAMESPACES = ("", "a", "b")


def _ttls() -> tuple[StateTtlConfig | None, ...]:
    """Every way to say how long an entry lives, but those that leave open what is there."""
    strict = [
        StateTtlConfig(ttl=timedelta(seconds=1), update_type=update_type, cleanup_entries=entries)
        for update_type in TtlUpdateType
        for entries in (0, 3)
    ]
    shown = [
        StateTtlConfig(
            ttl=timedelta(seconds=seconds),
            update_type=update_type,
            visibility=StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP,
            cleanup_in_snapshot=seconds == 1,
            cleanup_entries=0,
        )
        for update_type in TtlUpdateType
        for seconds in (1, 2)
    ]
    forever = StateTtlConfig(ttl=timedelta.max)
    return (None, *strict, *shown, forever)


TTLS = _ttls()


def subjects_of(ttls: Sequence[StateTtlConfig | None]) -> dict[str, Subject]:
    """Every state that is tried, by name, with these times to live (`SUBJECT_COUNT` of them)."""
    a, b, c, d, e, f, g, h, i, j, k = ttls
    listed = (
        Subject("value", ValueStateDescriptor("count", int, ttl=a), (None, *_INTS)),
        Subject("value", ValueStateDescriptor("account", Account, ttl=b), _ACCOUNTS, **_SPACES),
        Subject(
            "value",
            ValueStateDescriptor("pickled", object, ttl=c, pickle=True),
            ({1, 2}, frozenset("x"), 1 + 2j, None),
        ),
        Subject("list", ListStateDescriptor("texts", str | None, ttl=d), (None, *_TEXTS)),
        Subject("list", ListStateDescriptor("accounts", Account, ttl=e), _ACCOUNTS, **_WINDOWS),
        Subject(
            "map",
            MapStateDescriptor("numbers", str, int, ttl=f),
            (None, *_INTS),
            map_keys=("", "a", "a\x00", "ü"),
        ),
        Subject(
            "map",
            MapStateDescriptor("lists", tuple[int, str], list[int], ttl=g),
            (None, [], [1], [2, 3]),
            map_keys=((0, ""), (-1, "a"), (0, "a")),
            **_WINDOWS,
        ),
        Subject("reducing", ReducingStateDescriptor("sum", operator.add, int, ttl=h), (1, -2, 30)),
        Subject(
            "reducing", ReducingStateDescriptor("ends", ends_of, str, ttl=i), ("a", "bc"), **_SPACES
        ),
        Subject(
            "aggregating",
            AggregatingStateDescriptor("mean", Mean(), tuple[int, int], ttl=j),
            (1, 2, -9),
        ),
        Subject(
            "aggregating",
            AggregatingStateDescriptor("distinct", Distinct(), list[str], ttl=k),
            ("", "a", "b"),
            **_WINDOWS,
        ),
    )
    return {subject.name: subject for subject in listed}


_VERBS: dict[str, dict[str, str]] = {
    "value": {
        "value": "nothing",
        "update": "value",
        "clear": "nothing",
        "get_many": "keys",
        "put_many": "pairs",
        "clear_many": "keys",
    },
    "list": {
        "get": "nothing",
        "add": "value",
        "add_all": "values",
        "update": "values",
        "clear": "nothing",
        "merge_namespaces": "namespaces",
    },
    "map": {
        "get": "map key",
        "contains": "map key",
        "put": "entry",
        "put_all": "entries",
        "remove": "map key",
        "items": "nothing",
        "keys": "nothing",
        "values": "nothing",
        "is_empty": "nothing",
        "clear": "nothing",
    },
    "reducing": {
        "get": "nothing",
        "add": "value",
        "clear": "nothing",
        "get_many": "keys",
        "reduce_many": "pairs",
        "clear_many": "keys",
        "merge_namespaces": "namespaces",
    },
    "aggregating": {
        "get": "nothing",
        "add": "value",
        "clear": "nothing",
        "get_many": "keys",
        "add_many": "pairs",
        "clear_many": "keys",
        "merge_namespaces": "namespaces",
    },
}
_READING = {
    "value": "value",
    "list": "get",
    "map": "items",
    "reducing": "get",
    "aggregating": "get",
}


def verbs_of(subject: Subject) -> tuple[str, ...]:
    """What can be done with a state: the names of its methods."""
    verbs = _VERBS[subject.kind]
    return tuple(
        verb for verb in verbs if subject.namespace_type is not None or "namespaces" not in verb
    )


@dataclass(frozen=True, slots=True)
class Picks:
    """Numbers from which an action is made; any do. `more` has at least one."""

    verb: int
    key: int
    namespace: int
    more: tuple[int, ...]
    as_column: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """A call of a state's method under a key and a namespace."""

    state: str
    verb: str
    key: Any
    namespace: Any
    arguments: tuple[Any, ...]
    as_column: bool = False
    """Keys and values of a batch go in as Arrow arrays where they can."""

    @property
    def is_batch(self) -> bool:
        """Its first argument is a batch of keys, and `key` means nothing."""
        return self.verb.endswith("_many")

    def clearing(self) -> Action:
        """The action that clears what this one is about."""
        return replace(self, verb="clear", arguments=())


def action_of(subject: Subject, keys: Sequence[Any], picks: Picks) -> Action:
    """The action that the numbers stand for."""
    verbs = verbs_of(subject)
    verb = verbs[picks.verb % len(verbs)]
    arguments = _arguments(subject, _VERBS[subject.kind][verb], keys, picks)
    return Action(
        subject.name,
        verb,
        _one(keys, picks.key),
        _one(subject.namespaces, picks.namespace),
        arguments,
        picks.as_column,
    )


def reading_of(subject: Subject, key: Any, namespace: Any) -> Action:
    """The action that reads all that there is under a key and a namespace."""
    return Action(subject.name, _READING[subject.kind], key, namespace, ())


def _arguments(subject: Subject, shape: str, keys: Sequence[Any], picks: Picks) -> tuple[Any, ...]:
    values = [_one(subject.values, number) for number in picks.more]
    map_keys = [_one(subject.map_keys, number // 3) for number in picks.more]
    picked = [_one(keys, picks.key + number // 6) for number in picks.more]
    shapes: dict[str, Any] = {
        "nothing": (),
        "value": (values[0],),
        "values": (values,),
        "map key": (map_keys[0],),
        "entry": (map_keys[0], values[0]),
        "entries": (dict(zip(map_keys, values, strict=True)),),
        "keys": (picked,),
        "pairs": (picked, values),
        "namespaces": (
            _one(subject.namespaces, picks.namespace),
            [_one(subject.namespaces, number) for number in picks.more],
        ),
    }
    arguments: tuple[Any, ...] = shapes[shape]
    return arguments


def _one(pool: Sequence[Any], number: int) -> Any:
    return pool[number % len(pool)] if pool else None
