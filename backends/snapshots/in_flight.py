"""Rows in flight in a checkpoint: their form in storage.

A part has the rows that waited before one edge of one slot: for each sender a segment that is a
stream of Arrow IPC, in the order in which they would have been processed. Marks are not in it.
Event time begins anew with a restore, and sources say again that they are idle or have ended.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from holdfast.backends.snapshots.neutral import Segments
from holdfast.storage import Buffer, Corrupt, Handle, SegmentStream, StateFolder, StateSnapshot
from holdfast.storage.jobs.metadata import IN_FLIGHT_KIND

__all__ = ["InFlight", "InFlightPart", "in_flight_parts", "read_in_flight", "write_in_flight"]


class InFlight(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attributes of a part."""

    edge: str
    columns: str
    """Names and types of the columns, as errors show them: equal where the rows fit an edge."""
    parallelism: int
    max_parallelism: int
    """Of the job that has written it: who had which key groups."""
    rows: dict[str, int]
    """The number of rows, by sender; the handles have the same names."""


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
) -> StateSnapshot | None:
    """Write the rows of one edge, by sender; None if there are none. `about` lacks their numbers.

    A batch is asked for when the one before it is written: they may be longer than memory.

    Raises:
        TooLarge: the storage keeps state in memory only, and this is past its limit.
        Unavailable: the storage failed.
    """
    handles: dict[str, Handle] = {}
    rows: dict[str, int] = {}
    for sender, listed in batches.items():
        waiting = iter(listed)
        first = next(waiting, None)
        if first is None:
            continue
        rows[sender] = 0
        with (
            target.stream() as segment,
            pa.PythonFile(_SegmentFile(segment), mode="w") as file,
            pa.ipc.new_stream(file, first.schema) as stream,
        ):
            for batch in chain((first,), waiting):
                stream.write_batch(batch)
                rows[sender] += batch.num_rows
        handles[sender] = segment.handle
    if not handles:
        return None
    return StateSnapshot(
        kind=IN_FLIGHT_KIND,
        handles=handles,
        attributes=msgspec.to_builtins(msgspec.structs.replace(about, rows=rows)),
        slot=slot,
        key_groups=key_groups,
    )


def read_in_flight(
    each: InFlightPart, sender: str, folder: StateFolder
) -> Iterator[pa.RecordBatch]:
    """The rows that came from a sender, in their order; a block is in memory at a time.

    Raises:
        Corrupt: they are damaged, or not as many as there were; names the file.
        Unavailable: the storage did not answer.
    """
    handle, expected = each.part.handles[sender], each.about.rows[sender]
    found = 0
    try:
        pieces = io.BufferedReader(_PiecesFile(folder.stream(handle)))
        with pa.ipc.open_stream(pa.PythonFile(pieces, mode="r")) as stream:
            for batch in stream:
                found += batch.num_rows
                yield batch
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
    if about.rows.keys() != part.handles.keys():
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
