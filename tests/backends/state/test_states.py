"""Semantics of states, on the hashmap backend: null, empty, absent, batches, namespaces, errors."""

import operator
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateBackend,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.storage import Invalid

ALL = KeyGroupRange(0, 127)


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
        return first[0] + second[0], first[1] + second[1]


@dataclass
class Account:
    owner: str
    amounts: list[int]


@pytest.fixture
def backend() -> Iterator[KeyedStateBackend]:
    with load_backend("hashmap").open(uid="op", key_groups=ALL, max_parallelism=128) as opened:
        yield opened


def test_absent_default_none_and_cleared_values_differ(backend: KeyedStateBackend) -> None:
    total = backend.get_state(ValueStateDescriptor("total", int, default=7))
    backend.set_current_key("ann")
    assert total.value() == 7
    total.update(0)
    assert total.value() == 0
    backend.set_current_key("bob")
    assert total.value() == 7
    backend.set_current_key("ann")
    total.update(None)
    assert (total.value(), list(backend.keys("total"))) == (7, [])
    total.update(1)
    total.clear()
    assert total.value() == 7


def test_lists_are_read_and_changed(backend: KeyedStateBackend) -> None:
    state = backend.get_state(ListStateDescriptor("seen", str))
    backend.set_current_key(1)
    assert state.get() == []
    state.add("a")
    state.add_all(["b", "c"])
    handed_out = state.get()
    handed_out.append("mine")
    assert state.get() == ["a", "b", "c"]
    state.update(["z"])
    assert state.get() == ["z"]
    nothing: tuple[list[str] | None, ...] = ([], None)
    for emptied in nothing:
        state.update(emptied)
        assert (state.get(), list(backend.keys("seen"))) == ([], [])


def test_maps_tell_none_from_absent(backend: KeyedStateBackend) -> None:
    state = backend.get_state(MapStateDescriptor("by", str, int))
    backend.set_current_key(1)
    assert state.is_empty()
    state.put("a", None)
    state.put_all({"b": 2, "c": 3})
    assert (state.get("a"), state.contains("a"), state.contains("x")) == (None, True, False)
    assert sorted(state.keys()) == ["a", "b", "c"]
    for map_key, value in state.items():
        if value != 3:
            state.remove(map_key)
    assert (list(state.items()), list(state.values())) == ([("c", 3)], [3])
    state.remove("c")
    assert state.is_empty()
    assert list(backend.keys("by")) == []


def test_reducing_and_aggregating_states_merge_values(backend: KeyedStateBackend) -> None:
    largest = backend.get_state(ReducingStateDescriptor("largest", max, int))
    mean = backend.get_state(AggregatingStateDescriptor("mean", Mean(), tuple[int, int]))
    backend.set_current_key(1)
    assert (largest.get(), mean.get()) == (None, None)
    for value in (3, 9, 6):
        largest.add(value)
        mean.add(value)
    assert (largest.get(), mean.get()) == (9, 6.0)


def test_changing_a_passed_or_returned_object_does_not_change_state(
    backend: KeyedStateBackend,
) -> None:
    state = backend.get_state(ValueStateDescriptor("account", Account))
    backend.set_current_key(1)
    given = Account("ann", [1])
    state.update(given)
    given.amounts.append(2)
    taken = state.value()
    taken.amounts.append(3)
    assert state.value() == Account("ann", [1])


@pytest.mark.parametrize("kind", ["int", "str"])
def test_rows_and_batches_are_one_state(backend: KeyedStateBackend, kind: str) -> None:
    keys: list[Any] = [1, 2, 3, 2] if kind == "int" else ["a", "b", "ü", "b"]
    state = backend.get_state(ValueStateDescriptor("total", int))
    state.put_many(pa.array(keys), pa.array([10, 20, 30, 40]))
    backend.set_current_key(keys[1])
    assert state.value() == 40
    state.update(41)
    assert state.get_many(pa.array(keys)).to_pylist() == [10, 41, 30, 41]
    state.put_many(keys[:2], [None, 5])
    assert state.get_many(pa.chunked_array([keys])).to_pylist() == [None, 5, 30, 5]
    state.clear_many(keys)
    assert list(backend.keys("total")) == []


@pytest.mark.parametrize("reduce", [operator.add, min, max, lambda old, new: old * 2 + new])
def test_reduce_many_is_adding_row_by_row(backend: KeyedStateBackend, reduce: Any) -> None:
    rows = backend.get_state(ReducingStateDescriptor("rows", reduce, int))
    batch = backend.get_state(ReducingStateDescriptor("batch", reduce, int))
    keys, values = [1, 2, 1, 3, 1, 2], [4, -5, 6, 7, 1, 9]
    backend.set_current_key(2)
    for state in (rows, batch):
        state.add(100)
    for key, value in zip(keys, values, strict=True):
        backend.set_current_key(key)
        rows.add(value)
    associative = reduce in (operator.add, min, max)
    step = len(keys) if associative else 1
    for start in range(0, len(keys), step):
        part = slice(start, start + step)
        batch.reduce_many(pa.array(keys[part]), pa.array(values[part]))
    assert batch.get_many([1, 2, 3]).to_pylist() == rows.get_many([1, 2, 3]).to_pylist()


@pytest.mark.parametrize("reduce", [operator.add, lambda old, new: old + new])
@pytest.mark.parametrize(
    ("key_type", "keys", "distinct"),
    [
        (int, pa.array([3, 1, 3], pa.int32()), pa.array([3, 1], pa.int32())),
        (str, pa.chunked_array([["b"], ["a", "b"]]), pa.array(["b", "a"])),
        (tuple[int], pa.array([{"x": 1}, {"x": 2}, {"x": 1}]), pa.array([{"x": 1}, {"x": 2}])),
        (int, [3, 1, 3], [3, 1]),
    ],
)
def test_reduce_many_answers_each_key_once_as_it_came(
    reduce: Any, key_type: Any, keys: Any, distinct: Any
) -> None:
    hashmap = load_backend("hashmap")
    with hashmap.open(uid="op", key_groups=ALL, max_parallelism=128, key_type=key_type) as backend:
        state = backend.get_state(ReducingStateDescriptor("total", reduce, int))
        for factor in (1, 2):
            changed, totals = state.reduce_many(keys, pa.array([1, 2, 4]))
            assert changed == distinct
            assert totals == pa.array([5 * factor, 2 * factor])


def test_namespaces_keep_state_apart(backend: KeyedStateBackend) -> None:
    lists = backend.get_state(ListStateDescriptor("l", int), namespace_type=str)
    total = backend.get_state(ReducingStateDescriptor("r", operator.add, int), namespace_type=str)
    backend.set_current_key(1)
    with pytest.raises(Invalid, match="no current namespace"):
        total.get()
    with pytest.raises(Invalid, match="no current namespace"):
        total.reduce_many([1], [1])
    for namespace, value in (("a", 1), ("b", 2), ("c", 4)):
        for state in (lists, total):
            state.set_current_namespace(namespace)
            state.add(value)
    assert list(backend.keys("r", "b")) == [1]
    total.merge_namespaces("a", ["b", "x"])
    lists.merge_namespaces("a", ["b", "x"])
    assert (total.get(), lists.get()) == (3, [1, 2])
    assert list(backend.keys("r", "b")) == []
    with pytest.raises(Invalid, match="has no namespaces"):
        backend.get_state(ValueStateDescriptor("v", int)).set_current_namespace("a")


def test_apply_to_all_keys_may_change_state(backend: KeyedStateBackend) -> None:
    descriptor = ValueStateDescriptor("total", int)
    state = backend.get_state(descriptor)
    state.put_many(list(range(10)), list(range(10)))
    backend.set_current_key(3)

    def keep_even(key: int, total: Any) -> None:
        total.update(total.value() * 10 if key % 2 == 0 else None)

    backend.apply_to_all_keys(descriptor, keep_even)
    assert state.value() is None
    assert sorted(backend.keys("total")) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda b: b.get_state(ValueStateDescriptor("v", int)).value(), "no current key.*'op'"),
        (lambda b: b.get_state(ValueStateDescriptor("v", int)).update(1), "no current key"),
        (lambda b: b.set_current_key([1]), r"'op'|list"),
        (lambda b: b.keys("nothing").__next__(), "no state 'nothing'"),
        (lambda b: b.get_state(ValueStateDescriptor("", int)), "name of a state is not legal"),
        (lambda b: b.get_state(ValueStateDescriptor("v", object)), "not supported"),
    ],
)
def test_misuse_is_named(backend: KeyedStateBackend, use: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        use(backend)
    backend.set_current_key("ann")
    backend.get_state(ValueStateDescriptor("fine", int)).update(1)


@pytest.mark.parametrize("wrong", [2.5, "x", 2**63, None, True])
def test_a_wrong_key_is_refused_and_the_current_one_stays(
    backend: KeyedStateBackend, wrong: Any
) -> None:
    state = backend.get_state(ValueStateDescriptor("v", int))
    backend.set_current_key(1)
    state.update(5)
    with pytest.raises(Invalid, match=r"'op'.*expected int of 64 bits"):
        backend.set_current_key(wrong)
    assert state.value() == 5


@pytest.mark.parametrize("wrong", [2.5, "x", 2**63, True])
def test_a_wrong_value_is_refused_and_the_old_one_stays(
    backend: KeyedStateBackend, wrong: Any
) -> None:
    state = backend.get_state(ValueStateDescriptor("v", int))
    backend.set_current_key(1)
    state.update(5)
    with pytest.raises(Invalid, match=r"state 'v'.*expected int"):
        state.update(wrong)
    with pytest.raises(Invalid, match="state 'v'"):
        state.put_many([1, 2], [6, wrong])
    assert state.get_many([1, 2]).to_pylist() == [5, None]


def test_a_state_declared_twice_differently_is_refused(backend: KeyedStateBackend) -> None:
    first = backend.get_state(ValueStateDescriptor("v", int))
    assert backend.get_state(ValueStateDescriptor("v", int)) is first
    with pytest.raises(Invalid, match="declared twice"):
        backend.get_state(ValueStateDescriptor("v", str))


def test_a_key_of_another_slot_is_refused() -> None:
    backend = load_backend("hashmap")
    with backend.open(uid="op", key_groups=KeyGroupRange(0, 63), max_parallelism=128) as opened:
        state = opened.get_state(ValueStateDescriptor("v", int))
        refused = 0
        for key in range(100):
            try:
                opened.set_current_key(key)
                state.update(key)
            except Invalid:
                refused += 1
        assert 20 < refused < 80
        with pytest.raises(Invalid, match="another slot"):
            state.put_many(pa.array(range(100)), pa.array(range(100)))
        assert len(list(opened.keys("v"))) == 100 - refused


def test_a_second_thread_and_a_closed_backend_are_refused(backend: KeyedStateBackend) -> None:
    state = backend.get_state(ValueStateDescriptor("v", int))
    backend.set_current_key(1)
    caught: list[Invalid] = []

    def elsewhere() -> None:
        for act in (lambda: backend.set_current_key(2), lambda: state.get_many([1])):
            try:
                act()
            except Invalid as error:
                caught.append(error)

    thread = Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert [error.what for error in caught] == ["a state backend is used from a second thread"] * 2
    backend.close()
    for use in (lambda: backend.set_current_key(1), state.value, lambda: state.update(1)):
        with pytest.raises(Invalid, match="closed"):
            use()


def test_backends_are_light_and_registered() -> None:
    backend = pickle.loads(pickle.dumps(load_backend("hashmap")))
    assert isinstance(backend, StateBackend)
    with pytest.raises(Invalid, match=r"no state backend is registered as 'heap'.*hashmap"):
        load_backend("heap")
    with pytest.raises(Invalid, match=r"option 'size' is not known.*no options"):
        load_backend("hashmap", size=1)


def test_key_groups_past_max_parallelism_are_refused() -> None:
    with pytest.raises(Invalid, match=r"key groups are out of range.*'op'.*below 64"):
        load_backend("hashmap").open(uid="op", key_groups=ALL, max_parallelism=64)


_NAN = float("nan")


@pytest.mark.parametrize(
    ("reduce", "kind", "columns"),
    [
        (operator.add, int, [pa.array([2**62, 2**62 - 1]), pa.array([-(2**62), 5])]),
        (operator.add, int, [pa.array([3, 4], pa.int8()), pa.array([100, 100], pa.int8())]),
        (operator.add, int, [pa.array([3, 4], pa.uint64()), pa.array([2**62, 0], pa.uint64())]),
        (min, int, [pa.array([-(2**63), 4]), pa.array([2**63 - 1, 0])]),
        (max, float, [pa.array([_NAN, 4.0]), pa.array([1.0, _NAN])]),
        (min, float, [pa.array([-0.0, 4.0]), pa.array([0.0, 2.5])]),
        (operator.add, float, [pa.array([3, 4]), pa.array([2**40, 0])]),
        (operator.add, float, [pa.array([0.5, 4.0], pa.float32()), pa.array([1.0, 2.0])]),
    ],
)
def test_numbers_are_reduced_in_columns_as_in_rows(
    backend: KeyedStateBackend, reduce: Any, kind: type, columns: list[pa.Array]
) -> None:
    batch = backend.get_state(ReducingStateDescriptor("batch", reduce, kind))
    row = backend.get_state(ReducingStateDescriptor("row", reduce, kind))
    keys = pa.array(["a", "a"])
    for column in columns:
        batch.reduce_many(keys, column)
        for value in column.to_pylist():
            backend.set_current_key("a")
            row.add(value)
    assert repr(batch.get()) == repr(row.get())
    assert type(batch.get()) is kind


@pytest.mark.parametrize("columns", [[[2**62, 2**62]], [[2**62], [2**62]], [[-(2**63)], [-1]]])
def test_a_sum_that_leaves_64_bits_is_refused(
    backend: KeyedStateBackend, columns: list[list[int]]
) -> None:
    state = backend.get_state(ReducingStateDescriptor("sum", operator.add, int))
    *before, last = columns
    for column in before:
        state.reduce_many(pa.array(["a"] * len(column)), pa.array(column))
    backend.set_current_key("a")
    was = state.get()
    with pytest.raises(Invalid, match=r"a value does not fit state 'sum'.*int of 64 bits"):
        state.reduce_many(pa.array(["a"] * len(last)), pa.array(last))
    assert state.get() == was


def test_a_namespace_lists_its_keys_as_they_were_set(backend: KeyedStateBackend) -> None:
    descriptor = ValueStateDescriptor("v", int)
    state = backend.get_state(descriptor, namespace_type=float)
    backend.set_current_key("a")
    state.set_current_namespace(1.0)
    state.update(1)
    assert list(backend.keys("v", 1)) == ["a"]
    with pytest.raises(Invalid, match="state 'v' has namespaces, and none is named"):
        list(backend.keys("v"))
    backend.apply_to_all_keys(
        descriptor, lambda _, found: found.clear(), namespace=1.0, namespace_type=float
    )
    assert state.namespace == 1.0
    assert list(backend.keys("v", 1.0)) == []
    backend.get_state(ValueStateDescriptor("w", int))
    with pytest.raises(Invalid, match="state 'w' has no namespaces"):
        list(backend.keys("w", 1.0))


def test_timers_must_be_declared_as_at_first(backend: KeyedStateBackend) -> None:
    timers = backend.timers("t", namespace_type=str)
    assert backend.timers("t", namespace_type=str) is timers
    with pytest.raises(Invalid, match="timers 't' are asked for twice, differently"):
        backend.timers("t")


def test_a_refused_batch_has_changed_nothing_however_long_it_is(backend: KeyedStateBackend) -> None:
    state = backend.get_state(ReducingStateDescriptor("sum", operator.add, int))
    keys = pa.array(range(20_000))
    state.reduce_many(keys[5_000:], pa.array([7] * 14_999 + [2**62]))
    with pytest.raises(Invalid, match="a value does not fit state 'sum'"):
        state.reduce_many(keys, pa.array([1] * 19_999 + [2**62]))
    assert len(list(backend.keys("sum"))) == 15_000
    assert set(state.get_many(keys[5_000:]).to_pylist()) == {7, 2**62}
    state.reduce_many(keys, pa.array([1] * 20_000))
    assert set(state.get_many(keys).to_pylist()) == {1, 8, 2**62 + 1}
