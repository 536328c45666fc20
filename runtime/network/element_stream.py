"""The format of elements in a Flight stream: rows are batches, marks and the end metadata.

The reader cannot tell a stream whose sender was killed from one that was finished. So the last
frame of a finished stream says that it is the last.

Streams are Flight's DoExchange and not DoPut: a sender must be able to break a stream off under a
thread that waits in it, and only DoExchange's reader can be cancelled. Its way back carries the
acknowledgement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from holdfast.runtime.columns.types import listed
from holdfast.runtime.protocol.elements import Element, Mark, decode_mark, encode_mark
from holdfast.storage import Invalid
from holdfast.storage.errors import UNREADABLE

__all__ = [
    "ACKNOWLEDGED",
    "END",
    "PIECE_BYTES",
    "PULSE",
    "PULSE_S",
    "check_schema",
    "pieces",
    "read_element",
    "write_element",
]

END = b"e"
"""The last frame of the sender: everything has been sent."""

PULSE = b"p"
"""An empty frame of an idle stream, by which either side notices that the other is gone."""

ACKNOWLEDGED = b"a"
"""The answer to `END`: everything has been received."""

PULSE_S = 0.5
PIECE_BYTES = 4 << 20
"""Larger batches are sent in pieces: gRPC has a limit of 2 GiB, and buffers a message whole."""

_MARK = b"m"


def write_element(writer: Any, element: Element) -> None:
    """Write an element; returns when gRPC has taken it, which a slow reader delays."""
    if isinstance(element, pa.RecordBatch):
        for piece in pieces(element, PIECE_BYTES):
            writer.write_batch(piece)
    else:
        writer.write_metadata(_MARK + encode_mark(element))


def read_element(chunk: Any) -> Element | None:
    """The element in a chunk of a stream; None for frames that carry none.

    Raises:
        Invalid: a mark that is none.
    """
    if chunk.data is not None:
        batch: pa.RecordBatch = chunk.data
        return batch
    frame = bytes(chunk.app_metadata or b"")
    if not frame.startswith(_MARK):
        return None
    try:
        mark: Mark = decode_mark(frame[1:])
    except UNREADABLE as error:
        raise Invalid(
            "a mark in a stream cannot be read",
            expected="one as a slot of the same Holdfast writes them",
            found=str(error),
        ) from error
    return mark


def pieces(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in order, in batches of about that size, and at least a row in each.

    Dictionaries do not count: the pieces share them, and they are sent once.
    """
    if batch.nbytes <= limit_bytes or batch.num_rows <= 1:
        yield batch
        return
    shared = batch.slice(0, 0).nbytes
    waiting = [batch]
    while waiting:
        piece = waiting.pop()
        if piece.num_rows <= 1 or piece.nbytes - shared <= limit_bytes:
            yield piece
            continue
        half = piece.num_rows // 2
        waiting += [piece.slice(half), piece.slice(0, half)]


def check_schema(expected: pa.Schema | None, found: pa.Schema, *, where: str) -> None:
    """Refuse rows that do not fit: names and types count, and their order.

    Raises:
        Invalid: another schema than the one expected, if one is.
    """
    if expected is None or expected.equals(found, check_metadata=False):
        return
    if expected.names == found.names and expected.types == found.types:
        return  # whether nulls are allowed is not what a channel is about
    raise Invalid(
        "the rows do not have the schema of their channel",
        where=where,
        expected=listed(expected),
        found=listed(found),
        fix="Sender and slot run different plans of the job, or the source changed its columns",
    )
