"""Types of Arrow: dictionaries inside of them, and what has room for what."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.runtime.columns.types import cast_to, has_dictionary, is_text, listed, united

WORDS = pa.dictionary(pa.int8(), pa.string())
STRICT = pa.field("element", pa.int64(), nullable=False)
LOOSE = pa.field("element", pa.int64())


@pytest.mark.parametrize(
    ("kind", "has"),
    [
        (pa.string(), False),
        (WORDS, True),
        (pa.list_(WORDS), True),
        (pa.list_(WORDS, 2), True),
        (pa.large_list(pa.struct([("a", pa.int64()), ("b", WORDS)])), True),
        (pa.map_(pa.string(), WORDS), True),
        (pa.map_(WORDS, pa.string()), True),
        (pa.map_(pa.string(), pa.list_(pa.int64())), False),
        (pa.run_end_encoded(pa.int32(), WORDS), True),
        (pa.sparse_union([pa.field("a", WORDS)]), True),
        (pa.struct([("a", pa.struct([("b", pa.list_(pa.binary()))]))]), False),
        (pa.uuid(), False),
    ],
)
def test_dictionaries_are_found_wherever_they_are(
    kind: pa.DataType,
    has: bool,  # noqa: FBT001
) -> None:
    assert has_dictionary(kind) is has


@pytest.mark.parametrize(
    ("strict", "loose"),
    [
        (pa.list_(STRICT), pa.list_(LOOSE)),
        (pa.large_list(STRICT), pa.large_list(LOOSE)),
        (pa.list_(STRICT, 2), pa.list_(LOOSE, 2)),
        (pa.struct([STRICT]), pa.struct([LOOSE])),
        (pa.map_(pa.string(), STRICT), pa.map_(pa.string(), LOOSE)),
        (pa.list_(pa.struct([STRICT])), pa.list_(pa.struct([LOOSE]))),
    ],
)
def test_schemas_that_differ_in_nullability_are_united(
    strict: pa.DataType, loose: pa.DataType
) -> None:
    schemas = [pa.schema([("a", strict)]), pa.schema([("a", loose)])]
    for order in (schemas, schemas[::-1]):
        found = united(order)
        assert found is not None
        assert found.field("a").nullable
        batch = pa.RecordBatch.from_arrays([pa.nulls(2, strict)], schema=schemas[0])
        fitted = cast_to(batch.columns, found)
        fitted.validate(full=True)
        assert fitted.schema == found
        assert fitted.to_pylist() == batch.to_pylist()


def test_a_single_schema_stays_what_it_is() -> None:
    schema = pa.schema([STRICT])
    assert united([schema]) is schema
    assert united([schema, schema]) == schema


@pytest.mark.parametrize(
    "other",
    [
        pa.schema([("b", pa.int64())]),
        pa.schema([("a", pa.int32())]),
        pa.schema([("a", pa.null())]),
        pa.schema([("a", pa.int64()), ("b", pa.int64())]),
        pa.schema([]),
    ],
)
def test_schemas_that_differ_otherwise_are_not_united(other: pa.Schema) -> None:
    schema = pa.schema([("a", pa.int64())])
    assert united([schema, other]) is None
    assert united([other, schema]) is None


def test_layouts_of_text() -> None:
    texts = [pa.string(), pa.large_string(), pa.string_view()]
    assert all(map(is_text, texts))
    assert not any(map(is_text, [WORDS, pa.binary(), pa.null()]))


def test_how_schemas_are_told() -> None:
    assert listed(pa.schema([STRICT, ("b", WORDS)])) == (
        "element: int64 not null, b: dictionary<values=string, indices=int8, ordered=0>"
    )
    assert listed(pa.schema([])) == "none"
