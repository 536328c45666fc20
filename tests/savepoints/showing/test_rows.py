"""Rows of a state as commands show them: as values that JSON can have."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast.backends import (
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    SnapshotForm,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.savepoints import StoredSnapshot, choose_state, compare, find_snapshot, rows_of
from holdfast.savepoints.showing.selections import asked_for
from holdfast.savepoints.showing.state_reader import state_of
from holdfast.storage import (
    Invalid,
    NotFound,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    load_storage,
)
from state_values import Fixed, Stats
from support.states.made_savepoints import complete

UID = "spend"
LAST = ("last", "keyed")


@dataclass
class Held:
    counts: dict[int, float]
    other: Any


def saved(
    root: Path, key_type: Any, values: dict[Any, Any], kind: Any = int, **unkeyed: list[int]
) -> StoredSnapshot:
    """A savepoint with a state `last` of such values, by key, and lists without keys."""
    folder = SavepointFolder.begin(load_storage(str(root)), "job")
    groups = KeyGroupRange(0, 15)
    with load_backend("hashmap").open(
        uid=UID, key_groups=groups, max_parallelism=16, key_type=key_type
    ) as state:
        last = state.get_state(ValueStateDescriptor("last", kind))
        for key, value in values.items():
            state.set_current_key(key)
            last.update(value)
        parts = [state.snapshot(1, folder, form=SnapshotForm.CANONICAL).result(60)]
    with OperatorStateBackend.open(uid=UID, slot=0, parallelism=1) as other:
        for name, items in unkeyed.items():
            other.get_list_state(ListStateDescriptor(name, int)).update(items)
        parts.append(other.snapshot(1, folder, form=SnapshotForm.CANONICAL).result(60))
    commit(folder, parts)
    return find_snapshot(folder.url)


def commit(folder: SavepointFolder, parts: list[StateSnapshot]) -> None:
    slots = len({part.slot for part in parts if part.slot is not None}) or 1
    operator = OperatorState(parallelism=slots, max_parallelism=16, parts=tuple(parts))
    complete(folder, {UID: operator})


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (dict[str, int], {"a": 1}, {"a": 1}),
        (dict[int, int], {1: 2}, [[1, 2]]),
        (dict[int, int], {}, []),
        (dict[tuple[int, int], int], {(1, 2): 3}, [[[1, 2], 3]]),
        (dict[tuple[int, str], dict[str, int]], {(1, "a"): {"b": 2}}, [[[1, "a"], {"b": 2}]]),
        (Any, {None: 1}, [[None, 1]]),
        (Any, {1: "a", "1": "b"}, [[1, "a"], ["1", "b"]]),
        (Any, [{"a": {b"\0": None}}], [{"a": [["AA==", None]]}]),
        (
            Held,
            Held({1: 0.5}, {True: {"b": [1]}}),
            {"counts": [[1, 0.5]], "other": [[True, {"b": [1]}]]},
        ),
        (
            Stats,
            Stats({Fixed(1, 0.5): 2}, {(3, Fixed(4)): "five"}),
            {
                "counts": [[{"a": 1, "b": 0.5}, 2]],
                "by_place": [[[3, {"a": 4, "b": None}], "five"]],
            },
        ),
        (
            dict[Fixed, int],
            {Fixed(number): number for number in range(20)},
            [[{"a": number, "b": None}, number] for number in range(20)],
        ),
    ],
)
def test_a_value_is_shown(kind: Any, value: Any, shown: Any, tmp_path: Path) -> None:
    (row,) = rows_of(saved(tmp_path, str, {"ann": value}, kind), UID, LAST)
    assert msgspec.json.decode(msgspec.json.encode(row["value"])) == shown


def test_states_of_one_name_are_two(tmp_path: Path) -> None:
    """One has keys, the other has none."""
    snapshot = saved(tmp_path, str, {"ann": 1}, int, last=[7, 8], rest=[9])
    with pytest.raises(Invalid, match=r"two states 'last', with keys and without.*--kind"):
        choose_state(snapshot, UID, "last")
    assert choose_state(snapshot, UID, "rest") == ("rest", "operator")
    shown = {
        kind: [
            row["value"]
            for row in rows_of(snapshot, UID, choose_state(snapshot, UID, "last", kind))
        ]
        for kind in ("keyed", "operator")
    }
    assert shown == {"keyed": [1], "operator": [7, 8]}
    assert choose_state(snapshot, UID, None, "keyed") == LAST
    with pytest.raises(Invalid, match="operator 'spend' has several states, and none is named"):
        choose_state(snapshot, UID, None, "operator")
    with pytest.raises(NotFound, match=r"no state 'rest' of kind keyed.*expected 'last', 'rest'"):
        choose_state(snapshot, UID, "rest", "keyed")
    with pytest.raises(Invalid, match=r"no such kind.*expected keyed or operator"):
        choose_state(snapshot, UID, "last", "timers")


@pytest.mark.parametrize(
    ("other", "status"),
    [
        ([7, 8], {"keyed": "equal", "operator": "equal"}),
        ([7, 9], {"keyed": "equal", "operator": "different"}),
        ([], {"keyed": "equal", "operator": "only in A"}),
    ],
)
def test_both_states_of_one_name_are_compared(
    other: list[int], status: dict[str, str], tmp_path: Path
) -> None:
    a = saved(tmp_path / "a", str, {"ann": 1}, int, last=[7, 8])
    b = saved(tmp_path / "b", str, {"ann": 1}, int, **({"last": other} if other else {}))
    compared = compare(a, b, lambda _: None)
    assert {each.kind: each.status for each in compared.states} == status
    assert compared.are_equal is (other == [7, 8])


def test_a_state_without_an_entry_is_the_same_as_none(tmp_path: Path) -> None:
    """A job that goes on has asked for it; what was converted may not have it."""
    a = saved(tmp_path / "a", str, {"ann": 1}, int, rest=[])
    b = saved(tmp_path / "b", str, {"ann": 1}, int)
    for pair in ((a, b), (b, a)):
        compared = compare(*pair, lambda _: None)
        assert compared.are_equal
        assert {each.state: each.rows_a for each in compared.states} == {"last": 1, "rest": 0}


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (dt.date, dt.date(2024, 1, 31), "2024-01-31"),
        (tuple[dt.date, int], (dt.date(2024, 1, 31), 5), '["2024-01-31", 5]'),
        (tuple[dt.date, int], (dt.date(2024, 1, 31), 5), '{"_1": "2024-01-31", "_2": 5}'),
        (int, 5, "5"),
        (str, "5", "5"),
        (bytes, b"5", "5"),
    ],
)
def test_a_key_is_found_by_its_text(kind: Any, key: Any, text: str, tmp_path: Path) -> None:
    rows = rows_of(saved(tmp_path, kind, {key: 7}), UID, LAST, text)
    assert [row["value"] for row in rows] == [7]


def test_a_value_close_to_a_key_does_not_find_it(tmp_path: Path) -> None:
    snapshot = saved(tmp_path, int, {5: 7})
    with pytest.raises(Invalid, match=r"not a key of the state.*expected int.*found '5\.9'"):
        list(rows_of(snapshot, UID, LAST, "5.9"))
    columns = state_of(snapshot, UID, "last")
    for options in ({"key": "5.9"}, {"keys": "[5.9]"}):
        with pytest.raises(Invalid, match="not a key of the state"):
            asked_for(columns, options)


class Pair(NamedTuple):
    one: bytes
    two: float | None


@pytest.mark.parametrize(
    ("key_type", "key", "texts"),
    [
        (bytes, b"abc", ["abc", '"YWJj"', "0x616263"]),
        (bytes, b"\xff\x00", ['"/wA="', "0xff00", "0xFF00"]),
        (bytes, b"17", ["17", '"MTc="']),
        (bytes, b"0xyz", ["0xyz"]),
        (str, "17", ["17", '"17"']),
        (str, '"17"', ['"\\"17\\""']),
        (str, "[1]", ["[1]"]),
        (float, float("inf"), ["Infinity", '"Infinity"']),
        (tuple[str, bytes], ("a", b"\xff"), ['["a", "/w=="]', '{"_1": "a", "_2": "/w=="}']),
        (tuple[bytes, ...], (b"\xff", b""), ['["/w==", ""]']),
        (Pair, Pair(b"\xff", None), ['{"one": "/w==", "two": null}', '["/w==", null]']),
        (Pair, Pair(b"a", float("-inf")), ['{"one": "YQ==", "two": "-Infinity"}']),
    ],
)
def test_every_key_can_be_given_as_text_and_as_it_is_shown(
    quick_path: Path, key_type: Any, key: Any, texts: list[str]
) -> None:
    snapshot = saved(quick_path, key_type, {key: 5})
    for text in texts:
        (row,) = rows_of(snapshot, UID, LAST, text)
        assert row["value"] == 5


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (dict[str, int], {"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Any, [{"a": 1, "b": {1: 2, 3: 4}}], [{"b": {3: 4, 1: 2}, "a": 1}]),
        (Held, Held({1: 0.5, 2: 1.0}, None), Held({2: 1.0, 1: 0.5}, None)),
    ],
)
def test_the_order_in_which_a_dict_was_filled_makes_no_difference(
    quick_path: Path, kind: Any, one: Any, other: Any
) -> None:
    a = saved(quick_path / "a", str, {"k": one, "same": one}, kind)
    b = saved(quick_path / "b", str, {"k": other, "same": one}, kind)
    (last,) = (each for each in compare(a, b, lambda _: None).states if each.kind == "keyed")
    assert (last.status, last.changed, last.examples) == ("equal", 0, ())


def test_a_different_value_in_a_dict_is_a_difference(quick_path: Path) -> None:
    a = saved(quick_path / "a", str, {"k": {"a": 1, "b": 2}}, dict[str, int])
    b = saved(quick_path / "b", str, {"k": {"b": 2, "a": 3}}, dict[str, int])
    found = compare(a, b, lambda _: None)
    assert not found.are_equal
    assert found.states[0].examples == ("'k': another value",)


def test_differences_of_state_without_keys_are_listed(quick_path: Path) -> None:
    a = saved(quick_path / "a", str, {"k": 1}, numbers=[1, 2, 2, 7])
    b = saved(quick_path / "b", str, {"k": 1}, numbers=[7, 2, 3])
    found = {each.state: each for each in compare(a, b, lambda _: None).states}
    numbers = found["numbers"]
    assert (numbers.status, numbers.only_a, numbers.only_b) == ("different", 2, 1)
    assert sorted(numbers.examples) == ["1: only in A", "2: only in A", "3: only in B"]
    assert found["last"].status == "equal"


@pytest.mark.parametrize("form", [SnapshotForm.OWN, SnapshotForm.CANONICAL])
def test_a_state_without_a_key_type_is_compared_with_one_that_has_rows(
    quick_path: Path, form: SnapshotForm
) -> None:
    """The former has no type of keys."""
    sides = []
    for number, values in enumerate(({}, {"k": 1})):
        folder = SavepointFolder.begin(load_storage(str(quick_path / str(number))), "job")
        with load_backend("hashmap").open(
            uid=UID, key_groups=KeyGroupRange(0, 15), max_parallelism=16
        ) as state:
            last = state.get_state(ValueStateDescriptor("last", int))
            for key, value in values.items():
                state.set_current_key(key)
                last.update(value)
            commit(folder, [state.snapshot(1, folder, form=form).result(60)])
        sides.append(find_snapshot(folder.url))
    for a, b in (sides, sides[::-1]):
        (last_of_both,) = compare(a, b, lambda _: None).states
        assert last_of_both.status == "different"
        assert last_of_both.only_a + last_of_both.only_b == 1
        assert last_of_both.examples[0].startswith("'k': only in ")


def broadcast(root: Path, key_type: Any, *copies: dict[Any, int]) -> StoredSnapshot:
    """A savepoint of broadcast state, of which each slot has a copy."""
    folder = SavepointFolder.begin(load_storage(str(root)), "job")
    parts = []
    for slot, copy in enumerate(copies):
        with OperatorStateBackend.open(uid=UID, slot=slot, parallelism=len(copies)) as state:
            rules = state.get_broadcast_state(MapStateDescriptor("rules", key_type, int))
            for key, value in copy.items():
                rules.put(key, value)
            parts.append(state.snapshot(1, folder, form=SnapshotForm.CANONICAL).result(60))
    commit(folder, parts)
    return find_snapshot(folder.url)


def test_broadcast_state_is_compared_by_key(quick_path: Path) -> None:
    a = broadcast(quick_path / "a", str, {"x": 1, "y": 2}, {"x": 1, "y": 2})
    b = broadcast(quick_path / "b", str, {"y": 3, "z": 4})
    (rules,) = compare(a, b, lambda _: None).states
    assert (rules.only_a, rules.only_b, rules.changed) == (1, 1, 1)
    assert set(rules.examples) == {"'x': only in A", "'z': only in B", "'y': another value"}
    same = broadcast(quick_path / "c", str, {"y": 2, "x": 1})
    assert compare(a, same, lambda _: None).are_equal


def test_broadcast_copies_that_differ_between_slots_are_a_difference(quick_path: Path) -> None:
    a = broadcast(quick_path / "a", str, {"x": 1}, {"x": 2})
    b = broadcast(quick_path / "b", str, {"x": 2}, {"x": 2})
    for one, other in ((a, b), (b, a)):
        (rules,) = compare(one, other, lambda _: None).states
        assert (rules.status, rules.examples) == ("different", ("'x': another value",))


def test_empty_broadcast_state_of_another_type_equals_no_state(quick_path: Path) -> None:
    a, b = broadcast(quick_path / "a", str, {}), broadcast(quick_path / "b", int, {7: 1})
    for one, other in ((a, b), (b, a)):
        (rules,) = compare(one, other, lambda _: None).states
        assert rules.status == "different"
        assert rules.examples[0].startswith("7: only in ")
