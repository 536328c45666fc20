"""The log of one operator in one slot: where each change is, and what a checkpoint refers to.

From time to time all tables are *sealed*: the changes of a table since the last seal become a *set*
(`holdfast.backends.blocks.changes`). A set stays in memory until it is *durable*, that is, in a
piece of the log that every later checkpoint may refer to: a file written between checkpoints, or a
part of a checkpoint's file once that checkpoint is completed. What a checkpoint keeps inline in its
metadata does not become durable: it is written again with later sets, until it is worth a file.

A materialization has everything up to a seal, and the log up to there is dropped. So no piece may
cross that seal: replaying it over the new base would append to lists twice.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter

import msgspec

from holdfast.backends.blocks.changes import SetHead
from holdfast.backends.snapshots.logs import LogInfo, LogSegment
from holdfast.backends.snapshots.neutral import Segments, SnapshotFuture, TableInfo
from holdfast.backends.tables.contract import TableStore
from holdfast.changelog.change_sets import ChangeSet
from holdfast.changelog.recording.store import TakenChanges
from holdfast.storage import FileHandle, Handle

__all__ = [
    "LogPiece",
    "LogWriter",
    "OperatorLog",
    "WrittenLog",
]

_FIRST_ROW_BYTES = 24.0
_by_number = attrgetter("first")


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A piece of a log: consecutive sets behind one handle, the last of them of seal `seal`."""

    log: str
    handle: Handle
    segment: LogSegment
    """Its description; a checkpoint that refers to it names the handle in it."""
    seal: int

    @property
    def first(self) -> int:
        return self.segment.first

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.segment.sets)


@dataclass(slots=True)
class _TableLog:
    info: TableInfo
    log: str
    next_number: int = 0
    durable: list[LogPiece] = field(default_factory=list)
    waiting: list[ChangeSet] = field(default_factory=list)
    """Sets in memory, by number."""
    first_needed: int = 0
    """Sets with lower numbers are materialized."""
    row_bytes: float = _FIRST_ROW_BYTES
    """Estimated bytes of a row, from the sets encoded last."""
    encoded_bytes: int = 0
    """Total bytes of all encoded sets."""
    _learning: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, rows: int, size_bytes: int) -> None:
        """Update the estimate with an encoded set. Any thread."""
        row_bytes = size_bytes / max(1, rows)
        with self._learning:
            is_first = not self.encoded_bytes
            self.row_bytes = row_bytes if is_first else (self.row_bytes + row_bytes) / 2
            self.encoded_bytes += size_bytes

    def adopt_pieces(self, pieces: Sequence[LogPiece]) -> None:
        """Replace durable pieces by those of the newest completed checkpoint.

        A checkpoint that began earlier may have written the same sets in other pieces. Those may be
        deleted with that checkpoint, and are forgotten here.
        """
        waiting = {each.number for each in self.waiting}
        kept = [
            piece
            for piece in pieces
            if piece.first >= self.first_needed
            and (isinstance(piece.handle, FileHandle) or not waiting.issuperset(piece.numbers))
        ]
        there = frozenset(number for piece in kept for number in piece.numbers)
        self.waiting = [each for each in self.waiting if each.number not in there]
        kept += [piece for piece in self.durable if piece.first not in there]
        self.durable = sorted(kept, key=_by_number)

    def truncate(self, seal: int) -> None:
        """Drop everything up to a seal."""
        for piece in self.durable:
            if piece.seal <= seal:
                self.first_needed = max(self.first_needed, piece.numbers.stop)
        for each in self.waiting:
            if each.seal <= seal:
                self.first_needed = max(self.first_needed, each.number + 1)
        self.durable = [piece for piece in self.durable if piece.seal > seal]
        self.waiting = [each for each in self.waiting if each.seal > seal]


@dataclass(frozen=True, slots=True)
class _TableView:
    """The log of a table at the moment of a checkpoint."""

    info: TableInfo
    log: str
    durable: Sequence[LogPiece]
    waiting: Sequence[ChangeSet]


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """The part of a checkpoint that describes the log."""

    logs: tuple[LogInfo, ...]
    handles: Mapping[str, Handle]
    pieces: Mapping[str, Sequence[LogPiece]]
    """The pieces of this log by table, without restored ones."""


class OperatorLog:
    """The log of one operator, for its own thread. A `writer` works on a copy, in any thread."""

    def __init__(self, store: TableStore, token: str) -> None:
        self._store = store
        self._token = token
        self._tables: dict[str, _TableLog] = {}
        self._restored: list[tuple[TableInfo, LogPiece]] = []
        self._written: dict[int, WrittenLog] = {}
        self.last_seal = 0

    def about_bytes(self, rows: Iterable[tuple[str, int]]) -> float:
        """Estimated bytes of a number of rows of each table."""
        found = 0.0
        for name, count in rows:
            table = self._tables.get(name)
            found += count * (_FIRST_ROW_BYTES if table is None else table.row_bytes)
        return found

    def has_met(self, name: str) -> bool:
        """Whether changes of a table were sealed before, so that the size of its rows is known."""
        return name in self._tables

    def restore(self, logs: Iterable[LogInfo], handles: Mapping[str, Handle]) -> None:
        """Start from the logs of a restored checkpoint, which are replayed before this one."""
        for log in logs:
            for each in log.segments:
                piece = LogPiece(log.log, handles[each.handle], each, seal=0)
                self._restored.append((log.info, piece))

    def seal(self, taken: Iterable[TakenChanges], infos: Mapping[str, TableInfo]) -> None:
        """Add changes as sets of a new seal; `infos` describes the tables."""
        self.last_seal += 1
        for each in taken:
            name = each.spec.name
            table = self._tables.get(name)
            if table is None:
                table = self._tables[name] = _TableLog(infos[name], self._token)
            head = SetHead(table.log, name, table.next_number)
            table.next_number += 1
            about = table.row_bytes
            table.waiting.append(
                ChangeSet(self._store, each, head, self.last_seal, about, table.learn)
            )

    def waiting(self) -> list[ChangeSet]:
        """The sets in memory without an upload, by seal."""
        found = [
            each for table in self._tables.values() for each in table.waiting if not each.upload
        ]
        return sorted(found, key=lambda each: each.seal)

    def collect_uploads(self) -> bool:
        """Turn finished uploads into durable pieces; returns whether an upload has failed.

        Sets of failed uploads wait in memory as before.
        """
        have_failed = False
        for table in self._tables.values():
            done = [each for each in table.waiting if each.upload and each.upload.done()]
            for each in done:
                assert each.upload is not None
                if each.upload.exception() is not None:
                    each.upload, have_failed = None, True
                else:
                    table.waiting.remove(each)
                    table.durable.append(_piece(table.log, each.upload.result(), [each]))
            if done:
                table.durable.sort(key=_by_number)
        return have_failed

    def truncate(self, seal: int) -> None:
        """Drop everything up to a seal, which is materialized."""
        self._restored.clear()
        for table in self._tables.values():
            table.truncate(seal)

    def completed(self, checkpoint_id: int) -> None:
        """Note a completed checkpoint: its pieces in files are durable now."""
        for number in list(self._written):  # a copy: a background thread may add one
            if number < checkpoint_id:
                del self._written[number]
        written = self._written.pop(checkpoint_id, None)
        if written is not None:
            for name, pieces in written.pieces.items():
                self._tables[name].adopt_pieces(pieces)

    def aborted(self, checkpoint_id: int) -> None:
        """Note a checkpoint that will not be completed."""
        self._written.pop(checkpoint_id, None)

    @property
    def pieces(self) -> int:
        """The number of pieces, and of sets in memory."""
        return len(self._restored) + sum(
            len(table.durable) + len(table.waiting) for table in self._tables.values()
        )

    @property
    def about_rows(self) -> int:
        """Estimated rows of sealed changes that a restore would replay."""
        waiting = (each.about_rows for table in self._tables.values() for each in table.waiting)
        return sum(piece.segment.rows for piece in self._durable_pieces()) + sum(waiting)

    @property
    def encoded_bytes(self) -> int:
        """Total bytes that were logged, also those that were dropped since."""
        return sum(table.encoded_bytes for table in self._tables.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of the log, as far as they are known."""
        return sum(piece.handle.size_bytes for piece in self._durable_pieces()) + self.waiting_bytes

    def pinned_bytes(self, size_of: Callable[[str], int | None]) -> int:
        """Bytes of all files that pieces are in, including the data of other operators there.

        These cannot be deleted while a piece is needed. `size_of` returns the length of a file, or
        None if it is not known.
        """
        ends: dict[str, int] = {}
        for piece in self._durable_pieces():
            handle = piece.handle
            if isinstance(handle, FileHandle):
                known = size_of(handle.file) or 0
                end = max(handle.offset + handle.length, known, ends.get(handle.file, 0))
                ends[handle.file] = end
        return sum(ends.values()) + self.waiting_bytes

    @property
    def waiting_bytes(self) -> int:
        """Bytes in memory, as far as they are known."""
        return sum(each.about_bytes for table in self._tables.values() for each in table.waiting)

    @property
    def files(self) -> frozenset[str]:
        """The files of durable pieces."""
        handles = (piece.handle for piece in self._durable_pieces())
        return frozenset(each.file for each in handles if isinstance(each, FileHandle))

    def writer(
        self,
        checkpoint_id: int,
        boundaries: Iterable[int],
        copy: Callable[[Handle, bytes], None] | None,
    ) -> LogWriter:
        """A writer of the log as it is now, for a checkpoint, to be run in the background.

        No piece crosses a seal of `boundaries`, up to which there may soon be a base. `copy` is
        called with written data.
        """
        views = [
            _TableView(table.info, table.log, tuple(table.durable), tuple(table.waiting))
            for table in self._tables.values()
        ]
        note = partial(self._written.__setitem__, checkpoint_id)
        return LogWriter(tuple(self._restored), views, sorted(boundaries), note, copy)

    def _durable_pieces(self) -> Iterator[LogPiece]:
        """The pieces that any checkpoint may refer to."""
        yield from (piece for _, piece in self._restored)
        for table in self._tables.values():
            yield from table.durable


@dataclass(frozen=True, slots=True)
class LogWriter:
    """Writes the log as of a checkpoint, in one background thread."""

    _restored: Sequence[tuple[TableInfo, LogPiece]]
    _views: Sequence[_TableView]
    _boundaries: Sequence[int]
    _note: Callable[[WrittenLog], None]
    _copy: Callable[[Handle, bytes], None] | None

    def write(self, begin: Callable[[], Segments], future: SnapshotFuture) -> WrittenLog:
        """Write what is in no file yet; `begin` is called only if there is something to write.

        Raises:
            CancelledError: the checkpoint was aborted.
            HoldfastError: the storage failed.
        """
        new: dict[str, list[LogPiece]] = {}
        tails: list[tuple[_TableView, list[ChangeSet]]] = []
        uploaded: dict[str, list[LogPiece]] = {}
        for view in self._views:
            left = []
            for each in view.waiting:
                handle = _result(each.upload, future)
                if handle is None:
                    left.append(each)
                else:
                    uploaded.setdefault(view.info.name, []).append(_piece(view.log, handle, [each]))
            if left:
                tails.append((view, left))
        if tails:
            with begin() as writer:
                for view, left in tails:
                    new[view.info.name] = list(self._write_tail(view, left, writer, future))
        written = self._put_together(uploaded, new)
        self._note(written)
        return written

    def _write_tail(
        self, view: _TableView, left: list[ChangeSet], writer: Segments, future: SnapshotFuture
    ) -> Iterable[LogPiece]:
        """Write sets; consecutive ones become one piece."""
        keyed = (
            ((bisect_left(self._boundaries, each.seal), each.number - place), each)
            for place, each in enumerate(left)
        )
        for _, group in groupby(keyed, key=lambda pair: pair[0]):
            run = [each for _, each in group]
            future.check()
            data = b"".join([each.encoded().data for each in run])
            handle = writer.add(data)
            if self._copy is not None:
                self._copy(handle, data)
            yield _piece(view.log, handle, run)

    def _put_together(
        self, uploaded: Mapping[str, list[LogPiece]], new: Mapping[str, list[LogPiece]]
    ) -> WrittenLog:
        handles: dict[str, Handle] = {}
        logs: list[LogInfo] = []
        mine: dict[str, list[LogPiece]] = {}

        def add(info: TableInfo, log: str, pieces: Sequence[LogPiece]) -> None:
            segments = []
            for piece in pieces:
                name = f"_log/{len(handles)}"
                handles[name] = piece.handle
                segments.append(msgspec.structs.replace(piece.segment, handle=name))
            logs.append(LogInfo(info=info, log=log, segments=tuple(segments)))

        for (_, log), group in groupby(
            self._restored, key=lambda pair: (pair[0].name, pair[1].log)
        ):
            restored = list(group)
            add(restored[0][0], log, [piece for _, piece in restored])
        for view in self._views:
            name = view.info.name
            pieces = [*view.durable, *uploaded.get(name, ()), *new.get(name, ())]
            if pieces:
                mine[name] = sorted(pieces, key=_by_number)
                add(view.info, view.log, mine[name])
        return WrittenLog(tuple(logs), handles, mine)


def _result(upload: Future[Handle] | None, future: SnapshotFuture) -> Handle | None:
    """Wait for an upload and return its handle; None if there is none, or it has failed."""
    if upload is None:
        return None
    future.wait_for(upload)
    has_failed = upload.cancelled() or upload.exception() is not None
    return None if has_failed else upload.result()  # a failed set is written with the checkpoint


def _piece(log: str, handle: Handle, sets: Sequence[ChangeSet]) -> LogPiece:
    encoded = [each.encoded() for each in sets]
    segment = LogSegment(
        handle="",
        first=sets[0].number,
        sets=len(sets),
        first_group=min(each.first_group for each in encoded),
        last_group=max(each.last_group for each in encoded),
        rows=sum(each.rows for each in encoded),
    )
    return LogPiece(log, handle, segment, sets[-1].seal)
