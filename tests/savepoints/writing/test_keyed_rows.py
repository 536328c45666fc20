"""Rows of a DataFrame become the blocks of a table, in any process and from any order."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from holdfast.backends import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.backends.arrow.rows import RowForm
from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.backends.snapshots.canonical import typed_table
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.savepoints.writing.keyed_rows import (
    SHUFFLED,
    SORTED_BY,
    RowColumns,
    RowEncoder,
    blocks_of,
    table_of_state,
    table_of_timers,
)
from holdfast.storage import Invalid

MAX_PARALLELISM = 16
NOW_MS = 1_700_000_000_000


@dataclass
class Order:
    """A value with parts."""

    amount: float
    note: str | None = None


@dataclass
class Case:
    """A table, and how its rows come."""

    info: TableInfo
    columns: RowColumns
    descriptor: StateDescriptor | None = None
    key_type: Any = str

    def made(self, *batches: pa.RecordBatch) -> pa.Table:
        keys = key_codec_for(self.key_type).describe()
        maker = RowEncoder(
            self.info,
            keys,
            self.columns,
            parallelism=3,
            max_parallelism=MAX_PARALLELISM,
            descriptor=self.descriptor,
        )
        found = [maker.rows(each) for each in batches]
        return pa.Table.from_batches(found, SHUFFLED)

    def blocks(self, made: pa.Table, rows: int = 2) -> Iterator[Block]:
        sorted_rows = made.sort_by([(name, "ascending") for name in SORTED_BY])
        keys = key_codec_for(self.key_type).describe()
        return blocks_of(sorted_rows.to_batches(rows), self.info, keys, now_ms=NOW_MS)

    def rows(self, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
        keys = key_codec_for(self.key_type).describe()
        form = RowForm(typed_table("uid", MAX_PARALLELISM, keys, self.info), is_complete=True)
        table = pa.Table.from_batches(form.batches(self.blocks(self.made(*batches))), form.schema)
        listed: list[dict[str, Any]] = table.to_pylist()
        for row in listed:
            codec = key_codec_for(self.key_type)
            assert row.pop("key_group") == key_group(codec.hash(row["key"]), MAX_PARALLELISM)
        return listed


def case(descriptor: StateDescriptor, key_type: Any = str, **columns: Any) -> Case:
    named = {"key": ("k",), "value": "v", **columns}
    return Case(table_of_state(descriptor), RowColumns(**named), descriptor, key_type)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["key"], row.get("position", 0)))


def test_values_of_keys() -> None:
    tried = case(ValueStateDescriptor("total", int))
    found = tried.rows(batch(k=["b", "a"], v=[1, 2]), batch(k=["c", "ü"], v=[3, -4]))
    assert by_key(found) == [
        {"key": "a", "value": 2},
        {"key": "b", "value": 1},
        {"key": "c", "value": 3},
        {"key": "ü", "value": -4},
    ]


def test_each_row_has_the_number_of_its_writer() -> None:
    tried = case(ValueStateDescriptor("total", int), int)
    made = tried.made(batch(k=list(range(200)), v=[0] * 200))
    for row in made.to_pylist():
        assert row["part"] == row["key_group"] * 3 // MAX_PARALLELISM
    assert set(made["part"].to_pylist()) == {0, 1, 2}


def test_keys_of_several_columns_are_tuples() -> None:
    tried = case(ValueStateDescriptor("n", int), tuple[str, int], key=("k", "l"))
    codec = key_codec_for(tuple[str, int])
    made = tried.made(batch(k=["a", "a"], l=[1, 2], v=[7, 8]))
    assert made["key"].to_pylist() == codec.encode_many([("a", 1), ("a", 2)])
    groups = [key_group(codec.hash(key), MAX_PARALLELISM) for key in [("a", 1), ("a", 2)]]
    assert made["key_group"].to_pylist() == groups


def test_lists_are_columns_of_lists_or_of_elements() -> None:
    whole = case(ListStateDescriptor("orders", Order))
    orders = [{"amount": 1.0, "note": None}, {"amount": 2.0, "note": "x"}]
    found = whole.rows(batch(k=["a", "b", "c"], v=[orders, None, orders[:1]]))
    assert by_key(found) == [
        {"key": "a", "position": 0, "value": orders[0]},
        {"key": "a", "position": 1, "value": orders[1]},
        {"key": "c", "position": 0, "value": orders[0]},
    ]
    single = case(ListStateDescriptor("orders", Order), position="p")
    found = single.rows(batch(k=["a", "a"], v=orders[::-1], p=[20, 10]))
    assert [row["value"] for row in found] == orders, "in order of position, which begins anew"
    assert [row["position"] for row in found] == [0, 1]


def test_maps_are_columns_of_maps_or_of_entries() -> None:
    whole = case(MapStateDescriptor("windows", int, int))
    kind = pa.map_(pa.int64(), pa.int64())
    maps = pa.array([{1: 10, 2: 20}, {}, None], kind)
    expected = [
        {"key": "a", "map_key": 1, "value": 10},
        {"key": "a", "map_key": 2, "value": 20},
    ]
    assert whole.rows(batch(k=["a", "b", "c"], v=maps)) == expected
    single = case(MapStateDescriptor("windows", int, int), map_key="m")
    assert single.rows(batch(k=["a", "a"], m=[2, 1], v=[20, 10])) == expected


def test_times_of_timers_are_numbers_or_timestamps() -> None:
    tried = Case(table_of_timers("user", "event"), RowColumns(key=("k",), map_key="t"))
    moment = dt.datetime.fromtimestamp(5.25, dt.UTC)
    found = tried.rows(batch(k=["a", "a"], t=[7, 6]))
    assert found == [{"key": "a", "time": 6}, {"key": "a", "time": 7}]
    assert tried.rows(batch(k=["a"], t=[moment])) == [{"key": "a", "time": 5250}]


def test_time_to_live_starts_now_or_at_the_given_time() -> None:
    descriptor = ValueStateDescriptor("total", int, ttl=StateTtlConfig(ttl=dt.timedelta(hours=1)))
    assert case(descriptor).rows(batch(k=["a"], v=[1]))[0]["last_used_ms"] == NOW_MS
    tried = case(descriptor, last_used="at")
    moments = [dt.datetime.fromtimestamp(5, dt.UTC), dt.datetime.fromtimestamp(6, dt.UTC)]
    found = tried.rows(batch(k=["a", "b"], v=[1, 2], at=moments))
    assert {row["key"]: row["last_used_ms"] for row in found} == {"a": 5000, "b": 6000}


def test_values_are_written_as_the_job_would_write_them() -> None:
    tried = case(ValueStateDescriptor("when", dt.datetime))
    made = tried.made(batch(k=["a"], v=["2024-02-29T14:00:00+02:00"]))
    noon = dt.datetime.fromisoformat("2024-02-29T12:00:00+00:00")
    assert msgspec.msgpack.decode(made["value"][0].as_py()) == noon


@pytest.mark.parametrize(
    ("tried", "columns", "told"),
    [
        (
            case(ValueStateDescriptor("total", int)),
            {"k": ["a", None], "v": [1, 2]},
            "rows are not state 'total': a row has no key.*column 'k'.*1 nulls in 2 rows",
        ),
        (
            case(ValueStateDescriptor("total", int), tuple[str, int], key=("k", "l")),
            {"k": ["a"], "l": pa.array([None], pa.int64()), "v": [1]},
            "a row has no key.*column 'l'",
        ),
        (
            case(ValueStateDescriptor("total", int)),
            {"k": [1], "v": [1]},
            "column 'k' does not fit: expected values of type str, found int64",
        ),
        (
            case(ValueStateDescriptor("total", int)),
            {"k": ["a"], "v": ["1"]},
            "column 'v' does not fit",
        ),
        (
            case(ValueStateDescriptor("total", int)),
            {"k": ["a", "b"], "v": [1, None]},
            "state 'total': column 'v' has a value that does not fit.*found None",
        ),
        (
            case(ValueStateDescriptor("order", Order)),
            {"k": ["a"], "v": pa.array([{"amount": None, "note": None}])},
            "does not fit.*Expected `float`, got `None`",
        ),
        (
            case(ListStateDescriptor("orders", int)),
            {"k": ["a"], "v": [1]},
            "column 'v' does not have whole lists or maps",
        ),
        (
            case(ListStateDescriptor("orders", int), position="p"),
            {"k": ["a"], "v": [1], "p": pa.array([None], pa.int64())},
            "column 'p'",
        ),
        (
            case(MapStateDescriptor("windows", int, int), map_key="m"),
            {"k": ["a"], "v": [1], "m": pa.array([None], pa.int64())},
            "a row has no map key",
        ),
    ],
)
def test_rows_that_do_not_fit_the_state_are_refused(tried: Case, columns: Any, told: str) -> None:
    with pytest.raises(Invalid, match=f"(?s){told}"):
        tried.made(batch(**columns))


@pytest.mark.parametrize("at_once", [1, 2, 100])
@pytest.mark.parametrize(
    ("tried", "columns", "what"),
    [
        (case(ValueStateDescriptor("total", int)), {"v": [1, 2, 3]}, "value"),
        (
            case(ListStateDescriptor("total", int), position="p"),
            {"v": [1, 2, 3], "p": [1, 0, 1]},
            "place in its list",
        ),
        (
            case(MapStateDescriptor("total", int, int), map_key="m"),
            {"v": [1, 2, 3], "m": [1, 0, 1]},
            "entry of its map",
        ),
        (
            Case(table_of_timers("total", "event"), RowColumns(key=("k",), map_key="m")),
            {"m": [1, 0, 1]},
            "timer",
        ),
    ],
)
def test_a_duplicate_key_is_refused(tried: Case, columns: Any, what: str, at_once: int) -> None:
    made = tried.made(
        batch(k=["a", "a", "a"], **columns), batch(k=["b"], **{name: [9] for name in columns})
    )
    with pytest.raises(Invalid, match=f"a key has a {what} twice.*two rows for key 'a'"):
        list(tried.blocks(made, at_once))


def test_pickles_are_refused() -> None:
    with pytest.raises(Invalid, match="cannot be written from columns"):
        table_of_state(ValueStateDescriptor("total", object, pickle=True))


def test_accumulators_are_values() -> None:
    class Mean(AggregateFunction[int, tuple[int, int], float]):
        def create_accumulator(self) -> tuple[int, int]:
            return 0, 0

        def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
            return accumulator[0] + value, accumulator[1] + 1

        def get_result(self, accumulator: tuple[int, int]) -> float:
            return accumulator[0] / accumulator[1]

    tried = case(AggregatingStateDescriptor("mean", Mean(), tuple[int, int]))
    found = tried.rows(batch(k=["a"], v=[{"sum": 5, "count": 2}]))
    assert found == [{"key": "a", "value": {"_1": 5, "_2": 2}}]
