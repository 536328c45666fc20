"""The hash of a key never changes: by the row, by the column, on every machine."""

import datetime as dt
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.hashing import BLOCK_ROWS, hash_bytes, hash_fixed, hash_variable
from support.states.key_types import KEY_TYPES, UTC, KeyType, Order, Place

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "keys-v1.json"
EVERY_TYPE = pytest.mark.parametrize("kind", KEY_TYPES.values(), ids=KEY_TYPES.keys())
WITH_COLUMNS = pytest.mark.parametrize(
    "kind",
    [kind for kind in KEY_TYPES.values() if kind.column],
    ids=[name for name, kind in KEY_TYPES.items() if kind.column],
)

FROZEN: list[tuple[str, Any, Any]] = [
    ("None", None, None),
    ("bool", bool, [False, True]),
    ("int", int, [0, 1, -1, 127, 128, 2**31, 2**63 - 1, -(2**63), 1234567890123]),
    ("float", float, [0.0, -0.0, 1.0, -1.5, 1e300, float("inf"), float("-inf"), float("nan")]),
    (
        "str",
        str,
        ["", "a", "ann", "user-12345", "0123456789abcde", "0123456789abcdef", "größe", "\0"],
    ),
    ("bytes", bytes, [b"", b"a", b"\0", bytes(range(256))]),
    ("date", dt.date, [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (
        "datetime",
        dt.datetime,
        [
            dt.datetime.fromisoformat("2024-02-29T01:02:03.000004"),
            dt.datetime(1969, 1, 1, tzinfo=UTC),
        ],
    ),
    ("Decimal", Decimal, [Decimal("1.0"), Decimal("1.00"), Decimal(0), Decimal("-12.345")]),
    ("str or None", str | None, [None, "", "a"]),
    ("tuple", tuple[str, int], [("ann", 1), ("", 0)]),
    ("long tuple", tuple[int, int, int, int, int], [(1, 2, 3, 4, 5)]),
    ("empty tuple", tuple[()], [()]),
    ("sequence", tuple[int, ...], [(), (1,), (1, 2)]),
    ("NamedTuple", Place, [Place("Graz", 5), Place("Graz", None)]),
    (
        "dataclass",
        Order,
        [Order("ann", dt.date(2024, 2, 29)), Order("b", dt.date(1, 1, 1), Place("", 0))],
    ),
]


def frozen() -> dict[str, list[dict[str, Any]]]:
    """Every frozen key with its hash and its ordered bytes."""
    return {
        name: [
            {
                "key": repr(key),
                "hash": key_codec_for(annotation).hash(key),
                "bytes": key_codec_for(annotation).encode(key).hex(),
            }
            for key in ([None] if keys is None else keys)
        ]
        for name, annotation, keys in FROZEN
    }


def test_hashes_and_bytes_are_those_of_the_first_release() -> None:
    assert frozen() == json.loads(GOLDEN.read_text("utf-8"))


def test_the_hash_is_what_its_specification_says() -> None:
    assert key_codec_for(str).hash("") == 0x02CC5D05
    assert key_codec_for(str).hash("größe") == xxhash.xxh32_intdigest("größe".encode())
    assert key_codec_for(int).hash(-2) == xxhash.xxh32_intdigest(b"\xfe" + b"\xff" * 7)
    one, two = key_codec_for(str).hash("a"), key_codec_for(int).hash(1)
    joined = one.to_bytes(4, "little") + two.to_bytes(4, "little")
    assert key_codec_for(tuple[str, int]).hash(("a", 1)) == xxhash.xxh32_intdigest(joined)


def test_the_hash_is_the_same_in_another_process() -> None:
    program = (
        "from holdfast.backends.keys.codec import key_codec_for\n"
        "print(key_codec_for(tuple[str, int]).hash(('ann', 1)))"
    )
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environ, check=True, capture_output=True, text=True
        )
        assert int(run.stdout) == key_codec_for(tuple[str, int]).hash(("ann", 1))


@WITH_COLUMNS
@given(data=st.data())
def test_row_column_and_list_give_one_hash(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    keys = data.draw(st.lists(kind.keys, max_size=12))
    expected = list(map(codec.hash, keys))
    assert kind.column is not None
    column = kind.column(keys)
    assert codec.hash_column(column).dtype == np.uint32
    assert codec.hash_column(column).tolist() == expected
    assert codec.hash_column(column.slice(1)).tolist() == expected[1:]
    cut = pa.chunked_array([column[:2], column[2:2], column[2:]])
    assert codec.hash_column(cut).tolist() == expected
    assert codec.hash_many(list(map(codec.canonical, keys))).tolist() == expected


@EVERY_TYPE
@given(data=st.data())
def test_equal_keys_have_equal_hashes(kind: KeyType, data: st.DataObject) -> None:
    codec = key_codec_for(kind.annotation)
    one, other = data.draw(kind.keys), data.draw(kind.keys)
    if codec.encode(one) == codec.encode(other):
        assert codec.hash(one) == codec.hash(other)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@given(keys=st.lists(st.none() | st.text(max_size=20), max_size=20))
def test_strings_of_every_arrow_layout_have_one_hash(
    kind: pa.DataType, keys: list[str | None]
) -> None:
    codec = key_codec_for(str | None)
    column = pa.array(keys, kind)
    expected = list(map(codec.hash, keys))
    assert codec.hash_column(column).tolist() == expected
    if kind == pa.string():
        encoded = column.dictionary_encode()
        assert codec.hash_column(encoded).tolist() == expected
        assert codec.hash_column(encoded[1:]).tolist() == expected[1:]
        null_inside = pa.DictionaryArray.from_arrays([1, 0, None, 1], ["a", None])
        assert codec.hash_column(null_inside).tolist() == list(
            map(codec.hash, [None, "a", None, None])
        )


def test_a_dictionary_column_hashes_like_a_plain_one() -> None:
    codec = key_codec_for(str)
    column = pa.array(["ann", "bob"] * 50).dictionary_encode()
    assert codec.hash_column(column).tolist() == [codec.hash("ann"), codec.hash("bob")] * 50
    assert codec.encode_column(column).to_pylist() == [b"ann\0", b"bob\0"] * 50


@settings(max_examples=40)
@given(
    st.integers(0, 2 * BLOCK_ROWS + 5),
    st.sampled_from([(0, 4), (0, 15), (10, 20), (0, 16), (15, 40)]),
    st.integers(0, 2**32),
)
def test_values_of_every_length_hash_like_single_ones(
    rows: int, lengths: tuple[int, int], seed: int
) -> None:
    """The short way, the long way and both in one block, over several blocks."""
    chance = np.random.default_rng(seed)
    sizes = chance.integers(lengths[0], lengths[1] + 1, rows)
    data = chance.bytes(int(sizes.sum()))
    ends = np.cumsum(sizes)
    values = [
        data[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)
    ]
    expected = list(map(hash_bytes, values))
    column = pa.array(values, pa.large_binary())
    assert hash_variable(column).tolist() == expected
    assert hash_variable(column[rows // 3 :]).tolist() == expected[rows // 3 :]


@pytest.mark.parametrize("length", [*range(1, 41), 124, 128, 132, 256])
def test_values_of_one_length_hash_like_single_ones(length: int) -> None:
    values = [
        row.tobytes() for row in np.random.default_rng(length).integers(0, 256, (900, length), "u1")
    ]
    expected = list(map(hash_bytes, values))
    column = pa.array(values, pa.large_binary())
    assert hash_variable(column).tolist() == expected
    assert hash_variable(column[7:-1]).tolist() == expected[7:-1]
    longer = pa.array([*values, b"x" * (length + 4)], pa.large_binary())
    assert hash_variable(longer).tolist()[:-1] == expected


@pytest.mark.parametrize("words", range(1, 14))
@pytest.mark.parametrize("rows", [0, 1, 700, BLOCK_ROWS + 1])
def test_rows_of_every_width_hash_like_single_ones(words: int, rows: int) -> None:
    table = np.random.default_rng(words).integers(0, 2**32, (rows, words), dtype=np.uint32)
    assert hash_fixed(table).tolist() == [hash_bytes(row.tobytes()) for row in table]


@pytest.mark.parametrize("order", ["<", ">"])
def test_numbers_in_the_order_of_another_machine(order: str) -> None:
    numbers = np.array([1, -5, 2**40], f"{order}i8")
    codec = key_codec_for(int)
    assert hash_fixed(numbers).tolist() == list(map(codec.hash, [1, -5, 2**40]))


def test_hashes_are_spread_evenly() -> None:
    """Sequential keys fill 128 key groups about as evenly as chance would."""
    count = 128 * 1000
    codecs: list[tuple[Any, pa.Array]] = [
        (int, pa.array(range(count))),
        (str, pa.array([f"user-{number}" for number in range(count)])),
        (float, pa.array([float(number) for number in range(count)])),
    ]
    for annotation, column in codecs:
        groups = np.bincount(key_codec_for(annotation).hash_column(column) % 128, minlength=128)
        assert groups.min() > 850
        assert groups.max() < 1150
