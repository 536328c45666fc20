"""A keyed function over rows: state of each kind, keys of each type, side outputs, results."""

from __future__ import annotations

import datetime as dt
import operator
import pickle
import random
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateBackend,
    ValueStateDescriptor,
)
from holdfast.runtime.api.functions import (
    Context,
    KeyedContext,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
)
from holdfast.runtime.operators import ProcessSpec, key_type_of
from holdfast.runtime.operators.row_and_timer_loops import MOST_RESULTS
from holdfast.storage import Invalid, load_storage
from support.jobs.operator_runs import ORDERS, Row, keyed, opened, running, snapshots_of

Results = Iterator[Any]


class Spend(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Results:
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        yield value.user, total


def test_a_sum_by_key(backend: StateBackend) -> None:
    with running(keyed(Spend()), backend=backend) as slot:
        assert slot.feed([("a", 1), ("b", 5), ("a", 2)]) == [("a", 1), ("b", 5), ("a", 3)]
        assert slot.feed([]) == []
        assert slot.feed([("b", 1)]) == [("b", 6)]
        assert slot.output.sides == {}


class Hasty(KeyedProcessFunction):
    """Reads state before there is a row, and so a key."""

    def open(self, ctx: RuntimeContext) -> None:
        ctx.get_state(ValueStateDescriptor("total", int)).value()

    def process_element(self, value: Any, ctx: KeyedContext) -> None: ...


def test_state_in_open_is_refused_with_what_to_do_instead(backend: StateBackend) -> None:
    with pytest.raises(Invalid, match="there is no current key") as caught:
        opened(keyed(Hasty()), backend=backend)
    assert caught.value.fix.startswith("In open only declare state; use it in process_element")


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return one[0] + other[0], one[1] + other[1]


MEAN = AggregatingStateDescriptor("mean", Mean(), tuple[int, int])
ALL_STATES = pa.schema(
    [
        ("user", pa.string()),
        ("values", pa.list_(pa.int64())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("most", pa.int64()),
        ("mean", pa.float64()),
        ("rows_here", pa.int64()),
    ]
)


class AllStates(KeyedProcessFunction):
    """Each kind of state. The mean is asked for only when the first row is here."""

    def open(self, ctx: RuntimeContext) -> None:
        self.ctx = ctx
        self.values = ctx.get_list_state(ListStateDescriptor("values", int))
        self.counts = ctx.get_map_state(MapStateDescriptor("counts", str, int))
        self.most = ctx.get_reducing_state(ReducingStateDescriptor("most", max, int))
        self.seen = ctx.get_operator_list_state(ListStateDescriptor("seen", int))
        self.rules = ctx.get_broadcast_state(MapStateDescriptor("rules", str, int))
        ctx.get_union_list_state(ListStateDescriptor("union", int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Results:
        mean = self.ctx.get_aggregating_state(MEAN)
        assert ctx.get_current_key() == value.user
        assert ctx.timestamp() is None
        parity = "odd" if value.amount % 2 else "even"
        self.values.add(value.amount)
        self.counts.put(parity, (self.counts.get(parity) or 0) + 1)
        self.most.add(value.amount)
        mean.add(value.amount)
        self.seen.add(value.amount)
        self.rules.put("last", value.amount)
        counts = dict(sorted(self.counts.items()))  # it has no order of its own
        yield (
            value.user,
            self.values.get(),
            counts,
            self.most.get(),
            mean.get(),
            len(self.seen.get()),
        )


def expected_of_all_states(rows: list[Row]) -> list[Row]:
    before: dict[str, list[int]] = defaultdict(list)
    results: list[Row] = []
    for place, (user, amount) in enumerate(rows):
        its = before[user]
        its.append(amount)
        parities = ["odd" if each % 2 else "even" for each in its]
        counts = [(each, parities.count(each)) for each in sorted({*parities})]
        results.append((user, list(its), counts, max(its), sum(its) / len(its), place + 1))
    return results


def test_every_kind_of_state(backend: StateBackend) -> None:
    chance = random.Random(3)
    rows = [(chance.choice("abcd"), chance.randrange(100)) for _ in range(200)]
    with running(keyed(AllStates(), ALL_STATES), backend=backend) as slot:
        assert slot.feed(rows[:150]) + slot.feed(rows[150:]) == expected_of_all_states(rows)


LATE = OutputTag("late", "user string")
UNREAD = OutputTag("unread", "user string")
LATE_SCHEMA = pa.schema([("user", pa.string())])


class Tagging(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedContext) -> Results:
        if value.amount % 3 == 0:
            yield LATE, (value.user,)
        if value.amount % 3 == 1:
            yield UNREAD, ("no schema is known", object())
        if value.amount % 2 == 0:
            yield value
        if value.amount == 9:
            yield LATE, {"user": "nine"}
            yield LATE, "bare"


@pytest.mark.parametrize("timed", [False, True])
def test_side_outputs(*, timed: bool) -> None:
    spec = keyed(Tagging(), side_schemas={"late": LATE_SCHEMA}, has_event_time=timed)
    rows = [("u", amount) for amount in range(12)]
    with running(spec) as slot:
        found = slot.feed(rows, [100 + amount for amount in range(12)])
        late = slot.output.taken_side("late")
        assert slot.output.sides == {}
        even = [("u", amount, 100 + amount)[: 2 + timed] for amount in range(0, 12, 2)]
        assert found == even
        assert [row[0] for row in late] == ["u", "u", "u", "u", "nine", "bare"]
        if timed:
            assert [row[1] for row in late] == [100, 103, 106, 109, 109, 109]
        assert slot.feed([("u", 2)], [7]) == [("u", 2, 7)[: 2 + timed]]
        assert slot.feed([("u", 3)], [7]) == []
        assert slot.feed([("u", 1)], [7]) == []


class Repeating(KeyedProcessFunction):
    """As many results as the amount says: in a list, yielded, or None."""

    def process_element(self, value: Any, ctx: KeyedContext) -> Any:
        made = [(value.user, number) for number in range(value.amount)]
        return made if value.amount % 2 else iter(made) if made else None


@pytest.mark.parametrize("timed", [False, True])
def test_any_number_of_results_for_a_row(*, timed: bool) -> None:
    amounts = [0, 3, 0, 1, 2, 5, 0]
    expected = [
        ("u", number, 50 + place)[: 2 + timed]
        for place, amount in enumerate(amounts)
        for number in range(amount)
    ]
    with running(keyed(Repeating(), has_event_time=timed)) as slot:
        times = [50 + place for place in range(len(amounts))]
        assert slot.feed([("u", amount) for amount in amounts], times) == expected


@pytest.mark.parametrize("timed", [False, True])
def test_many_results_go_on_in_parts(*, timed: bool) -> None:
    amounts = [MOST_RESULTS - 1, 1, MOST_RESULTS + 7, 1, 0, 2]
    with running(keyed(Repeating(), has_event_time=timed)) as slot:
        slot.operator.process(
            pa.RecordBatch.from_arrays(
                [pa.array(["u"] * 6), pa.array(amounts), *([pa.array(range(6))] if timed else [])],
                names=["user", "amount", "_event_time_ms"][: 2 + timed],
            ),
            0,
        )
        sizes = [batch.num_rows for batch in slot.output.batches]
        assert sizes == [MOST_RESULTS, MOST_RESULTS + 7, 3]
        found = slot.output.taken()
        assert [row[1] for row in found] == [n for amount in amounts for n in range(amount)]
        if timed:
            places = [place for place, amount in enumerate(amounts) for _ in range(amount)]
            assert [row[2] for row in found] == places


MOMENT = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
NAIVE = MOMENT.replace(tzinfo=None)
KEYS: list[tuple[pa.DataType, Any, list[Any]]] = [
    (pa.int8(), int, [1, -1]),
    (pa.int64(), int, [2**62, 0]),
    (pa.uint32(), int, [2**31, 0]),
    (pa.string(), str, ["é", ""]),
    (pa.large_string(), str, ["a", "b"]),
    (pa.dictionary(pa.int8(), pa.string()), str, ["a", "b"]),
    (pa.binary(), bytes, [b"\0", b""]),
    (pa.bool_(), bool, [True, False]),
    (pa.float64(), float, [1.5, -0.0]),
    (pa.float32(), float, [0.5, 2.0]),
    (pa.date32(), dt.date, [dt.date(2024, 1, 1), dt.date(1969, 1, 1)]),
    (pa.timestamp("us", "UTC"), dt.datetime, [MOMENT, MOMENT + dt.timedelta(1)]),
    (pa.timestamp("ms"), dt.datetime, [NAIVE, NAIVE - dt.timedelta(60_000)]),
    (pa.decimal128(9, 2), Decimal, [Decimal("1.50"), Decimal("0.00")]),
]
COUNTS = pa.schema([("key", pa.string()), ("count", pa.int64())])


class Count(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_reducing_state(ReducingStateDescriptor("n", operator.add, int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Results:
        self.count.add(1)
        key = ctx.get_current_key()
        yield f"{type(key).__name__} {key}", self.count.get()


@pytest.mark.parametrize(("kind", "key_type", "keys"), KEYS, ids=[str(each[0]) for each in KEYS])
def test_keys_of_every_type(
    kind: pa.DataType, key_type: Any, keys: list[Any], backend: StateBackend
) -> None:
    schema = pa.schema([("k", kind)])
    assert key_type_of(schema, ["k"], "op") is key_type
    with running(keyed(Count(), COUNTS, input_schema=schema, keys=("k",)), backend=backend) as slot:
        found = slot.feed([(key,) for key in (keys[0], keys[1], keys[0])])
        assert [count for _, count in found] == [1, 1, 2]
        assert found[0][0] == found[2][0] != found[1][0]
        assert found[0][0].startswith(f"{key_type.__name__} ")


def test_keys_of_several_columns(backend: StateBackend) -> None:
    schema = pa.schema([("v", pa.int64()), ("b", pa.string()), ("a", pa.int32())])
    assert key_type_of(schema, ["a", "b"], "op") == tuple[int, str]
    with running(
        keyed(Count(), COUNTS, input_schema=schema, keys=("a", "b")), backend=backend
    ) as slot:
        found = slot.feed([(0, "x", 1), (0, "y", 1), (5, "x", 1), (0, "x", 2)])
        assert found == [
            ("tuple (1, 'x')", 1),
            ("tuple (1, 'y')", 1),
            ("tuple (1, 'x')", 2),
            ("tuple (2, 'x')", 1),
        ]


@pytest.mark.parametrize(
    ("columns", "what", "found"),
    [
        ([], "the key is not made of columns", "none"),
        (["user", "user"], "the key is not made of columns", "'user', 'user'"),
        (["nobody"], "there is no key column 'nobody'", "no column of that name"),
        (["twice"], "several columns have one name", "2 columns 'twice'"),
        (["tags"], "column 'tags' cannot be a key", "list<item: string>"),
        (["user", "at"], "column 'at' cannot be a key", "time64[us]"),
    ],
)
def test_columns_that_make_no_key(columns: list[str], what: str, found: str) -> None:
    schema = pa.schema(
        [
            ("user", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("at", pa.time64("us")),
            ("twice", pa.int64()),
            ("twice", pa.int64()),
        ]
    )
    with pytest.raises(Invalid) as caught:
        key_type_of(schema, columns, "op")
    assert (caught.value.what, caught.value.where) == (what, "operator 'op'")
    assert caught.value.found == found


def test_a_spec_without_its_key_column_cannot_be_made() -> None:
    with pytest.raises(Invalid, match="there is no key column 'nobody'"):
        keyed(Spend(), keys=("nobody",))


@pytest.mark.parametrize("keys", [("user",), ("amount", "user")])
def test_a_null_key_is_refused(keys: tuple[str, ...]) -> None:
    with running(keyed(Spend(), keys=keys)) as slot, pytest.raises(Invalid) as caught:
        slot.feed([("a", 1), (None, 2), (None, 3)])
    error = caught.value
    assert error.what == "key column 'user' has a null"
    assert error.where == "operator 'op', row 1 of a batch of 3"
    assert error.found == "2 nulls"
    assert error.fix == "Drop such rows before key_by, or fill in a value"


def test_a_key_of_another_slot_is_refused(backend: StateBackend) -> None:
    slot = opened(keyed(Spend()), slot=1, parallelism=2, backend=backend)
    with pytest.raises(Invalid, match="a key belongs to another slot"):
        slot.feed([(f"user-{number}", 1) for number in range(20)])
    slot.operator.close()


class Where(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.place = ctx.slot, ctx.parallelism, ctx.attempt
        self.uid = ctx.uid

    def process_element(self, value: Any, ctx: KeyedContext) -> Results:
        yield f"{self.uid} {self.place}", value.amount


def test_a_function_knows_its_uid_slot_parallelism_and_attempt() -> None:
    with running(keyed(Where()), attempt=4) as slot:
        assert slot.feed([("a", 1)]) == [("op (0, 1, 4)", 1)]


def test_event_time_goes_with_the_row(backend: StateBackend) -> None:
    with running(keyed(Spend(), has_event_time=True), backend=backend) as slot:
        rows = [("a", 1), ("b", 5), ("a", 2)]
        assert slot.feed(rows, [10, 5, None]) == [("a", 1, 10), ("b", 5, 5), ("a", 3, None)]
        schema = ORDERS.append(pa.field("_event_time_ms", pa.int64()))
        slot.feed([])
        slot.operator.process(pa.RecordBatch.from_pylist([], schema=schema), 0)
        assert slot.output.batches == []


class Plain(ProcessFunction):
    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        yield value


def test_an_operator_without_keys_takes_no_keyed_state(backend: StateBackend) -> None:
    job = load_storage("memory://").job("job")
    with running(keyed(Spend()), job=job, backend=backend) as slot:
        slot.feed([("a", 1)])
        snapshots = snapshots_of([slot], 1, job)
    plain = ProcessSpec(
        uid="op",
        name="process",
        input_schema=ORDERS,
        output_schema=ORDERS,
        function=pickle.dumps(Plain()),
    )
    with pytest.raises(Invalid) as caught:
        opened(plain, restored=snapshots, job=job, backend=backend)
    assert caught.value.what == "operator 'op' cannot take the state that the checkpoint has for it"
    assert caught.value.found == "keyed state, of an operator that has no keys now"
