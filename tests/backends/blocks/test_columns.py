"""Columns of blocks: joining several of them, and columns of packed values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.blocks.block import Column, listed
from holdfast.backends.blocks.columns import (
    FLOATS,
    WHOLE_NUMBERS,
    decode_values,
    packed_numbers,
    split_column,
)
from holdfast.backends.byte_tables.contract import in_columns
from holdfast.backends.values.codec import value_codec_for
from holdfast.storage import Corrupt

STRINGS = st.binary(max_size=5) | st.just(b"same")
ROWS = st.lists(st.tuples(STRINGS, STRINGS, STRINGS), max_size=30)


@given(ROWS)
def test_columns_beside_each_other_are_their_rows_joined(rows: list[tuple[bytes, ...]]) -> None:
    parts = [Column.of([row[place] for row in rows]) for place in range(3)]
    assert Column.beside(parts, len(rows)).to_list(len(rows)) == list(map(b"".join, rows))


@given(
    st.lists(st.binary(min_size=2, max_size=6), min_size=1)
    | st.lists(st.binary(min_size=6, max_size=6), min_size=1)
)
def test_a_column_is_cut_in_two(items: list[bytes]) -> None:
    stored = Column.of([b"left out", *items]).to_arrow(len(items) + 1)[1:]
    first, rest = Column.cut(stored, 2)
    assert list(map(bytes, first)) == [item[:2] for item in items]
    assert rest.to_list(len(items)) == [item[2:] for item in items]


@given(st.lists(st.tuples(STRINGS, STRINGS), max_size=30))
def test_entries_in_columns_are_the_entries(entries: list[tuple[bytes, bytes]]) -> None:
    keys, values = in_columns(iter(entries))
    assert list(zip(listed(keys), listed(values), strict=True)) == entries


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (int, [2**40, -(2**40), 2**63 - 1] * 9),
        (int, [2**40, 1] * 9),
        (float, [0.5, -0.0] * 9),
        (str, ["", "text", "a longer text"]),
        (list[int], [[1], [2**40] * 20, []]),
        (Any, [1, "text", {"a": None}]),
        (int, []),
    ],
)
def test_a_column_of_values_is_split_into_what_the_codec_writes(
    annotation: Any, values: list[Any]
) -> None:
    codec = value_codec_for(annotation)
    data = msgspec.msgpack.encode(values)
    column = split_column(codec, data, len(values), "here")
    assert column.to_list(len(values)) == list(map(msgspec.msgpack.encode, values))
    for count in (len(values) + 1, len(values) - 1):
        with pytest.raises(Corrupt, match="not as long"):
            split_column(codec, data, count, "here")


def test_only_numbers_of_nine_bytes_are_taken_as_an_array() -> None:
    def found(values: list[Any], kinds: bytes) -> list[int] | None:
        numbers = packed_numbers(msgspec.msgpack.encode(values * 16), kinds)
        return None if numbers is None else numbers.tolist()[: len(values)]

    assert found([2**40, 2**64 - 1, -(2**40)], WHOLE_NUMBERS) == [
        2**40,
        2**64 - 1,
        2**64 - 2**40,
    ]
    assert found([1.0], FLOATS) == [0x3FF0000000000000]
    assert found([1.0], WHOLE_NUMBERS) is None
    assert found([2**40, 1.0], WHOLE_NUMBERS) is None
    assert found([2**40, 1], WHOLE_NUMBERS) is None
    assert found(["a" * 8], WHOLE_NUMBERS) is None


def test_invalid_utf8_text_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="column of values cannot be read"):
        decode_values(value_codec_for(str), b"\x91\xa1\xff", "here")
