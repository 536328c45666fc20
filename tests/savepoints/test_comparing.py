"""Two versions of a class side by side: what differs in the types, and in what both have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.backends import (
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    SnapshotForm,
    StateTtlConfig,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.savepoints import ComparedState, StoredSnapshot, compare, find_snapshot
from holdfast.storage import OperatorState, SavepointFolder, load_storage
from support.states.made_savepoints import complete
from support.stored_commands import call, document

Old: Any = make_dataclass("Order", [("user", str), ("amount", int)])
New: Any = make_dataclass("Order", [("note", str), ("amount", int), ("user", str)])
Wide: Any = make_dataclass("Order", [("user", str), ("amount", float)])
Outer: Any = make_dataclass("Cart", [("orders", list[Old]), ("best", Old | None)])
OuterNew: Any = make_dataclass("Cart", [("best", New | None), ("orders", list[New])])
Moved: Any = make_dataclass("Purchase", [("user", str), ("amount", int)])


class OldPair(NamedTuple):
    left: int
    right: str


class NewPair(NamedTuple):
    right: str
    middle: int
    left: int


@dataclass
class OldNode:
    name: str
    below: list[OldNode]


@dataclass
class OldChain:
    name: str
    after: OldChain | None = None


@dataclass
class Chain:
    after: Chain | None = None
    size: int = 0
    name: str = ""


@dataclass
class Node:
    size: int
    name: str
    below: list[Node]


Fill = Callable[[Any], None]


def saved(
    root: Path, descriptor: Any, fill: dict[Any, Fill], key_type: Any = str
) -> StoredSnapshot:
    """A savepoint with one state, filled under each key."""
    folder = SavepointFolder.begin(load_storage(str(root)), "job")
    with load_backend("hashmap").open(
        uid="spend", key_groups=KeyGroupRange(0, 15), max_parallelism=16, key_type=key_type
    ) as backend:
        state = backend.get_state(descriptor)
        for key, act in fill.items():
            backend.set_current_key(key)
            act(state)
        part = backend.snapshot(1, folder, form=SnapshotForm.NEUTRAL).result(60)
    complete(folder, {"spend": OperatorState(parallelism=1, max_parallelism=16, parts=(part,))})
    return find_snapshot(folder.url)


def compared(root: Path, a: Any, b: Any) -> ComparedState:
    (state,) = compare(saved(root / "a", *a), saved(root / "b", *b), lambda _: None).states
    return state


def _update(state: Any, value: Any) -> None:
    state.update(value)


def values(annotation: Any, *given: Any, **options: Any) -> tuple[Any, dict[str, Fill]]:
    """Value state of a type, with such values under keys k0, k1 and so on."""
    fills: dict[str, Fill] = {
        f"k{at}": partial(_update, value=value) for at, value in enumerate(given)
    }
    return ValueStateDescriptor("last", annotation, **options), fills


@pytest.mark.parametrize(
    ("a", "b", "types"),
    [
        (values(Old, Old("u", 1)), values(New, New("n", 1, "u")), [".note: only in B, str"]),
        (
            values(Outer, Outer([Old("u", 1)], None), Outer([], Old("v", 2))),
            values(OuterNew, OuterNew(None, [New("n", 1, "u")]), OuterNew(New("m", 2, "v"), [])),
            [".orders[].note: only in B, str", ".best: Order(user: str, amount: int) | None in A"],
        ),
        (values(Old, Old("u", 1)), values(Wide, Wide("u", 1.0)), [".amount: int in A, float in B"]),
        (values(OldPair, OldPair(1, "r")), values(NewPair, NewPair("r", 0, 1)), [".middle: only"]),
        (
            values(OldNode, OldNode("a", [OldNode("b", [])])),
            values(Node, Node(1, "a", [Node(2, "b", [])])),
            [".size: only in B, int"],
        ),
        (
            values(OldChain, OldChain("a", OldChain("b"))),
            values(Chain | None, Chain(Chain(None, 1, "b"), 2, "a")),
            ["value: OldChain"],
        ),
        (values(float, 1e300, 2.0), values(int | float, 1e300, 2), ["value: float in A"]),
        (values(int, 1), values(int | None, 1), ["value: int in A, int | None in B"]),
        (
            values(dict[str, Old], {"x": Old("u", 1)}),
            values(dict[str, New], {"x": New("n", 1, "u")}),
            ["[].note: only in B"],
        ),
        (
            values(int, 1),
            values(int, 1, ttl=StateTtlConfig(ttl=timedelta(days=1))),
            ["a time to live only in B"],
        ),
    ],
)  # fmt: skip
def test_the_common_part_of_two_versions_is_compared(
    tmp_path: Path, a: Any, b: Any, types: list[str]
) -> None:
    state = compared(tmp_path, a, b)
    assert state.status == "types differ"
    for each in types:
        assert any(each in found for found in state.types), state.types
    assert (state.only_a, state.only_b, state.changed) == (0, 0, 0)


def test_differences_in_common_fields_are_listed(tmp_path: Path) -> None:
    a = values(Old, Old("u", 1), Old("v", 2), Old("w", 3))
    state = compared(tmp_path, a, values(New, New("", 1, "u"), New("", 5, "v")))
    assert (state.only_a, state.only_b, state.changed) == (1, 0, 1)
    assert sorted(state.examples) == ["'k1': another value", "'k2': only in A"]


def test_a_class_that_moved_is_the_same_type(tmp_path: Path) -> None:
    state = compared(tmp_path, values(Old, Old("u", 1)), values(Moved, Moved("u", 1)))
    assert (state.status, state.types) == ("equal", ())


def test_rows_that_cannot_be_matched_are_not_compared(tmp_path: Path) -> None:
    number = ValueStateDescriptor("last", int), {1: lambda state: state.update(1)}, int
    state = compared(tmp_path, values(int, 1), number)
    assert state.types == ("key: str in A, int in B",)
    elements = ListStateDescriptor("last", int), {"k0": lambda state: state.add(1)}
    state = compared(tmp_path / "kinds", values(int, 1), elements)
    assert state.types == ("kind: value in A, list in B",)
    assert (state.rows_a, state.rows_b, state.only_a) == (1, 1, 0)


def test_keys_of_lists_and_maps_are_listed_once(tmp_path: Path) -> None:
    descriptor = ListStateDescriptor("texts", str)
    long = {f"k{at}": lambda state: state.add_all("abcdef") for at in range(4)}
    short = {f"k{at}": lambda state: state.add_all("xb") for at in range(4)}
    a, b = saved(tmp_path / "a", descriptor, long), saved(tmp_path / "b", descriptor, short)
    (state,) = compare(a, b, lambda _: None).states
    assert (state.only_a, state.changed) == (16, 4)
    assert len(state.examples) == 3
    assert set(state.examples) <= {f"'k{at}': another value, 4 only in A" for at in range(4)}
    shown = call("show", a.path, "--limit", "0").output
    assert [shown.count(f"k{at}") for at in range(4)] == [1] * 4
    assert shown.count("f") >= 4
    assert [row["key"] for row in document("show", a.path)["rows"]].count("k1") == 6
    entries = MapStateDescriptor("last", str, int)
    several = {
        "k0": lambda state: state.put_all({"x": 1, "y": 2}),
        "k1": lambda state: state.put("x", 1),
    }
    shown = call("show", saved(tmp_path / "map", entries, several).path).output
    assert [shown.count("k0"), shown.count("k1")] == [1, 1]


def test_the_command_lists_differences_of_types(tmp_path: Path) -> None:
    a = saved(tmp_path / "a", *values(Old, Old("u", 1)))
    b = saved(tmp_path / "b", *values(New, New("n", 1, "u")))
    told = call("diff", a.path, b.path)
    assert told.exit_code == 1
    assert "the types of 'last' of 'spend' differ: .note: only in B, str" in told.output
    (state,) = document("diff", a.path, b.path, code=1)["states"]
    assert state["types"] == [".note: only in B, str"]
