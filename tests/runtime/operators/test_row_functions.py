"""Functions over rows without keys: map, filter, flat_map and ProcessFunction."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import ListStateDescriptor, ValueStateDescriptor
from holdfast.runtime.api.errors import UserCodeFailed
from holdfast.runtime.api.functions import Context, OutputTag, ProcessFunction, RuntimeContext
from holdfast.runtime.operators import (
    FilterSpec,
    FlatMapSpec,
    MapSpec,
    ProcessSpec,
    UserFunctionSpec,
)
from holdfast.runtime.operators.row_and_timer_loops import MOST_RESULTS
from holdfast.storage import Invalid, StateSnapshot, load_storage
from support.jobs.operator_runs import ORDERS, opened, running, snapshots_of

SQUARES = pa.schema([("square", pa.int64())])


def spec_of(
    cls: type[UserFunctionSpec], function: Any, output: pa.Schema = ORDERS, **options: Any
) -> UserFunctionSpec:
    return cls(
        uid="op",
        name="f",
        input_schema=ORDERS,
        output_schema=output,
        function=pickle.dumps(function),
        **options,
    )


def squared(row: Any) -> int:
    return int(row.amount**2)


def is_even(row: Any) -> int | None:
    return 1 if row.amount % 2 == 0 else None


def repeated(row: Any) -> Any:
    made = ((row.user, number) for number in range(row.amount))
    return made if row.amount else None


def kept(_: Any) -> bool:
    return True


ROWS = [("a", 2), ("b", 3), ("c", 0)]


@pytest.mark.parametrize("timed", [False, True])
def test_map_filter_and_flat_map(*, timed: bool) -> None:
    width = 2 + timed
    with running(spec_of(MapSpec, squared, SQUARES, has_event_time=timed)) as slot:
        expected = [(4, 10), (9, None), (0, 30)]
        assert slot.feed(ROWS, [10, None, 30]) == [row[: 1 + timed] for row in expected]
        assert slot.feed([]) == []
    with running(spec_of(FilterSpec, is_even, has_event_time=timed)) as slot:
        assert slot.feed(ROWS, [10, 20, 30]) == [
            row[:width] for row in [("a", 2, 10), ("c", 0, 30)]
        ]
        assert slot.feed([("b", 1)]) == slot.feed([]) == []
    with running(spec_of(FlatMapSpec, repeated, has_event_time=timed)) as slot:
        repeats = [("a", 0, 10), ("a", 1, 10), ("b", 0, 20), ("b", 1, 20), ("b", 2, 20)]
        assert slot.feed(ROWS, [10, 20, 30]) == [row[:width] for row in repeats]
        assert slot.feed([("b", 0)]) == slot.feed([]) == []


def test_a_filter_that_keeps_all_passes_the_very_batch() -> None:
    with running(spec_of(FilterSpec, kept)) as slot:
        batch = pa.RecordBatch.from_pylist([{"user": "a", "amount": 1}], schema=ORDERS)
        slot.operator.process(batch, 0)
        assert slot.output.batches[0] is batch


def test_a_filter_keeps_its_schema() -> None:
    with pytest.raises(Invalid, match="the filter 'op' has another schema"):
        spec_of(FilterSpec, kept, SQUARES)


def test_many_results_of_flat_map_go_on_in_parts() -> None:
    with running(spec_of(FlatMapSpec, repeated)) as slot:
        slot.feed([])
        found = slot.feed([("a", MOST_RESULTS), ("b", 2)])
        assert len(found) == MOST_RESULTS + 2
        assert found[-2:] == [("b", 0), ("b", 1)]


def dividing(row: Any) -> Any:
    return [(row.user, 6 // row.amount)]


def yielding(row: Any) -> Iterator[Any]:
    yield row.user, 6 // row.amount


def dividing_row(row: Any) -> Any:
    return row.user, 6 // row.amount


def a_number(_: Any) -> Any:
    return 5


@pytest.mark.parametrize(
    ("cls", "function"),
    [
        (MapSpec, dividing_row),
        (FilterSpec, dividing_row),
        (FlatMapSpec, dividing),
        (FlatMapSpec, yielding),
    ],
)
def test_a_failure_names_function_and_row(cls: type[UserFunctionSpec], function: Any) -> None:
    with running(spec_of(cls, function)) as slot, pytest.raises(UserCodeFailed) as caught:
        slot.feed([("a", 1), ("b", 2), ("zero", 0), ("c", 3)])
    error = caught.value
    assert error.what == "the code of operator 'op' failed"
    assert error.where == f"{function.__qualname__}, row Row(user='zero', amount=0)"
    assert error.found == "ZeroDivisionError: integer division or modulo by zero"
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "6 // row.amount" in error.user_traceback
    assert "row_functions.py" not in error.user_traceback.replace("test_row_functions.py", "")


def test_an_answer_that_is_no_list_of_rows() -> None:
    with running(spec_of(FlatMapSpec, a_number)) as slot, pytest.raises(UserCodeFailed) as caught:
        slot.feed([("a", 1)])
    assert caught.value.found == "TypeError: 'int' object is not iterable"
    assert caught.value.fix == "A function answers rows in a list, yields them, or answers None"
    assert caught.value.user_traceback == ""


BIG = OutputTag("big", None)


class Sorting(ProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.seen = ctx.get_operator_list_state(ListStateDescriptor("seen", str))

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        self.seen.add(value.user)
        if value.amount > 10:
            yield BIG, value
        else:
            yield value.user, (ctx.timestamp() or 0) + ctx.timer_service().current_watermark() % 100
        yield ",".join(self.seen.get()), ctx.timer_service().current_processing_time()


def test_a_process_function_with_operator_state() -> None:
    spec = spec_of(ProcessSpec, Sorting(), side_schemas={"big": ORDERS}, has_event_time=True)
    job = load_storage("memory://").job("job")
    slots = [opened(spec, slot=number, parallelism=2, job=job) for number in range(2)]
    slots[0].advance(7)
    assert slots[0].feed([("a", 1), ("b", 50)], [20, 30]) == [
        ("a", 27, 20),
        ("a", 1_000, 20),
        ("a,b", 1_000, 30),
    ]
    assert slots[0].output.taken_side("big") == [("b", 50, 30)]
    slots[1].feed([("c", 1)])
    snapshots = snapshots_of(slots, 1, job)
    assert len(snapshots) == 2
    for slot in slots:
        slot.operator.close()
    with running(spec, job=job, restored=snapshots) as slot:
        assert slot.feed([("d", 1)], [0])[1:] == [("a,b,c,d", 1_000, 0)]


class Offsets(ProcessFunction):
    """Adds each row to a union list, which every slot has whole after a restore."""

    def open(self, ctx: RuntimeContext) -> None:
        self.offsets = ctx.get_union_list_state(ListStateDescriptor("offsets", int))

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        self.offsets.add(value.amount)
        yield value.user, sum(self.offsets.get())


def test_a_union_list_is_whole_though_the_input_of_a_slot_has_ended() -> None:
    """Flink refuses a checkpoint when some of the slots have ended."""
    spec, job = spec_of(ProcessSpec, Offsets()), load_storage("memory://").job("job")
    slots = [opened(spec, slot=slot, parallelism=2, job=job) for slot in range(2)]
    assert [slot.feed([("a", 10**number)]) for number, slot in enumerate(slots)] == [
        [("a", 1)],
        [("a", 10)],
    ]
    slots[0].operator.finish()
    snapshots = snapshots_of(slots, 1, job)
    for slot in slots:
        slot.operator.close()
    for number in range(3):
        restored = opened(spec, slot=number, parallelism=3, job=job, restored=snapshots)
        assert restored.feed([("b", 100)]) == [("b", 111)]
        restored.operator.close()


class Sometimes(ProcessFunction):
    """Asks for state in one slot only, and when a row is there."""

    def open(self, ctx: RuntimeContext) -> None:
        self.ctx = ctx

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        seen = self.ctx.get_operator_list_state(ListStateDescriptor("seen", str))
        seen.add(value.user)
        yield ",".join(sorted(seen.get())), value.amount


def test_operator_state_that_only_one_slot_asked_for() -> None:
    spec = spec_of(ProcessSpec, Sometimes())
    job = load_storage("memory://").job("job")
    snapshots: list[StateSnapshot] = []
    expected = ""
    for number, parallelism in enumerate((3, 3, 2, 1)):
        slots = [
            opened(spec, slot=slot, parallelism=parallelism, job=job, restored=snapshots)
            for slot in range(parallelism)
        ]
        assert snapshots_of(slots[:1], 10 * number, job) == [] or number
        expected = "a" * (number + 1)
        ((found, _),) = slots[0].feed([("a", 1)])
        if parallelism != 2:
            assert found == ",".join(expected)
        snapshots = snapshots_of(slots, number + 1, job)
        assert len(snapshots) == (1 if number == 0 else parallelism)
        for slot in slots:
            slot.operator.close()


class Careless(ProcessFunction):
    """Asks for what there is only with keys."""

    def __init__(self, case: str) -> None:
        self.case = case

    def open(self, ctx: RuntimeContext) -> None:
        if self.case == "state":
            ctx.get_state(ValueStateDescriptor("v", int))

    def process_element(self, value: Any, ctx: Context) -> None:
        getattr(ctx.timer_service(), self.case)(5)


def test_keyed_state_needs_keys() -> None:
    with pytest.raises(Invalid) as caught:
        opened(spec_of(ProcessSpec, Careless("state")))
    assert caught.value.what == "there is no keyed state 'v' without keys"
    assert caught.value.where == "operator 'op'"


@pytest.mark.parametrize("verb", ["register", "delete"])
@pytest.mark.parametrize("domain", ["event", "processing"])
def test_timers_need_keys(verb: str, domain: str) -> None:
    spec = spec_of(ProcessSpec, Careless(f"{verb}_{domain}_time_timer"))
    with running(spec) as slot, pytest.raises(UserCodeFailed) as caught:
        slot.feed([("a", 1)])
    assert isinstance(caught.value.__cause__, Invalid)
    assert caught.value.__cause__.what == "there are no timers without keys"
