"""Filters become keys and key groups, or nothing where that would leave out what is wanted."""

import datetime as dt
import json
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from holdfast.backends import KeyGroupRange, ValueStateDescriptor, load_backend
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.runtime.spark.state_frames.state_source import equalities, place_bounds
from holdfast.savepoints.reading.columns import KeyedColumns
from holdfast.savepoints.reading.readers import KeyedReader
from holdfast.savepoints.showing.selections import Selection, asked_for, select
from holdfast.storage import Invalid, load_storage

KEY = ("key",)


def columns(key_type: Any, key: Any, folder: Any) -> KeyedColumns:
    job = load_storage(str(folder)).job("job")
    with load_backend("hashmap").open(
        uid="op", key_groups=KeyGroupRange(0, 63), max_parallelism=64, key_type=key_type
    ) as state:
        value = state.get_state(ValueStateDescriptor("v", int))
        state.set_current_key(key)
        value.update(1)
        part = state.snapshot(1, job).result(60)
    reader = KeyedReader("op", [part], job)
    return KeyedColumns(reader, reader.description.tables[0])


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([EqualTo(KEY, "a")], {KEY: ["a"]}),
        ([EqualNullSafe(KEY, "a")], {KEY: ["a"]}),
        ([In(KEY, ("a", "b"))], {KEY: ["a", "b"]}),
        ([In(KEY, ("a", "b")), EqualTo(KEY, "b")], {KEY: ["b"]}),
        ([EqualTo(KEY, "a"), EqualTo(KEY, "b")], {KEY: []}),
        ([EqualTo(("key", "_1"), 1)], {("key", "_1"): [1]}),
        ([Not(EqualTo(KEY, "a")), StringStartsWith(KEY, "a"), IsNotNull(KEY)], {}),
    ],
)
def test_equalities_are_found_in_filters(filters: list[Any], found: Any) -> None:
    assert equalities(filters) == found


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], (None, None)),
        ([EqualTo(("key_group",), 3)], (3, 3)),
        ([In(("key_group",), (3, 9))], (3, 9)),
        ([GreaterThan(("key_group",), 3), LessThan(("key_group",), 9)], (4, 8)),
        ([GreaterThanOrEqual(("slot",), 3), LessThanOrEqual(("slot",), 9)], (3, 9)),
        ([GreaterThan(("value",), 3), Not(EqualTo(("key_group",), 3))], (None, None)),
        ([EqualTo(("key_group",), None)], (None, None)),
    ],
)
def test_bounds_of_key_groups(filters: list[Any], found: Any) -> None:
    assert place_bounds(filters) == found


def test_keys_that_are_wanted(tmp_path: Any) -> None:
    state = columns(str, "a", tmp_path)
    codec = key_codec_for(str)
    chosen = select(state, {KEY: ["a", "b"]}, (None, None))
    assert chosen.keys is not None
    assert chosen.keys.encoded == (codec.encode("a"), codec.encode("b"))
    groups = sorted({key_group(codec.hash(key), 64) for key in "ab"})
    assert chosen.keys.groups == tuple(groups)
    every = [(group, group) for group in range(64)]
    assert chosen.of(every) == [(group, group) for group in groups]
    assert chosen.of([(0, 63)]) == [(0, 63)]
    nothing = select(state, {KEY: []}, (None, None))
    assert nothing.of(every) == []


@pytest.mark.parametrize(
    "equal",
    [{}, {KEY: [1]}, {KEY: ["a", None]}, {("value",): ["a"]}, {KEY: ["x"] * 10_001}],
)
def test_filters_without_keys_select_key_groups_only(equal: Any, tmp_path: Any) -> None:
    chosen = select(columns(str, "a", tmp_path), equal, (2, None))
    assert chosen.keys is None
    assert chosen.of([(0, 1), (1, 4), (5, 9)]) == [(2, 4), (5, 9)]


def test_parts_of_a_key(tmp_path: Any) -> None:
    state = columns(tuple[str, int], ("a", 1), tmp_path)
    codec = key_codec_for(tuple[str, int])
    parts: dict[tuple[str, ...], list[Any]] = {("key", "_1"): ["a", "b"], ("key", "_2"): [1]}
    chosen = select(state, parts, (None, None))
    assert chosen.keys is not None
    assert chosen.keys.encoded == (codec.encode(("a", 1)), codec.encode(("b", 1)))
    assert select(state, {("key", "_1"): ["a"]}, (None, None)).keys is None, "others could be"
    many: dict[tuple[str, ...], list[Any]] = {("key", "_1"): ["a"] * 200, ("key", "_2"): [1] * 200}
    assert select(state, many, (None, None)).keys is None


def test_a_selection_beyond_the_parts_is_empty() -> None:
    assert Selection().of([(0, 3)]) == [(0, 3)]
    assert Selection(first=4).of([(0, 3)]) == []
    assert Selection(last=1).of([(0, 3), (4, 5)]) == [(0, 1)]


@pytest.mark.parametrize(
    ("key_type", "key", "texts"),
    [
        (str, "a", ["a"]),
        (str, "1", ["1"]),
        (int, 1, ["1"]),
        (float, 1.0, ["1", "1.0"]),
        (bool, True, ["true"]),
        (dt.datetime, dt.datetime.fromisoformat("2024-02-29T12:00:00"), ["2024-02-29T12:00:00"]),
        (tuple[str, int], ("a", 1), ['["a", 1]', '{"_1": "a", "_2": 1}']),
    ],
)
def test_keys_as_text_or_json(key_type: Any, key: Any, texts: list[str], tmp_path: Any) -> None:
    state = columns(key_type, key, tmp_path)
    encoded = (key_codec_for(key_type).encode(key),)
    for text in texts:
        chosen = asked_for(state, {"key": text})
        assert chosen.keys is not None
        assert chosen.keys.encoded == encoded
    if key_type is not dt.datetime:
        plain = list(key) if isinstance(key, tuple) else key
        several = asked_for(state, {"keys": json.dumps([plain, plain])})
        assert several.keys is not None
        assert several.keys.encoded == encoded


def test_key_groups_as_text(tmp_path: Any) -> None:
    state = columns(str, "a", tmp_path)
    assert asked_for(state, {}) == Selection()
    assert asked_for(state, {"keyGroups": "3-9"}) == Selection(None, 3, 9)
    assert asked_for(state, {"keyGroups": "3"}) == Selection(None, 3, 3)
    both = asked_for(state, {"keyGroups": "3-9"}).and_also(Selection(None, 5, None))
    assert both == Selection(None, 5, 9)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"key": "x"}, "this is not a key of the state"),
        ({"keys": "1"}, "the keys cannot be read"),
        ({"keys": "[1"}, "the keys cannot be read"),
        ({"keys": '[1, "a"]'}, "this is not a key of the state"),
        ({"key": "1", "keys": "[1]"}, "both one key and several"),
        ({"keyGroups": "9-3"}, "key groups do not exist"),
        ({"keyGroups": "-3"}, "key groups do not exist"),
        ({"keyGroups": "a"}, "key groups do not exist"),
        ({"keyGroups": "0-64"}, "from 0 to 63"),
    ],
)
def test_invalid_selections_are_refused(options: Any, told: str, tmp_path: Any) -> None:
    with pytest.raises(Invalid, match=told):
        asked_for(columns(int, 1, tmp_path), options)
