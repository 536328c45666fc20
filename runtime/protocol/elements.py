"""The elements of a channel: rows, and the marks among them.

A channel keeps its order. So a mark says something about all that came before it: a watermark,
that event time has got so far; a barrier, that this is where a checkpoint cuts; the end, that
nothing follows but barriers.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import pyarrow as pa

__all__ = [
    "EVENT_TIME",
    "MAX_WATERMARK",
    "MIN_WATERMARK",
    "Active",
    "Barrier",
    "Element",
    "EndOfInput",
    "Idle",
    "Mark",
    "Watermark",
    "decode_mark",
    "encode_mark",
    "size_bytes",
]

EVENT_TIME = "_event_time_ms"
"""The last column of batches in a stream with event time: when each row happened, 64-bit
milliseconds. Users see it as `timestamp()`, never as a column."""

MIN_WATERMARK = -(2**63)
MAX_WATERMARK = 2**63 - 1
"""The last watermark: every event-time timer is due."""


class Watermark(msgspec.Struct, frozen=True, tag="watermark"):
    """No row that follows happened at this millisecond or before, but for late ones."""

    timestamp: int


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    """The channel is silent: event time shall not wait for it, until a watermark or `Active` comes.

    Rows may come all the same, and change nothing: what a timer by the clock makes while its source
    is silent must not hold up the time of others, for no watermark would follow it.
    """


class Active(msgspec.Struct, frozen=True, tag="active"):
    """Event time shall wait for the channel again; so says every watermark, too."""


class Barrier(msgspec.Struct, frozen=True, tag="barrier"):
    """What came before belongs to the checkpoint, what follows does not.

    It has numbers only. All else about a savepoint slots are told before any barrier of it.
    """

    checkpoint_id: int
    completed: int | None = None
    """The newest checkpoint in the job's folder that was known to be complete when this one was
    triggered: a snapshot may refer to its files, also where the news of it has not come yet."""
    is_savepoint: bool = False


class EndOfInput(msgspec.Struct, frozen=True, tag="end"):
    """No rows and no watermarks follow. Barriers still do."""


Mark: TypeAlias = Watermark | Idle | Active | Barrier | EndOfInput
Element: TypeAlias = pa.RecordBatch | Mark

_MARK_BYTES = 64
_decoder = msgspec.msgpack.Decoder(Mark)


def size_bytes(element: Element) -> int:
    """What an element counts for in a channel that is bounded in bytes."""
    return int(element.nbytes) if isinstance(element, pa.RecordBatch) else _MARK_BYTES


def encode_mark(mark: Mark) -> bytes:
    """The mark as bytes."""
    return msgspec.msgpack.encode(mark)


def decode_mark(data: bytes) -> Mark:
    """The mark of which these are the bytes."""
    mark: Mark = _decoder.decode(data)
    return mark
