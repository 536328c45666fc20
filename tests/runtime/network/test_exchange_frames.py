"""Frames of a stream between slots: what cannot be read is refused by name."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from holdfast.runtime.network.element_stream import pieces
from holdfast.runtime.network.exchange_frames import (
    Frame,
    FrameReader,
    Grant,
    Received,
    RowFrames,
    decode_grants,
    encode_grants,
    mark_frame,
    schema_frame,
)
from holdfast.runtime.protocol.elements import Barrier, size_bytes
from holdfast.storage import Invalid

SCHEMA = pa.schema([("a", pa.int64())])
ROWS = pa.record_batch({"a": [1, 2, 3]})


class Chunk(NamedTuple):
    """As Flight hands a frame over."""

    app_metadata: Any
    data: Any


def read(reader: FrameReader, frame: Frame) -> Received | None:
    return reader.read(Chunk(*frame))


@pytest.fixture
def reader() -> FrameReader:
    reader = FrameReader(["x", "y"], [SCHEMA, None])
    assert read(reader, schema_frame(0, SCHEMA)) is None
    return reader


def test_what_was_framed_is_read(reader: FrameReader) -> None:
    batch = ROWS.slice(1, 1)
    assert read(reader, RowFrames(0, SCHEMA).frame([batch])) == (0, batch, size_bytes(batch))
    assert read(reader, mark_frame(1, Barrier(7))) == (1, Barrier(7), size_bytes(Barrier(7)))
    for head in (b"", b"p", b"e", b"z9"):
        assert read(reader, Frame(head)) is None


def test_batches_that_differ_in_whether_nulls_are_allowed_are_framed_as_one(
    reader: FrameReader,
) -> None:
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    batches = [ROWS, pa.RecordBatch.from_arrays(ROWS.columns, schema=strict)]
    received = read(reader, RowFrames(0, SCHEMA).frame(batches))
    assert received is not None
    assert received.element == pa.concat_batches([ROWS, ROWS])


def worded(words: pa.Array, *places: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"word": pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), words)}
    )


def test_dictionaries_are_sent_when_they_change_and_not_with_each_frame() -> None:
    many, few = pa.array([f"word {i}" for i in range(10_000)]), pa.array(["a", "b"])
    batches = [
        worded(many, 0, 9999),
        worded(many, 1, 2, 3).slice(1),
        worded(pa.array(many.to_pylist()), 4),  # as another batch of a scan has it
        worded(few, 1, 0),
        worded(few),
        worded(many, 5),
    ]
    schema = batches[0].schema
    frames, reader = RowFrames(0, schema), FrameReader(["x"], [schema])
    read(reader, schema_frame(0, schema))
    sizes, found = [], []
    for batch in batches:
        frame = frames.frame([batch])
        received = read(reader, frame)
        assert received is not None
        assert isinstance(received.element, pa.RecordBatch)
        found.append(received.element)
        assert frame.data is not None
        sizes.append(frame.data.num_rows)
    for expected, batch in zip(batches, found, strict=True):
        batch.validate(full=True)
        assert batch.to_pylist() == expected.to_pylist()
    whole = many.nbytes
    assert [size > whole for size in sizes] == [True, False, False, False, False, True]
    assert max(sizes[1:5]) < whole // 10


def test_a_frame_of_a_stream_with_dictionaries_has_one_batch_and_no_more() -> None:
    batch = worded(pa.array(["a", "b"]), 1, 0)
    frames, reader = RowFrames(0, batch.schema), FrameReader(["x"], [batch.schema])
    read(reader, schema_frame(0, batch.schema))
    first, second = frames.frame([batch]), frames.frame([batch])
    assert first.data is not None
    assert second.data is not None
    longer = pa.concat_batches([first.data, second.data])
    for bad in (first._replace(data=first.data.slice(0, 40)), first._replace(data=longer)):
        other = FrameReader(["x"], [batch.schema])
        read(other, schema_frame(0, batch.schema))
        with pytest.raises(Invalid, match="a frame in a stream cannot be read"):
            read(other, bad)


def test_pieces_are_not_much_smaller_than_the_dictionaries_that_they_share() -> None:
    batch = worded(pa.array([f"word {i}" for i in range(10_000)]), *range(10_000))
    parts = list(pieces(batch, 1000))
    assert sum(part.num_rows for part in parts) == batch.num_rows
    assert sum(map(size_bytes, parts)) <= 2 * batch.nbytes


def test_rows_that_do_not_fit_are_not_framed() -> None:
    with pytest.raises(Invalid, match="expected a: int64, found b: int64"):
        RowFrames(0, SCHEMA).frame([pa.record_batch({"b": [1]})])


def test_frames_that_cannot_be_read_are_refused(reader: FrameReader) -> None:
    frame = RowFrames(0, SCHEMA).frame([ROWS])
    assert frame.data is not None
    of_y = RowFrames(1, SCHEMA).frame([ROWS])
    for bad in (
        frame._replace(data=None),
        frame._replace(data=frame.data.slice(9)),
        frame._replace(data=frame.data.slice(0, 40)),
        frame._replace(head=frame.head[:4]),
        of_y,  # whose schema was not told
        mark_frame(2, Barrier(1)),
        schema_frame(2, SCHEMA),
        schema_frame(1, SCHEMA)._replace(data=frame.data.slice(0, 8)),
    ):
        with pytest.raises(Invalid, match="a frame in a stream cannot be read"):
            read(reader, bad)
    with pytest.raises(Invalid, match="a mark in a stream cannot be read"):
        read(reader, Frame(b"m" + struct.pack("<I", 0) + b"\x80\x04"))
    with pytest.raises(Invalid, match=r"edge 'x'.*expected a: int64, found b: int32"):
        read(reader, schema_frame(0, pa.schema([("b", pa.int32())])))


def test_grants_are_read_as_they_were_written() -> None:
    grants = [Grant(0, 5, 10), Grant(1, 2**40, 10)]
    assert decode_grants(encode_grants(grants), 2) == grants
    assert decode_grants(b"a", 2) == []
    for bad in (encode_grants([Grant(2, 5, 10)]), encode_grants([Grant(-1, 5, 10)]), b"c\x80\x04"):
        with pytest.raises(Invalid, match="a frame in a stream cannot be read"):
            decode_grants(bad, 2)
