"""Frames of a stream between slots: what cannot be read is refused by name."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

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
