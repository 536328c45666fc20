"""What streams of rows to a slot have in common: pieces, pulses, an end, a check of schemas.

The reader cannot tell a stream whose sender was killed from one that was finished. So the last
frame of a finished stream says that it is the last.

Streams are Flight's DoExchange and not DoPut: a sender must be able to break a stream off under a
thread that waits in it, and only DoExchange's reader can be cancelled. Its way back carries the
acknowledgement, and between slots what the receiver has room for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from holdfast.runtime.columns.types import listed
from holdfast.storage import Invalid

__all__ = [
    "ACKNOWLEDGED",
    "END",
    "PIECE_BYTES",
    "PULSE",
    "PULSE_S",
    "check_schema",
    "piece_bytes",
    "pieces",
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

_LEAST_PIECE_BYTES = 64 << 10


def piece_bytes(capacity_bytes: int) -> int:
    """The size of pieces for a channel of that capacity, which it exceeds by one at most.

    A piece that alone is larger than the channel waits until that is empty.
    """
    return min(PIECE_BYTES, max(_LEAST_PIECE_BYTES, capacity_bytes // 4))


def pieces(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in order, in batches of about that size, and at least a row in each.

    Dictionaries do not count, since the pieces share them. But what the pieces count for in a
    channel has them, so no piece is much smaller than they are.
    """
    if batch.nbytes <= limit_bytes or batch.num_rows <= 1:
        yield batch
        return
    shared = batch.slice(0, 0).nbytes
    limit_bytes = max(limit_bytes, shared)
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
