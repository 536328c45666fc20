"""Clauses about the batch view of state: columns of keys and values of the same state."""

from __future__ import annotations

import math
import operator
from typing import Any

import pyarrow as pa

from holdfast.backends.state.descriptors import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from holdfast.backends.testing.model.subjects import Mean
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.scenes import ALL, keyed, slots
from holdfast.storage.errors import Invalid
from holdfast.storage.testing.checks import owed, same

__all__ = ["BatchClauses"]

_COLUMNS: dict[str, list[Any]] = {
    "int": [1, 2, -3, 2],
    "str": ["a", "", "ü", ""],
    "float": [0.0, -0.0, math.nan, 0.0],
    "bytes": [b"a", b"", b"\xff", b""],
}


class BatchClauses:
    """Clauses about the batch view."""

    def test_rows_and_batches_are_one_state(self, place: Place) -> None:
        """What one view writes the other reads, in columns of Arrow and in lists."""
        for name, keys in _COLUMNS.items():
            with keyed(place.open()) as state:
                total = state.get_state(ValueStateDescriptor("total", int))
                for column in (pa.array(keys), keys, pa.chunked_array([keys[:1], keys[1:]])):
                    total.put_many(column, pa.array([10, 20, 30, 40]))
                    state.set_current_key(keys[1])
                    same(total.value(), 40, f"a value by the row, of keys of type {name}")
                    total.update(41)
                    first = 41 if keys[0] == keys[1] else 10
                    found = total.get_many(column).to_pylist()
                    same(found, [first, 41, 30, 41], f"values by the batch, keys of type {name}")
                    total.clear_many(column)
                    same(list(state.keys("total")), [], "keys after all were cleared")

    def test_the_last_of_a_batch_counts(self, place: Place) -> None:
        """Of several values for one key; a null clears, also what came before it."""
        with keyed(place.open()) as state:
            total = state.get_state(ValueStateDescriptor("total", int))
            total.put_many([1, 2, 3, 4], [1, 2, 3, 4])
            total.put_many(pa.array([1, 2, 1, 2, 3]), pa.array([None, 5, 6, None, None]))
            found = total.get_many([1, 2, 3, 4]).to_pylist()
            same(found, [6, None, None, 4], "values after a batch with nulls")
            same(sorted(state.keys("total")), [1, 4], "keys after a batch with nulls")

    def test_a_batch_that_does_not_fit_changes_nothing(self, place: Place) -> None:
        """Not even the rows of it that would fit."""
        with keyed(place.open()) as state:
            total = state.get_state(ValueStateDescriptor("total", int))
            summed = state.get_state(ReducingStateDescriptor("sum", operator.add, int))
            for each in (total.put_many, summed.reduce_many):
                each([1, 2], [10, 20])
                for keys, values in (
                    ([1, 2, 3], [11, 12]),
                    ([1, 2], [11, "12"]),
                    (["1", 2], [11, 12]),
                    (pa.array([1, None]), pa.array([11, 12])),
                    (pa.array(["1", "2"]), pa.array([11, 12])),
                ):
                    with owed(Invalid, f"a batch of keys {keys} and values {values}"):
                        each(keys, values)
            for each in (total, summed):
                same(each.get_many([1, 2, 3]).to_pylist(), [10, 20, None], "after wrong batches")

    def test_reducing_a_batch_is_adding_its_rows(self, place: Place) -> None:
        """For every function, and for keys that repeat, also under another face."""
        faces: list[Any] = [0.0, -0.0, math.nan, -math.nan, 1.0, 0.0]
        texts, numbers = ["a", "b", "a", "", "b", "a"], [4, -5, 6, 7, 1, 9]
        for reduce in (operator.add, min, max, _first, _last):
            for name, keys in (("float", faces), ("str", texts)):
                for column in (keys, pa.array(keys)):
                    with keyed(place.open(), key_type={"float": float, "str": str}[name]) as state:
                        rows = state.get_state(ReducingStateDescriptor("rows", reduce, int))
                        batch = state.get_state(ReducingStateDescriptor("batch", reduce, int))
                        for _ in range(2):
                            for key, value in zip(keys, numbers, strict=True):
                                state.set_current_key(key)
                                rows.add(value)
                            values = numbers if isinstance(column, list) else pa.array(numbers)
                            changed, now = batch.reduce_many(column, values)
                            answer = batch.get_many(changed)
                            same(now, answer, f"what {reduce.__name__} by the batch answers")
                            same(len(changed), 3, "how many keys it answers")
                        expected = rows.get_many(keys).to_pylist()
                        what = f"{reduce.__name__} by the batch, keys of type {name}"
                        same(batch.get_many(keys).to_pylist(), expected, what)

    def test_a_sum_past_64_bits_is_refused(self, place: Place) -> None:
        """By the row and by the batch: it must not come back as another number."""
        with keyed(place.open()) as state:
            summed = state.get_state(ReducingStateDescriptor("sum", operator.add, int))
            state.set_current_key(1)
            summed.add(2**62)
            with owed(Invalid, "a sum past 64 bits, by the row"):
                summed.add(2**62)
            for numbers in ([2**62], [2**62, 2**62, 2**62]):
                keys = [1] * len(numbers)
                with owed(Invalid, f"a sum past 64 bits, by the batch of {len(numbers)}"):
                    summed.reduce_many(pa.array(keys), pa.array(numbers))
            same(summed.get(), 2**62, "the sum after what was refused")

    def test_keys_of_tuples_reduce_by_the_batch(self, place: Place) -> None:
        """Columns of structs are columns of keys like any other."""
        column = pa.array([{"a": "x", "b": 1}, {"a": "x", "b": 2}, {"a": "x", "b": 1}])
        with keyed(place.open(), key_type=tuple[str, int]) as state:
            summed = state.get_state(ReducingStateDescriptor("sum", operator.add, int))
            summed.reduce_many(column, pa.array([1, 2, 4]))
            found = summed.get_many([("x", 1), ("x", 2)]).to_pylist()
            same(found, [5, 2], "sums of keys that are structs")

    def test_aggregating_a_batch_is_adding_its_rows(self, place: Place) -> None:
        """In the order of the rows, keys may repeat; what was there before goes on."""
        with keyed(place.open()) as state:
            rows = state.get_state(AggregatingStateDescriptor("rows", Mean(), tuple[int, int]))
            batch = state.get_state(AggregatingStateDescriptor("batch", Mean(), tuple[int, int]))
            keys, numbers = [1, 2, 1, 3, 1], [4, 6, 8, 1, 9]
            same(batch.get_many(keys), [None] * 5, "aggregates of nothing")
            for factor in (1, 10):
                more = [number * factor for number in numbers]
                for key, value in zip(keys, more, strict=True):
                    state.set_current_key(key)
                    rows.add(value)
                batch.add_many(pa.array(keys), pa.array(more))
                same(batch.get_many(keys), rows.get_many(keys), "aggregates by the batch")

    def test_keys_of_other_slots_are_refused(self, place: Place) -> None:
        """By the row and by the batch; nothing of such a batch is written."""
        keys, kept = list(range(300)), []
        for key_groups in slots(2):
            with keyed(place.open(), key_groups=key_groups, key_type=int) as state:
                total = state.get_state(ValueStateDescriptor("total", int))
                for key in keys:
                    try:
                        state.set_current_key(key)
                    except Invalid:
                        continue
                    total.update(key)
                with owed(Invalid, "a batch with keys of another slot"):
                    total.put_many(pa.array(keys), pa.array([-1] * len(keys)))
                with owed(Invalid, "a list with keys of another slot"):
                    total.clear_many(keys)
                mine = list(state.keys("total"))
                same(total.get_many(mine).to_pylist(), mine, "values of a slot's own keys")
                kept += mine
        same(sorted(kept), keys, f"keys of the slots that share {ALL}")

    def test_values_come_in_columns(self, place: Place) -> None:
        """Of Arrow where the type has a column there, with nulls for what is absent."""
        samples: dict[type, tuple[Any, pa.DataType]] = {
            int: (1, pa.int64()),
            float: (1.5, pa.float64()),
            bool: (False, pa.bool_()),
            str: ("", pa.string()),
            bytes: (b"", pa.binary()),
        }
        with keyed(place.open()) as state:
            for annotation, (value, kind) in samples.items():
                each = state.get_state(ValueStateDescriptor(annotation.__name__, annotation))
                each.put_many(pa.array([1, 3]), pa.array([value, value]))
                found = each.get_many(pa.array([1, 2, 3]))
                same(found.type, kind, f"the column of values of type {annotation.__name__}")
                same(found.to_pylist(), [value, None, value], f"values of type {kind}")


def _first(old: int, _new: int) -> int:
    return old


def _last(_old: int, new: int) -> int:
    return new
