"""The frames of a stream between two slots: elements of several edges, each with its edge.

    s <edge>            and, as data, a schema: that of the edge's rows, once, before them
    r <edge> <bytes>    and, as data, rows; so many bytes count for them
    m <edge> <mark>     a mark
    c <grants>          on the way back: what the receiver has room for, by edge

Edges are numbers, in the order in which the stream's opening names them. Data is a message of Arrow
IPC in one column of bytes, since all batches of a Flight stream have one schema. A message alone
has no dictionaries: the rows of an edge with dictionaries are one stream of IPC, of which each
frame has the next part, with dictionaries only where they have changed. Frames with other first
letters are those of any stream, see `element_stream.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from io import RawIOBase
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from holdfast.runtime.columns.types import has_dictionary
from holdfast.runtime.network.element_stream import check_schema
from holdfast.runtime.protocol.elements import (
    Element,
    Mark,
    decode_mark,
    encode_mark,
    size_bytes,
)
from holdfast.storage import Invalid
from holdfast.storage.errors import UNREADABLE

__all__ = [
    "FRAMES",
    "Frame",
    "FrameReader",
    "Grant",
    "Received",
    "RowFrames",
    "decode_grants",
    "encode_grants",
    "mark_frame",
    "schema_frame",
]

FRAMES = pa.schema([pa.field("frame", pa.uint8(), nullable=False)])
"""The Flight schema of a stream between slots."""

_SCHEMA, _ROWS, _MARK, _GRANTS = b"s", b"r", b"m", b"c"
_EDGE = struct.Struct("<I")
_EDGE_AND_SIZE = struct.Struct("<IQ")

_UNREADABLE = (pa.ArrowException, OSError, EOFError, StopIteration, LookupError, struct.error)


class Frame(NamedTuple):
    """What Flight sends: metadata, and a batch of `FRAMES` or nothing."""

    head: bytes
    data: pa.RecordBatch | None = None


class Grant(NamedTuple):
    """What the receiver has room for on an edge: so many bytes since the stream began."""

    edge: int
    limit_bytes: int
    capacity_bytes: int
    """Of the channel: when nothing is on the way, and in it, the limit is that much higher."""


def schema_frame(edge: int, schema: pa.Schema) -> Frame:
    """The frame that says what rows of an edge are."""
    return Frame(_SCHEMA + _EDGE.pack(edge), _as_data(schema.serialize()))


def mark_frame(edge: int, mark: Mark) -> Frame:
    """The frame of a mark."""
    return Frame(_MARK + _EDGE.pack(edge) + encode_mark(mark))


def encode_grants(grants: Sequence[Grant]) -> bytes:
    """Grants as metadata."""
    return _GRANTS + msgspec.msgpack.encode(grants)


_grants = msgspec.msgpack.Decoder(list[Grant])


def decode_grants(data: bytes, edges: int) -> list[Grant]:
    """Grants in metadata, for so many edges; none in other metadata.

    Raises:
        Invalid: they cannot be read.
    """
    if not data.startswith(_GRANTS):
        return []
    try:
        grants = _grants.decode(data[1:])
    except UNREADABLE as error:
        raise _unreadable(str(error)) from error
    if any(not 0 <= grant.edge < edges for grant in grants):
        raise _unreadable(f"{grants} for {edges} edges")
    return grants


class RowFrames:
    """Makes the frames of rows of one edge, which are read in the order in which they are made."""

    def __init__(self, edge: int, schema: pa.Schema) -> None:
        self._edge = edge
        self._schema = schema
        self._written = _Written() if _has_dictionary(schema) else None
        self._writer: Any = None

    def frame(self, batches: Sequence[pa.RecordBatch]) -> Frame:
        """The frame of these rows; several batches have no dictionaries, and come as one.

        Raises:
            Invalid: they do not have the schema of the edge.
        """
        for each in batches:
            check_schema(self._schema, each.schema, where=f"edge {self._edge}")
        batch = batches[0]
        if len(batches) > 1:
            batch = pa.concat_batches([_as_of(self._schema, each) for each in batches])
        data = batch.serialize() if self._written is None else self._next_part(batch, self._written)
        size = sum(map(size_bytes, batches))
        return Frame(_ROWS + _EDGE_AND_SIZE.pack(self._edge, size), _as_data(data))

    def _next_part(self, batch: pa.RecordBatch, written: _Written) -> pa.Buffer:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(pa.PythonFile(written, mode="w"), self._schema)
        self._writer.write_batch(_as_of(self._schema, batch))
        return written.take()


class _Written(RawIOBase):
    """What a writer of Arrow has written, since it was taken last."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._sink.write(data)
        return len(data)

    def take(self) -> pa.Buffer:
        sink, self._sink = self._sink, pa.BufferOutputStream()
        return sink.getvalue()


class _Arrived(RawIOBase):
    """What a reader of Arrow is to read next. Not copied: rows refer to the frame they came in."""

    def __init__(self) -> None:
        self.left = pa.py_buffer(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> Any:
        size = len(self.left) if size < 0 else min(size, len(self.left))
        data, self.left = self.left.slice(0, size), self.left.slice(size)
        return data


class Received(NamedTuple):
    """An element that has come, on an edge, and what its sender counts for it."""

    edge: int
    element: Element
    size_bytes: int


@dataclass
class FrameReader:
    """Reads the frames of one stream. `expected` has the schemas of its edges, where known."""

    edges: Sequence[str]
    expected: Sequence[pa.Schema | None]

    def __post_init__(self) -> None:
        self._schemas: dict[int, tuple[pa.Schema, bool]] = {}
        self._streams: dict[int, tuple[_Arrived, Any]] = {}
        """Of edges with dictionaries: what has arrived, and its reader."""

    def read(self, chunk: Any) -> Received | None:
        """The element in a chunk of the stream; None if it has none.

        Raises:
            Invalid: the frame cannot be read, or its rows do not fit their edge.
        """
        head = bytes(chunk.app_metadata or b"")
        try:
            match head[:1]:
                case b"r":
                    edge, size = _EDGE_AND_SIZE.unpack_from(head, 1)
                    return Received(edge, self._rows(edge, _data_of(chunk)), size)
                case b"m":
                    (edge,) = _EDGE.unpack_from(head, 1)
                    mark = _mark_of(head[1 + _EDGE.size :])
                    return Received(self._known(edge), mark, size_bytes(mark))
                case b"s":
                    (edge,) = _EDGE.unpack_from(head, 1)
                    self._begin(self._known(edge), pa.ipc.read_schema(_data_of(chunk)))
        except _UNREADABLE as error:
            raise _unreadable(str(error) or repr(error)) from error
        return None

    def _known(self, edge: int) -> int:
        if edge >= len(self.edges):
            raise LookupError(f"edge {edge}")
        return edge

    def _begin(self, edge: int, schema: pa.Schema) -> None:
        check_schema(self.expected[edge], schema, where=f"edge {self.edges[edge]!r}")
        self._schemas[edge] = (schema, _has_dictionary(schema))

    def _rows(self, edge: int, data: pa.Buffer) -> pa.RecordBatch:
        schema, is_stream = self._schemas[edge]
        if not is_stream:
            return pa.ipc.read_record_batch(data, schema)
        if edge in self._streams:
            arrived, reader = self._streams[edge]
            arrived.left = data
        else:
            arrived = _Arrived()
            arrived.left = data
            reader = pa.ipc.open_stream(pa.PythonFile(arrived, mode="r"))
            self._streams[edge] = arrived, reader
        batch: pa.RecordBatch = reader.read_next_batch()
        if len(arrived.left):
            raise _unreadable(f"{len(arrived.left)} bytes after its rows")
        check_schema(schema, batch.schema, where=f"edge {self.edges[edge]!r}")
        return batch


def _mark_of(data: bytes) -> Mark:
    try:
        return decode_mark(data)
    except UNREADABLE as error:
        raise _unreadable(str(error), what="a mark") from error


def _unreadable(found: str, what: str = "a frame") -> Invalid:
    return Invalid(
        f"{what} in a stream cannot be read",
        expected="one as a slot of the same Holdfast writes them",
        found=found,
    )


def _has_dictionary(schema: pa.Schema) -> bool:
    return any(map(has_dictionary, schema.types))


def _as_of(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the schema of its edge: whether nulls are allowed may differ."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _as_data(message: pa.Buffer) -> pa.RecordBatch:
    column = pa.Array.from_buffers(pa.uint8(), len(message), [None, message])
    return pa.RecordBatch.from_arrays([column], schema=FRAMES)


def _data_of(chunk: Any) -> pa.Buffer:
    if chunk.data is None:
        raise LookupError("no data")
    column = chunk.data.column(0)
    return column.buffers()[1].slice(column.offset, len(column))
