"""State without keys out of rows: a list is dealt out, a union is whole, a map is everywhere."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.backends.arrow.rows import RowForm
from holdfast.backends.operator_state.snapshots import typed_state
from holdfast.savepoints.writing.keyed_rows import RowColumns
from holdfast.savepoints.writing.unkeyed_rows import UnkeyedRows
from holdfast.storage import Invalid

ROWS = pa.table({"v": [3, 1, 2], "n": [30, 10, 20], "k": ["c", "a", "b"]})


def dealt(state: UnkeyedRows, columns: RowColumns, slots: int) -> list[list[Any]]:
    found = []
    for slot, blocks in enumerate(state.dealt(ROWS, columns, slots)):
        form = RowForm(typed_state("op", slot, state.table), is_complete=True)
        table = pa.Table.from_batches(form.batches(blocks), form.schema)
        assert set(table.column("slot").to_pylist()) <= {slot}
        names = [name for name in ("map_key", "value") if name in table.column_names]
        found.append(table.select(names).to_pylist())
    return found


def columns(**named: Any) -> RowColumns:
    return RowColumns(key=(), value="v", **named)


def test_a_list_is_distributed_over_slots() -> None:
    state = UnkeyedRows(ListStateDescriptor("list", int), union=False, where="op")
    assert state.table.mode == "list"
    as_they_come = dealt(state, columns(), 2)
    assert as_they_come == [[{"value": 3}], [{"value": 1}, {"value": 2}]]
    in_order = dealt(state, columns(position="n"), 4)
    assert in_order == [[], [{"value": 1}], [{"value": 2}], [{"value": 3}]]


def test_a_union_list_is_in_one_slot_for_all() -> None:
    state = UnkeyedRows(ListStateDescriptor("list", int), union=True, where="op")
    assert state.table.mode == "union-list"
    assert dealt(state, columns(position="n"), 2) == [[{"value": n} for n in (1, 2, 3)], []]


def test_a_map_is_in_each_slot() -> None:
    state = UnkeyedRows(MapStateDescriptor("rules", str, int), union=False, where="op")
    assert state.table.mode == "broadcast"
    rules = [{"map_key": key, "value": n} for key, n in (("c", 3), ("a", 1), ("b", 2))]
    assert dealt(state, columns(map_key="k"), 2) == [rules, rules]


@pytest.mark.parametrize(
    ("descriptor", "told"),
    [
        (ValueStateDescriptor("v", int), "a list, or a map"),
        (ListStateDescriptor("v", int, pickle=True), "cannot be written from columns"),
        (
            ListStateDescriptor("v", int, ttl=StateTtlConfig(ttl=dt.timedelta(1))),
            "no time to live",
        ),
    ],
)
def test_other_descriptors_are_refused(descriptor: Any, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        UnkeyedRows(descriptor, union=False, where="op")


def test_a_map_cannot_be_a_union() -> None:
    with pytest.raises(Invalid, match=r"which each slot has as a whole.*union=True for a list"):
        UnkeyedRows(MapStateDescriptor("rules", str, int), union=True, where="op")


def test_rows_that_do_not_fit() -> None:
    state = UnkeyedRows(MapStateDescriptor("rules", str, int), union=False, where="op")
    with pytest.raises(Invalid, match="no column is named for the keys of map 'rules'"):
        state.dealt(ROWS, columns(), 1)
    twice = pa.concat_tables([ROWS, ROWS.slice(1, 1)])
    with pytest.raises(Invalid, match=r"a key of the map is there twice.*two rows for 'a'"):
        state.dealt(twice, columns(map_key="k"), 1)
    with pytest.raises(Invalid, match="column 'k' does not fit"):
        state.dealt(ROWS, RowColumns(key=(), value="k", map_key="k"), 1)
