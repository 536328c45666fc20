"""What golden savepoints hold: as people wrote it, and as rows and restored state have it.

`content.json` has keyed state by state and key, timers as time, key and namespace, and when each
key was written. Nothing of Holdfast computes any of it.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from golden_entries import Distinct
from holdfast.backends import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "savepoints-v1"
CONTENT: dict[str, Any] = json.loads((GOLDEN / "content.json").read_text("utf-8"))
SLOTS = 2
FIRST_MS, THEN_MS = (int(moment) for moment in CONTENT["written at"])
"""When the first half of the keys was written, and when the rest was, and the snapshot taken."""
LIFE_MS = 10_000


@dataclass
class Order:
    """A value of several fields."""

    item: str
    price: Decimal
    note: str | None
    count: int = 1


_LIVES = StateTtlConfig(ttl=timedelta(milliseconds=LIFE_MS))
STATES: dict[str, StateDescriptor] = {
    each.name: each
    for each in (
        ValueStateDescriptor("value", int),
        ValueStateDescriptor("order", Order),
        ListStateDescriptor("list", tuple[int, str]),
        MapStateDescriptor("map", str, float),
        ReducingStateDescriptor("sum", operator.add, int),
        AggregatingStateDescriptor("distinct", Distinct(), list[str]),
        ValueStateDescriptor("windows", int),
        ValueStateDescriptor("dies", str, ttl=_LIVES),
        ListStateDescriptor("dying list", int, ttl=_LIVES),
    )
}


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a state of the snapshots, in the columns of docs/savepoint-format.md.

    Without `key_group`, in any order; a tuple is a struct here, and a decimal number text.
    """
    found: list[dict[str, Any]] = []
    for key, content in CONTENT["keyed"][name].items():
        each: list[dict[str, Any]]
        match STATES[name]:
            case _ if name == "windows":
                each = [{"namespace": int(at), "value": value} for at, value in content.items()]
            case ListStateDescriptor():
                values = [_struct(value) if name == "list" else value for value in content]
                each = [{"position": at, "value": value} for at, value in enumerate(values)]
            case MapStateDescriptor():
                each = [{"map_key": at, "value": value} for at, value in content.items()]
            case _:
                each = [{"value": content}]
        stamp = {} if STATES[name].ttl is None else {"last_used_ms": _written_ms(key)}
        found += [{"key": key, **row, **stamp} for row in each]
    return found


def rows_without_keys(name: str) -> list[dict[str, Any]]:
    """The rows of a state without keys, likewise; a slot of its own copy of a broadcast state."""
    left = CONTENT["operator"][name]
    if name == "rules":
        return [
            {"slot": slot, "map_key": rule, "value": value}
            for slot in range(SLOTS)
            for rule, value in left.items()
        ]
    return [
        {"slot": int(slot), "position": at, "value": _struct(each) if name == "union" else each}
        for slot, values in left.items()
        for at, each in enumerate(values)
    ]


def timer_rows(domain: str) -> list[dict[str, Any]]:
    """The rows of timers, likewise."""
    return [
        {"key": key, "namespace": namespace, "time": time}
        for time, key, namespace in CONTENT["timers"][domain]
    ]


def lives_at(name: str, key: str, now_ms: int) -> bool:
    """Whether what a state has of a key is not past its time."""
    return STATES[name].ttl is None or _written_ms(key) + LIFE_MS > now_ms


def expected(now_ms: int) -> dict[str, Any]:
    """What `restored` finds in each golden snapshot, in the words of `content.json`."""
    keyed = {
        name: {key: value for key, value in each.items() if lives_at(name, key, now_ms)}
        for name, each in CONTENT["keyed"].items()
    }
    keyed["distinct"] = {key: len(values) for key, values in keyed["distinct"].items()}
    left = CONTENT["operator"]
    timers = {domain: sorted(each) for domain, each in CONTENT["timers"].items()}
    return {
        "keyed": keyed,
        "timers": timers,
        "numbers": sorted(number for each in left["numbers"].values() for number in each),
        "union": sorted(pair for each in left["union"].values() for pair in each),
        "rules": left["rules"],
    }


def _written_ms(key: str) -> int:
    return FIRST_MS if key in CONTENT["written at"][str(FIRST_MS)] else THEN_MS


def _struct(values: Sequence[Any]) -> dict[str, Any]:
    """A tuple as Parquet has it."""
    return {f"_{number}": value for number, value in enumerate(values, 1)}
