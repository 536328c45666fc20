"""Rows in flight in a checkpoint: their form in storage.

A part has the rows that waited before one edge of one slot: for each sender segments that are
streams of Arrow IPC, in the order in which they would have been processed. A part may refer to
segments that an earlier checkpoint has written, and skip rows of the first one that are processed
by now. Marks are not in it. Event time begins anew with a restore, and sources say again that they
are idle or have ended.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count, takewhile
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from holdfast.backends.snapshots.neutral import Segments
from holdfast.storage import Buffer, Corrupt, Handle, SegmentStream, StateFolder, StateSnapshot
from holdfast.storage.jobs.metadata import IN_FLIGHT_KIND

__all__ = [
    "InFlight",
    "InFlightPart",
    "Segment",
    "StoredRows",
    "in_flight_parts",
    "read_in_flight",
    "write_in_flight",
]


class InFlight(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attributes of a part."""

    edge: str
    columns: str
    """Names and types of the columns, as errors show them: equal where the rows fit an edge."""
    parallelism: int
    max_parallelism: int
    """Of the job that has written it: which slot had which key groups."""
    rows: dict[str, int]
    """The number of rows, by sender. Its handles are called `SENDER`, `SENDER/1`, `SENDER/2`, …"""
    skipped: dict[str, int] = {}
    """How many rows at the front of a sender's segments are not among them, if any."""
    kind: str = ""
    """What the edge came from. Parts of before it was stored lack it and the key columns."""
    key_columns: tuple[str, ...] | None = None
    """By which the rows were dealt out to slots; none where they have no keys."""


class Segment(NamedTuple):
    """A stored segment, and how many rows it has."""

    handle: Handle
    rows: int


class StoredRows(NamedTuple):
    """Rows of a sender that are stored: those of segments, without some at their front."""

    segments: tuple[Segment, ...]
    skipped: int


_NONE_STORED = StoredRows((), 0)
_NOTHING_STORED: Mapping[str, StoredRows] = MappingProxyType({})


class InFlightPart(msgspec.Struct, frozen=True):
    """A part, and its attributes."""

    part: StateSnapshot
    about: InFlight

    @property
    def name(self) -> str:
        """Its name among the parts of a checkpoint."""
        return f"in-flight/{self.part.slot}/{self.about.edge}"

    @property
    def slot(self) -> int:
        """The slot before which the rows waited."""
        return self.part.slot or 0

    def segments(self, sender: str) -> list[Handle]:
        """The segments of a sender, in order."""
        names = takewhile(self.part.handles.__contains__, _names(sender))
        return [self.part.handles[name] for name in names]

    @property
    def rows(self) -> int:
        return sum(self.about.rows.values())

    @property
    def size_bytes(self) -> int:
        return sum(handle.state_bytes for handle in self.part.handles.values())


def in_flight_parts(parts: Iterable[StateSnapshot]) -> list[InFlightPart]:
    """The parts that have rows in flight, in the order of slots and edges.

    Raises:
        Corrupt: attributes are none of this kind.
    """
    found = [_described(part) for part in parts if part.kind == IN_FLIGHT_KIND]
    return sorted(found, key=lambda each: (each.slot, each.about.edge))


def write_in_flight(
    about: InFlight,
    batches: Mapping[str, Iterable[pa.RecordBatch]],
    target: Segments,
    slot: int,
    key_groups: tuple[int, int] | None,
    stored: Mapping[str, StoredRows] = _NOTHING_STORED,
) -> StateSnapshot | None:
    """Write the rows of one edge, by sender; None if there are none. `about` lacks their numbers.

    They follow rows that are `stored` already. A batch is asked for when the one before it is
    written: they may be longer than memory.

    Raises:
        TooLarge: the storage keeps state in memory only, and this is past its limit.
        Unavailable: the storage failed.
    """
    handles: dict[str, Handle] = {}
    rows: dict[str, int] = {}
    skipped: dict[str, int] = {}
    for sender, listed in batches.items():
        before = stored.get(sender, _NONE_STORED)
        segments = [*before.segments]
        if (segment := _write_segment(listed, target)) is not None:
            segments.append(segment)
        if segments:
            handles |= zip(_names(sender), (each.handle for each in segments), strict=False)
            rows[sender] = sum(each.rows for each in segments) - before.skipped
            if before.skipped:
                skipped[sender] = before.skipped
    if not handles:
        return None
    told = msgspec.structs.replace(about, rows=rows, skipped=skipped)
    return StateSnapshot(
        kind=IN_FLIGHT_KIND,
        handles=handles,
        attributes=msgspec.to_builtins(told),
        slot=slot,
        key_groups=key_groups,
    )


def _write_segment(batches: Iterable[pa.RecordBatch], target: Segments) -> Segment | None:
    waiting = iter(batches)
    first = next(waiting, None)
    if first is None:
        return None
    rows = 0
    with (
        target.stream() as segment,
        pa.PythonFile(_SegmentFile(segment), mode="w") as file,
        pa.ipc.new_stream(file, first.schema) as stream,
    ):
        for batch in chain((first,), waiting):
            stream.write_batch(batch)
            rows += batch.num_rows
    return Segment(segment.handle, rows)


def _names(sender: str) -> Iterator[str]:
    """The names of a sender's segments, in order."""
    yield sender
    yield from (f"{sender}/{number}" for number in count(1))


def read_in_flight(
    each: InFlightPart, sender: str, folder: StateFolder
) -> Iterator[pa.RecordBatch]:
    """The rows that came from a sender, in their order; a block is in memory at a time.

    Raises:
        Corrupt: they are damaged, or not as many as there were; names the file.
        Unavailable: the storage did not answer.
    """
    expected, to_skip = each.about.rows[sender], each.about.skipped.get(sender, 0)
    found = 0
    try:
        for handle in each.segments(sender):
            pieces = io.BufferedReader(_PiecesFile(folder.stream(handle)))
            with pa.ipc.open_stream(pa.PythonFile(pieces, mode="r")) as stream:
                for batch in stream:
                    left = batch.slice(to_skip)
                    to_skip -= batch.num_rows - left.num_rows
                    found += left.num_rows
                    if left.num_rows or not batch.num_rows:
                        yield left
    except pa.ArrowInvalid as error:
        raise _damaged(each, folder, "a stream of Arrow IPC", str(error)) from error
    if found != expected:
        raise _damaged(each, folder, f"{expected} rows from slot {sender}", f"{found}")


def _described(part: StateSnapshot) -> InFlightPart:
    try:
        about = msgspec.convert(part.attributes, InFlight)
    except msgspec.ValidationError as error:
        raise Corrupt(
            "rows in flight are not described as this version does it",
            where=f"slot {part.slot}",
            expected="edge, columns, parallelism, max_parallelism, rows",
            found=str(error),
        ) from error
    if about.rows.keys() != {name.partition("/")[0] for name in part.handles}:
        raise Corrupt(
            "rows in flight lack a segment, or have one too many",
            where=f"edge {about.edge!r} in slot {part.slot}",
            expected=", ".join(about.rows),
            found=", ".join(part.handles),
        )
    return InFlightPart(part, about)


def _damaged(each: InFlightPart, folder: StateFolder, expected: str, found: str) -> Corrupt:
    files = ", ".join(sorted(each.part.files())) or "_metadata"
    return Corrupt(
        f"rows in flight before edge {each.about.edge!r} in slot {each.slot} are damaged",
        where=f"{folder.url}/{files}",
        expected=expected,
        found=found,
        fix="Restore another checkpoint",
    )


class _SegmentFile(io.RawIOBase):
    """A segment that is being written, as Arrow takes a file."""

    def __init__(self, segment: SegmentStream) -> None:
        super().__init__()
        self._segment = segment

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:  # type: ignore[override]
        self._segment.write(data)
        return len(data)


class _PiecesFile(io.RawIOBase):
    """The pieces of a segment, one after the other, as a file that is read from front to back."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(self._left), len(into))
        into[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
