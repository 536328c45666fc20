"""Every row goes to the slot whose keyed state has its key."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.backends import key_groups_of_slots
from holdfast.backends.keyed.current_key import OperatorKeys
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.runtime.planning.partitioning import Partitioner, key_type
from holdfast.storage import Invalid
from support.states.key_types import KEY_TYPES, TEXT

PLAIN = {
    name: kind
    for name, kind in KEY_TYPES.items()
    if kind.column and name not in {"none", "optional NamedTuple", "NamedTuple", "dataclass"}
}
EVERY_TYPE = pytest.mark.parametrize("name", PLAIN)
SLOTS = st.sampled_from([(1, 128), (2, 128), (3, 7), (7, 7), (20, 128), (300, 1000)])


def checked(batch: pa.RecordBatch, columns: list[str], slots: tuple[int, int]) -> None:
    """Each part has keys that the state of its slot takes, and all rows are there in order."""
    parallelism, max_parallelism = slots
    parts = Partitioner(columns, batch.schema, *slots).split(batch)
    assert len(parts) == parallelism
    annotation = key_type_of(batch, columns)
    seen = []
    ranges = key_groups_of_slots(parallelism, max_parallelism)
    for part, groups in zip(parts, ranges, strict=True):
        if part is None:
            continue
        assert part.num_rows
        assert part.schema == batch.schema
        keys = OperatorKeys("operator", groups, max_parallelism, annotation)
        values = [part.column(name).to_pylist() for name in columns]
        for key in zip(*values, strict=True):
            plain = plain_key(key[0] if len(columns) == 1 else key)
            keys.admit(plain)
            assert key_group(key_codec_for(annotation).hash(plain), max_parallelism) in groups
        rows = part.column("row").to_pylist()
        assert rows == sorted(rows)
        seen += rows
        for row in range(part.num_rows):
            origin = batch.slice(part.column("row")[row].as_py(), 1)
            assert repr(part.slice(row, 1).to_pylist()) == repr(origin.to_pylist())
    assert sorted(seen) == list(range(batch.num_rows))


def key_type_of(batch: pa.RecordBatch, columns: list[str]) -> Any:
    types = [key_type(batch.schema.field(name).type, column=name) for name in columns]
    return types[0] if len(types) == 1 else tuple.__class_getitem__(tuple(types))


def plain_key(key: Any) -> Any:
    """As a function of the user sees it: structs and lists are tuples."""
    if isinstance(key, dict):
        key = tuple(key.values())
    return tuple(map(plain_key, key)) if isinstance(key, tuple | list) else key


def without_nulls(name: str) -> st.SearchStrategy[list[Any]]:
    def whole(key: Any) -> bool:
        return None not in (key if isinstance(key, tuple) else (key,))

    return st.lists(PLAIN[name].keys.filter(whole), max_size=30)


@EVERY_TYPE
@settings(max_examples=40)
@given(data=st.data(), slots=SLOTS)
def test_rows_are_where_the_state_of_their_key_is(
    name: str, data: st.DataObject, slots: tuple[int, int]
) -> None:
    keys = data.draw(without_nulls(name))
    make = PLAIN[name].column
    assert make is not None
    batch = pa.record_batch({"key": make(keys), "row": np.arange(len(keys))})
    checked(batch, ["key"], slots)


@settings(max_examples=60)
@given(
    keys=st.lists(st.tuples(TEXT, st.integers(-5, 5), st.binary(max_size=3)), max_size=30),
    slots=SLOTS,
)
def test_keys_of_several_columns_are_tuples(
    keys: list[tuple[str, int, bytes]], slots: tuple[int, int]
) -> None:
    texts, numbers, blobs = (
        (list(column) for column in zip(*keys, strict=True)) if keys else [[]] * 3
    )
    batch = pa.record_batch(
        {
            "number": pa.array(numbers, pa.int16()),
            "row": np.arange(len(keys)),
            "text": pa.array(texts, pa.string()).dictionary_encode(),
            "blob": pa.array(blobs, pa.binary()),
        }
    )
    checked(batch, ["text", "number", "blob"], slots)
    checked(batch, ["text"], slots)


@pytest.mark.parametrize("parallelism", [2, 30])
def test_many_rows_keep_their_order(parallelism: int) -> None:
    count = 70_000
    keys = pa.array(np.arange(count) * 7919 % 1000)
    checked_rows = pa.record_batch({"key": keys, "row": np.arange(count)})
    parts = Partitioner(["key"], checked_rows.schema, parallelism, 128).split(checked_rows)
    seen = np.concatenate([part.column("row").to_numpy() for part in parts if part is not None])
    assert np.array_equal(np.sort(seen), np.arange(count))
    homes: dict[int, int] = {}
    for slot, part in enumerate(parts):
        assert part is not None
        assert np.all(np.diff(part.column("row").to_numpy()) > 0)
        for key in set(part.column("key").to_pylist()):
            assert homes.setdefault(key, slot) == slot


def test_a_batch_of_one_slot_is_passed_on_as_it_is() -> None:
    batch = pa.record_batch({"key": ["ann"] * 5})
    for parallelism in (1, 2, 40):
        parts = Partitioner(["key"], batch.schema, parallelism, 128).split(batch)
        assert next(filter(None, parts)) is batch
    assert Partitioner(["key"], batch.schema, 3, 128).split(batch.slice(0, 0)) == [None] * 3


def test_a_null_key_names_column_and_row() -> None:
    batch = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, None]})
    for parallelism in (1, 2):
        with pytest.raises(Invalid, match=r"key column 'b'.*null in row 1 .* 2 of 3"):
            Partitioner(["a", "b"], batch.schema, parallelism, 128).split(batch)


def test_a_null_inside_of_a_key_names_the_column() -> None:
    structs = pa.array([{"x": 1, "y": "a"}, {"x": None, "y": "b"}])
    batch = pa.record_batch({"a": [1, 2], "b": structs})
    with pytest.raises(Invalid, match=r"key column 'b'.*1 nulls in 2 rows"):
        Partitioner(["a", "b"], batch.schema, 2, 128).split(batch)
    inside = pa.DictionaryArray.from_arrays([0, 1], ["a", None])
    batch = pa.record_batch({"b": inside})
    with pytest.raises(Invalid, match="key column 'b'"):
        Partitioner(["b"], batch.schema, 2, 128).split(batch)


def test_a_number_that_is_no_key_names_the_column() -> None:
    batch = pa.record_batch({"n": pa.array([1, 2**63], pa.uint64())})
    with pytest.raises(Invalid, match="key column 'n'"):
        Partitioner(["n"], batch.schema, 2, 128).split(batch)


@pytest.mark.parametrize(
    "kind",
    [pa.null(), pa.duration("s"), pa.map_(pa.string(), pa.int32()), pa.struct([("m", pa.null())])],
)
def test_columns_that_cannot_be_keys_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(Invalid, match=r"column of this type cannot be a key \[column 'k"):
        Partitioner(["k"], pa.schema([("k", kind)]), 2, 128)


def test_key_columns_must_be_there_once() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("b", pa.int64())])
    with pytest.raises(Invalid, match=r"missing.*'c'.*expected 'a', 'b', 'b'"):
        Partitioner(["c"], schema, 2, 128)
    with pytest.raises(Invalid, match="not unique"):
        Partitioner(["b"], schema, 2, 128)
    with pytest.raises(Invalid, match="no key column"):
        Partitioner([], schema, 2, 128)
    with pytest.raises(Invalid, match="parallelism"):
        Partitioner(["a"], schema, 3, 2)


def test_types_of_keys_are_those_of_the_values() -> None:
    assert key_type(pa.dictionary(pa.int8(), pa.string()), column="k") is str
    assert key_type(pa.decimal128(5, 2), column="k") is Decimal
    pair = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    assert key_type(pair, column="k") == tuple[int, tuple[str, ...]]
