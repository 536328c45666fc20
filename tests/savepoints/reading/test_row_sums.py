"""Sums that tell whether two places have the same rows."""

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.arrow.values import ValueForm
from holdfast.backends.blocks.block import Block, Column
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.savepoints.reading.row_sums import RowCounter, RowSums
from holdfast.storage import Corrupt

Row = tuple[bytes, bytes | None, bytes | None, Any, int | None]
TABLE = TableInfo(name="t", kind="map", values={"type": "int"})


def block_of(rows: list[Row], group: int = 3) -> Block:
    columns = [
        None if found[0] is None else Column.of([each or b"" for each in found])
        for found in ([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
    ]
    keys = columns[0]
    assert keys is not None
    stamps = None
    if rows[0][4] is not None:
        stamps = np.array([row[4] for row in rows], np.int64).tobytes()
    return Block(
        count=len(rows),
        groups=np.full(len(rows), group, np.uint16).tobytes(),
        keys=keys,
        namespaces=columns[1],
        map_keys=columns[2],
        values=msgspec.msgpack.encode([row[3] for row in rows]),
        stamps=stamps,
    )


def sums_of(*blocks: Block, info: TableInfo = TABLE, form: ValueForm | None = None) -> RowSums:
    counter = RowCounter(info, form)
    for block in blocks:
        counter.add(block)
    return counter.sums


rows = st.lists(
    st.tuples(
        st.binary(max_size=200),
        st.binary(max_size=9),
        st.binary(max_size=3),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-(2**63), 2**63 - 1),
    ),
    min_size=1,
    max_size=30,
)


@given(rows, st.randoms(use_true_random=False))
def test_sums_ignore_order_blocks_and_key_groups(found: list[Row], chance: random.Random) -> None:
    expected = sums_of(block_of(found))
    mixed = chance.sample(found, len(found))
    cut = chance.randrange(len(found) + 1)
    parts = [part for part in (mixed[:cut], mixed[cut:]) if part]
    assert sums_of(*(block_of(part, group=9) for part in parts)) == expected
    total = RowSums()
    for part in parts:
        total += sums_of(block_of(part))
    assert total == expected
    assert expected.rows == len(found)


@given(rows, st.integers(0, 4), st.integers(0, 10**6))
def test_any_change_of_a_row_changes_the_sums(found: list[Row], column: int, at: int) -> None:
    row = list(found[at % len(found)])
    row[column] = row[column] + b"\x00" if isinstance(row[column], bytes) else -1 - row[column]
    others = found[: at % len(found)] + found[at % len(found) + 1 :]
    assert sums_of(block_of([*others, tuple(row)])) != sums_of(block_of(found))
    assert sums_of(block_of([*found, found[0]])) != sums_of(block_of(found))


def test_swapped_columns_change_the_sums() -> None:
    for one, other in (
        ((b"ab", b"c", b"", 1, 2), (b"a", b"bc", b"", 1, 2)),
        ((b"a", b"b", b"c", 1, 2), (b"b", b"a", b"c", 1, 2)),
        ((b"a", b"b", b"c", 1, 2), (b"a", b"b", b"c", 2, 1)),
        ((b"x" * 97, b"", b"", 1, 2), (b"x" * 96 + b"y", b"", b"", 1, 2)),
        ((b"", b"", b"", 0, 0), (b"\x00", b"", b"", 0, 0)),
    ):
        assert sums_of(block_of([one])) != sums_of(block_of([other]))


def test_the_position_in_a_list_changes_the_sums() -> None:
    info = TableInfo(name="t", kind="list", values={"type": "int"})
    keys = [b"a", b"a", b"b"]

    def listed(*values: int) -> Block:
        return block_of(
            [(key, None, None, value, None) for key, value in zip(keys, values, strict=True)]
        )

    expected = sums_of(listed(1, 2, 3), info=info)
    assert sums_of(listed(2, 1, 3), info=info) != expected
    halves = [listed(1, 2, 3).rows(0, 1), listed(1, 2, 3).rows(1, 3)]
    assert sums_of(*halves, info=info) == expected


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"type": "float"}, [0.0, -0.0, float("nan"), 1e300]),
        ({"type": "str"}, ["", "ü", "x" * 300]),
        ({"type": "any"}, [None, [1, {"a": 2}], b"\x00", 2**64 - 1]),
        ({"type": "int"}, [2**64 - 1, -(2**63), 0]),
    ],
)
def test_different_values_of_each_type_have_different_sums(
    schema: dict[str, Any], values: list[Any]
) -> None:
    info = TableInfo(name="t", kind="value", values=schema)
    blocks = [block_of([(b"k", None, None, value, None)]) for value in values]
    found = {sums_of(block, info=info) for block in blocks}
    assert len(found) == len(values)


def test_a_record_is_summed_as_it_comes_back_from_columns() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "layout": "map",
        "fields": [
            {"name": "a", "schema": {"type": "int"}, "required": True},
            {"name": "b", "schema": {"type": "int"}, "required": False},
        ],
    }
    info = TableInfo(name="t", kind="value", values=schema)
    blocks = [
        block_of([(b"k", None, None, value, None)])
        for value in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2, "gone": 3})
    ]
    plain = {sums_of(block, info=info) for block in blocks}
    assert len(plain) == 3
    form = ValueForm(schema, checked=False)
    assert len({sums_of(block, info=info, form=form) for block in blocks}) == 1
    with pytest.raises(Corrupt, match="column of values"):
        sums_of(block_of([(b"k", None, None, {"b": 1}, None)]), info=info, form=form)


LONG = st.integers(2**32, 2**64 - 1) | st.integers(-(2**63), -(2**31) - 1)
KEYS = st.binary(max_size=100)


@given(
    st.lists(st.tuples(KEYS, LONG), min_size=1, max_size=20)
    | st.lists(st.tuples(KEYS, LONG | st.integers(-200, 200)), min_size=1, max_size=20)
)
def test_keys_of_fixed_and_of_varying_length_have_the_same_sums(
    rows: list[tuple[bytes, int]],
) -> None:
    once: list[Row] = [(key, None, key * 2, number, None) for key, number in rows]
    listed = once * 16
    together, apart = RowCounter(TABLE), RowCounter(TABLE)
    together.add(block_of(listed))
    for row in listed:
        apart.add(block_of([row]))  # one row has one length, and its number one size
    assert together.sums == apart.sums


def test_sums_of_numbers_are_stable_between_versions() -> None:
    """A conversion that another release has begun is gone on with."""
    counter = RowCounter(TABLE)
    counter.add(
        block_of([(b"k" * 17, None, b"m", 2**40 + 1, 7), (b"l" * 17, None, b"m", -(2**50), 8)])
    )
    assert counter.sums == RowSums(2, "36b71947ff7bd75a", "9a56a129037cc3b2")
