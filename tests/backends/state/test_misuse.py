"""Errors for misuse by users; none of it changes state."""

import operator
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
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
    StateTtlConfig,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.storage import Invalid, load_storage


class Sum(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


SUM = ReducingStateDescriptor("sum", operator.add, int)
TOTAL = AggregatingStateDescriptor("total", Sum(), int)
MAP = MapStateDescriptor("map", int, int)
VALUE = ValueStateDescriptor("v", int)
_ANY: dict[Any, Any] = {"old": "old", 5: 5}
"""What types would not let pass."""


@pytest.fixture
def backend() -> Iterator[KeyedStateBackend]:
    with load_backend("hashmap").open(
        uid="op", key_groups=KeyGroupRange(0, 127), max_parallelism=128, key_type=int
    ) as opened:
        opened.set_current_key(1)
        yield opened


def test_a_default_is_the_callers_own(backend: KeyedStateBackend) -> None:
    state = backend.get_state(ValueStateDescriptor("v", list[int], default=[]))
    state.value().append(1)
    state.get_many([1])[0].append(2)
    assert (state.value(), state.get_many([1, 2])) == ([], [[], []])


def test_a_default_is_of_the_type_of_values(backend: KeyedStateBackend) -> None:
    with pytest.raises(Invalid, match=r"the default of state 'v' does not fit its type.*int.*'x'"):
        backend.get_state(ValueStateDescriptor("v", int, default="x"))
    assert backend.get_state(ValueStateDescriptor("v", float, default=1)).value() == 1.0


@pytest.mark.parametrize(
    ("descriptor", "use", "message"),
    [
        (VALUE, lambda state: state.update("x"), r"state 'v' \[operator 'op'\].*int.*'x'"),
        (MAP, lambda state: state.put("x", 1), r"a map key.*'map' \[operator 'op'\].*int.*'x'"),
        (
            ListStateDescriptor("list", list[int]),
            lambda state: state.add([1, "x"]),
            r"state 'list' \[operator 'op', at \[1\]\].*expected int, found str 'x'",
        ),
        (SUM, lambda state: state.add("x"), "state 'sum'.*expected int, found str 'x'"),
        (SUM, lambda state: state.add(True), "state 'sum'.*expected int, found bool"),
        (SUM, lambda state: state.reduce_many([1, 1], [1, "x"]), "'sum'.*int, found str 'x'"),
        (SUM, lambda state: state.reduce_many([1, 1], [True, True]), "'sum'.*int, found bool"),
        (SUM, lambda state: state.reduce_many([1], [None]), "null"),
        (TOTAL, lambda state: state.add_many([1, 2], [1]), "'total' are not of one length"),
    ],
)
def test_values_that_do_not_fit_are_named(
    backend: KeyedStateBackend, descriptor: Any, use: Callable[[Any], None], message: str
) -> None:
    state = backend.get_state(descriptor)
    with pytest.raises(Invalid, match=message):
        use(state)
    assert list(backend.keys(descriptor.name)) == []


def test_a_namespace_that_does_not_fit_is_named(backend: KeyedStateBackend) -> None:
    state = backend.get_state(VALUE, namespace_type=int)
    with pytest.raises(Invalid, match=r"a namespace .* state 'v' \[operator 'op'\].*int.*'x'"):
        state.set_current_namespace("x")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: ValueStateDescriptor("v", int, aliases=_ANY["old"]), "expected a tuple.*'old'"),
        (lambda: ValueStateDescriptor(_ANY[5], int), "name of a state is not legal.*found 5"),
        (lambda: ValueStateDescriptor("a\ud800", int), "not legal.*that UTF-8 can hold"),
        (lambda: StateTtlConfig(ttl=_ANY[5]), "is no timedelta: expected a timedelta.* found 5"),
        (lambda: StateTtlConfig(ttl=timedelta(microseconds=999)), "at least a millisecond"),
    ],
)
def test_a_wrong_declaration_is_refused(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        declare()


def test_an_object_that_is_not_a_descriptor_is_refused(backend: KeyedStateBackend) -> None:
    with pytest.raises(Invalid, match=r"no descriptor of state.*'total'"):
        backend.get_state("total")  # type: ignore[arg-type]


def test_a_map_with_values_of_none_keeps_its_keys(backend: KeyedStateBackend) -> None:
    state = backend.get_state(MapStateDescriptor("seen", str, None))
    state.put("a", None)
    assert list(state.items()) == [("a", None)]


def test_rows_and_timers_may_be_used_by_the_owning_thread_only(backend: KeyedStateBackend) -> None:
    entries, timers = backend.get_state(MAP), backend.timers("t")
    uses = (
        lambda: entries.put(1, 1),
        lambda: timers.register_event_time_timer(5),
        timers.next_event_time,
        lambda: list(timers.due_event_time(9)),
    )
    refused = []

    def elsewhere() -> None:
        for use in uses:
            with pytest.raises(Invalid, match=r"used from a second thread.*'op'"):
                use()
            refused.append(use)

    thread = Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(refused) == len(uses)
    assert (entries.is_empty(), timers.next_event_time()) == (True, None)
    backend.close()
    for use in uses:
        with pytest.raises(Invalid, match="closed"):
            use()


def test_days_that_python_cannot_represent_are_invalid() -> None:
    days = pa.array([10**7], pa.int32()).cast(pa.date32())
    with load_backend("hashmap").open(
        uid="op", key_groups=KeyGroupRange(0, 127), max_parallelism=128, key_type=date
    ) as opened:
        state = opened.get_state(VALUE)
        with pytest.raises(Invalid, match=r"does not fit their type.*keys of type date.*date32"):
            state.put_many(days, [1])


def test_the_namespace_nan_is_equal_to_itself(backend: KeyedStateBackend) -> None:
    state = backend.get_state(VALUE, namespace_type=float)
    state.set_current_namespace(float("nan"))
    state.update(1)
    assert list(backend.keys("v", float("nan"))) == [1]


def test_a_merge_that_fails_has_changed_nothing(backend: KeyedStateBackend) -> None:
    state = backend.get_state(TOTAL, namespace_type=int)
    for namespace in (1, 2, 3):
        state.set_current_namespace(namespace)
        state.add(namespace)
    with pytest.raises(Invalid, match="Sum cannot merge accumulators"):
        state.merge_namespaces(1, [2, 3])
    assert state.get() == 1
    for namespace in (2, 3):
        state.set_current_namespace(namespace)
        assert state.get() == namespace


def test_a_namespace_is_merged_once_however_often_it_is_named(backend: KeyedStateBackend) -> None:
    state = backend.get_state(SUM, namespace_type=int)
    for namespace in (1, 2):
        state.set_current_namespace(namespace)
        state.add(namespace)
    state.merge_namespaces(1, [2, 1, 2])
    assert state.get() == 3
    assert (list(backend.keys("sum", 1)), list(backend.keys("sum", 2))) == ([1], [])


def test_values_that_do_not_compare_are_written_by_the_batch() -> None:
    descriptor = ValueStateDescriptor("v", np.ndarray, pickle=True, default=np.zeros(2))
    with load_backend("hashmap").open(
        uid="op", key_groups=KeyGroupRange(0, 127), max_parallelism=128, allow_pickle=True
    ) as opened:
        state = opened.get_state(descriptor)
        state.put_many([1, 2], [np.arange(3), None])
        assert [each.tolist() for each in state.get_many([1, 2])] == [[0, 1, 2], [0, 0]]


def test_a_lambda_written_anew_is_the_same_state() -> None:
    with load_backend("hashmap").open(
        uid="op", key_groups=KeyGroupRange(0, 127), max_parallelism=128
    ) as backend:
        first = backend.get_state(ReducingStateDescriptor("r", lambda a, b: a + b, int))
        assert backend.get_state(ReducingStateDescriptor("r", lambda a, b: a + b, int)) is first
        with pytest.raises(Invalid, match="state 'r' is declared twice, differently"):
            backend.get_state(ReducingStateDescriptor("r", lambda a, b: a + b, float))


def test_a_restore_of_part_of_the_key_groups_is_refused(tmp_path: Path) -> None:
    job = load_storage(str(tmp_path)).job("j")
    backend = load_backend("hashmap")
    half = KeyGroupRange(0, 63)
    with backend.open(uid="op", key_groups=half, max_parallelism=128, key_type=int) as state:
        snapshot = state.snapshot(1, job).result(30)
    with pytest.raises(Invalid, match=r"operator 'op' do not have all key groups.*group 64"):
        backend.open(
            uid="op",
            key_groups=KeyGroupRange(0, 127),
            max_parallelism=128,
            restore=[snapshot],
            storage=job,
        )
