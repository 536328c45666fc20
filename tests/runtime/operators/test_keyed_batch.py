"""A keyed function over batches: what it is given, what it may answer, and what is refused."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.backends import ReducingStateDescriptor, StateBackend, ValueStateDescriptor
from holdfast.runtime.api.functions import (
    BatchContext,
    BatchOrder,
    KeyedBatchFunction,
    KeyedContext,
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
)
from holdfast.runtime.operators import KeyedBatchSpec, KeyedProcessSpec
from holdfast.runtime.protocol.operator import OperatorSpec
from holdfast.storage import Invalid
from support.jobs.operator_runs import ORDERS, Collected, Row, keyed, running, tuples

Results = Iterator[Any]
SUM = ReducingStateDescriptor("total", operator.add, int)


def batched(
    function: KeyedBatchFunction, output: pa.Schema = ORDERS, **options: Any
) -> OperatorSpec:
    return keyed(function, output, cls=KeyedBatchSpec, **options)


class BatchSum(KeyedBatchFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.total = ctx.get_reducing_state(SUM)

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> Results:
        keys = ctx.keys()
        self.total.reduce_many(keys, batch["amount"])
        unique = keys.unique()
        yield pa.RecordBatch.from_arrays([unique, self.total.get_many(unique)], schema=ORDERS)


class RowSum(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Results:
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        yield ctx.get_current_key(), total


def last_of_each(rows: list[Row]) -> dict[Any, Any]:
    return dict(rows)


def test_rows_and_batches_come_to_the_same(backend: StateBackend) -> None:
    numbers = np.random.default_rng(5).integers(0, 5_000, (100_000, 2))
    schema = pa.schema([("user", pa.int64()), ("amount", pa.int64())])
    whole = pa.RecordBatch.from_arrays(
        [pa.array(numbers[:, 0]), pa.array(numbers[:, 1])], schema=schema
    )
    found = []
    for function, cls in ((RowSum(), KeyedProcessSpec), (IntBatchSum(), KeyedBatchSpec)):
        with running(
            keyed(function, schema, input_schema=schema, cls=cls), backend=backend
        ) as slot:
            for start in (0, 1, 30_000):
                end = {0: 1, 1: 30_000, 30_000: 100_000}[start]
                slot.operator.process(whole.slice(start, end - start), 0)
            found.append(last_of_each(slot.output.taken()))
    expected = np.bincount(numbers[:, 0], numbers[:, 1]).astype(int).tolist()
    assert found[0] == found[1] == dict(enumerate(expected))


class IntBatchSum(BatchSum):
    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> Results:
        self.total.reduce_many(batch["user"], batch["amount"])
        unique = batch["user"].unique()
        yield pa.record_batch([unique, self.total.get_many(unique)], names=["user", "amount"])


class Showing(KeyedBatchFunction):
    """Answers what it was given."""

    def __init__(self, order: BatchOrder) -> None:
        self.order = order

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> pa.RecordBatch:
        times = ctx.timestamps()
        if times is not None:
            assert batch.column_names == ["user", "amount"]
            assert [-time for time in times.to_pylist()] == batch["amount"].to_pylist()
        return batch


@pytest.mark.parametrize("keys", [("user",), ("parity", "user")])
@pytest.mark.parametrize("timed", [False, True])
def test_the_order_that_a_function_asks_for(keys: tuple[str, ...], *, timed: bool) -> None:
    schema = ORDERS.append(pa.field("parity", pa.bool_())) if len(keys) > 1 else ORDERS
    chance = random.Random(8)
    rows: list[Row] = [(chance.choice("dabc"), number) for number in range(300)]
    if len(keys) > 1:
        rows = [(*row, bool(row[1] % 2)) for row in rows]
    key = operator.itemgetter(*(schema.get_field_index(name) for name in keys))
    times = [-number for number in range(300)]
    for order in BatchOrder:
        spec = batched(Showing(order), schema, input_schema=schema, keys=keys)
        if timed and len(keys) == 1:
            spec = batched(Showing(order), schema, keys=keys, has_event_time=True)
        with running(spec) as slot:
            found = [row[: len(schema)] for row in slot.feed(rows, times)]
        if order is BatchOrder.AS_THEY_COME:
            assert found == rows
            continue
        assert sorted(found, key=key) == sorted(rows, key=key)
        groups = [group for group, _ in groupby(found, key)]
        assert groups == list(
            dict.fromkeys(map(key, rows if order is BatchOrder.GROUPED else found))
        )
        if order is BatchOrder.SORTED:
            assert found == sorted(rows, key=key)


KEY_COLUMNS = [
    pa.array([3, 1, 3, 2, 1], pa.int32()),
    pa.array([0.0, 1.5, -0.0, float("nan"), 0.0]),
    pa.array(["b", "a", "b", "é", "a"]).dictionary_encode(),
    pa.array([b"b", b"a", b"b", b"c", b"a"], pa.binary(1)),
    pa.array([True, False, True, False, False]),
    pa.array([3, 1, 3, 2, 1]).cast(pa.timestamp("us")),
    pa.array([3, 1, 3, 2, 1], pa.decimal128(5, 1)),
]


@pytest.mark.parametrize("column", KEY_COLUMNS, ids=[str(each.type) for each in KEY_COLUMNS])
@pytest.mark.parametrize("order", [BatchOrder.GROUPED, BatchOrder.SORTED])
def test_keys_of_every_type_are_put_in_order(column: pa.Array, order: BatchOrder) -> None:
    schema = pa.schema([("key", column.type), ("n", pa.int64())])
    batch = pa.record_batch([column, pa.array(range(5))], schema=schema)
    spec = batched(Showing(order), schema, input_schema=schema, keys=("key",))
    with running(spec) as slot:
        slot.operator.process(batch, 0)
        found = [row[1] for row in slot.output.taken()]
    keys = [repr(key).replace("-", "") for key in column.to_pylist()]
    groups = [key for key, _ in groupby(keys[place] for place in found)]
    assert len(groups) == len(set(groups))
    for key in groups:
        its = [place for place in found if keys[place] == key]
        assert its == sorted(its)
    if order is BatchOrder.SORTED and "nan" not in keys:
        values = [column.to_pylist()[place] for place in found]
        assert values == sorted(values)


def test_more_keys_than_sixteen_bits_are_grouped() -> None:
    schema = pa.schema([("user", pa.int64()), ("amount", pa.int64())])
    users = np.tile(np.arange(70_000)[::-1], 2)
    batch = pa.record_batch([pa.array(users), pa.array(range(140_000))], schema=schema)
    with running(batched(Showing(BatchOrder.GROUPED), schema, input_schema=schema)) as slot:
        slot.operator.process(batch, 0)
        found = [row[1] for row in slot.output.taken()]
    assert found == [place + half for place in range(70_000) for half in (0, 70_000)]


class Answering(KeyedBatchFunction):
    """Answers what the case says."""

    def __init__(self, case: str) -> None:
        self.case = case

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> Any:
        return ANSWERS[self.case](batch)


LATE = OutputTag("late", None)
UNREAD = OutputTag("unread", None)
NAMES = pa.schema([("user", pa.string())])


def late(batch: pa.RecordBatch) -> tuple[OutputTag, pa.RecordBatch]:
    return LATE, batch.select(["user"])


ANSWERS: dict[str, Any] = {
    "none": lambda _: None,
    "nothing": lambda _: [],
    "batch": lambda batch: batch,
    "table": lambda batch: pa.Table.from_batches([batch, batch]),
    "list": lambda batch: [batch, pa.Table.from_batches([batch])],
    "yield": lambda batch: (each for each in (batch, batch)),
    "tag": late,
    "tags": lambda batch: [late(batch), batch, (UNREAD, "whatever"), late(batch)],
    "empty": lambda batch: batch.slice(0, 0),
    "columns turned": lambda batch: batch.select(["amount", "user"]),
    "narrow": lambda batch: batch.set_column(1, "amount", batch["amount"].cast(pa.int8())),
    "large": lambda batch: batch.set_column(0, "user", batch["user"].cast(pa.large_string())),
    "encoded": lambda batch: batch.set_column(0, "user", batch["user"].dictionary_encode()),
    "nulls": lambda batch: batch.set_column(1, "amount", pa.nulls(batch.num_rows)),
}


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize(
    ("case", "times_main", "times_late"),
    [
        ("none", 0, 0),
        ("nothing", 0, 0),
        ("batch", 1, 0),
        ("table", 2, 0),
        ("list", 2, 0),
        ("yield", 2, 0),
        ("tag", 0, 1),
        ("tags", 1, 2),
        ("empty", 0, 0),
        ("columns turned", 1, 0),
        ("narrow", 1, 0),
        ("large", 1, 0),
        ("encoded", 1, 0),
    ],
)
def test_a_batch_function_may_return_each_of_these(
    case: str, times_main: int, times_late: int, *, timed: bool
) -> None:
    spec = batched(Answering(case), side_schemas={"late": NAMES}, has_event_time=timed)
    with running(spec) as slot:
        found = slot.feed([("a", 1), ("b", 2)], [70, 60])
        # All that comes of a batch happened when its last row did.
        main, late_rows = [("a", 1, 70), ("b", 2, 70)], [("a", 70), ("b", 70)]
        assert found == [row[: 2 + timed] for row in main] * times_main
        assert (
            slot.output.taken_side("late") == [row[: 1 + timed] for row in late_rows] * times_late
        )
        assert slot.output.sides == {}
        assert slot.feed([]) == []


def test_event_time_of_batches_without_any() -> None:
    with running(batched(Answering("batch"), has_event_time=True)) as slot:
        assert slot.feed([("a", 1)], [None]) == [("a", 1, None)]
        assert slot.feed([("a", 1), ("b", 2)], [None, 3]) == [("a", 1, 3), ("b", 2, 3)]


ANSWERS |= {
    "wide": lambda batch: batch.set_column(1, "amount", batch["amount"].cast(pa.float64())),
    "text": lambda batch: batch.set_column(1, "amount", batch["amount"].cast(pa.string())),
    "more": lambda batch: batch.append_column("more", batch["user"]),
    "fewer": lambda batch: batch.select(["user"]),
    "rows": lambda _: [("a", 1)],
    "number": lambda _: 5,
    "late": lambda batch: [(LATE, batch)],
    "big": lambda batch: batch.set_column(1, "amount", pa.array([2**40] * batch.num_rows)),
}
ONE = "a pyarrow RecordBatch or Table, or a tag with one"
STRICT = pa.schema([("user", pa.string()), pa.field("amount", pa.int32(), nullable=False)])


@pytest.mark.parametrize(
    ("case", "what", "where", "expected", "found"),
    [
        (
            "wide",
            "a batch has a column of another type than its output",
            ", column 'amount'",
            "int32",
            "double",
        ),
        (
            "text",
            "a batch has a column of another type than its output",
            ", column 'amount'",
            "int32",
            "string",
        ),
        (
            "more",
            "a batch has other columns than its output",
            "",
            "user, amount",
            "user, amount, more",
        ),
        ("fewer", "a batch has other columns than its output", "", "user, amount", "user"),
        ("rows", "a function over batches answered something else", "", ONE, "builtins.tuple"),
        (
            "late",
            "a batch has other columns than its output",
            ", side output 'late'",
            "user",
            "user, amount",
        ),
        (
            "nulls",
            "a batch has nulls where there must be none",
            ", column 'amount'",
            "int32, not null",
            "1 nulls in 1 rows",
        ),
    ],
)
def test_answers_that_do_not_fit(
    case: str, what: str, where: str, expected: str, found: str
) -> None:
    spec = batched(Answering(case), STRICT, side_schemas={"late": NAMES})
    with running(spec) as slot, pytest.raises(Invalid) as caught:
        slot.feed([("a", 1)])
    error = caught.value
    assert (error.what, error.where) == (what, f"operator 'op'{where}")
    assert (error.expected, error.found) == (expected, found)
    assert slot.output.batches == []


def test_a_value_too_large_for_its_column() -> None:
    with running(batched(Answering("big"), STRICT)) as slot, pytest.raises(Invalid) as caught:
        slot.feed([("a", 1)])
    assert (
        caught.value.found
        == "int64: Integer value 1099511627776 not in range: -2147483648 to 2147483647"
    )


def test_nulls_in_keys_are_refused_in_any_order() -> None:
    for order in BatchOrder:
        with running(batched(Showing(order))) as slot, pytest.raises(Invalid) as caught:
            slot.feed([("a", 1), (None, 2)])
        assert caught.value.what == "key column 'user' has a null"


class Downstream(Collected):
    """The next operator in the chain, which fails."""

    def emit(self, batch: pa.RecordBatch) -> None:
        raise ZeroDivisionError(tuples([batch]))


@pytest.mark.parametrize("spec", [keyed(RowSum()), batched(BatchSum())], ids=["rows", "batches"])
def test_a_failure_downstream_is_not_attributed_to_the_function(spec: OperatorSpec) -> None:
    output = Downstream()
    with (
        running(spec, output=output) as slot,
        pytest.raises(ZeroDivisionError, match=r"\('a', 1\)"),
    ):
        slot.feed([("a", 1)])
