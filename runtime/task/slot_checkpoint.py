"""A slot's part of one checkpoint: from the first barrier to the acknowledgement.

All operators of a slot write into one file, and into one more what later checkpoints may refer to
as well. They are closed, and the checkpoint acknowledged, by a background thread once every chain
has taken its snapshot and every snapshot is written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from holdfast.backends import Segments
from holdfast.runtime.protocol.checkpoints import SavepointFormat, SlotStatistics
from holdfast.storage import (
    Buffer,
    Clock,
    Handle,
    Invalid,
    SavepointFolder,
    SegmentStream,
    SegmentWriter,
    StateSnapshot,
)

__all__ = ["SlotCheckpoint", "SlotPart", "SlotSavepoint"]

_Parts = dict[str, list[StateSnapshot]]


@dataclass(frozen=True, slots=True)
class SlotPart:
    """What a slot has left in a checkpoint, by uid, and how long it took."""

    parts: _Parts
    statistics: SlotStatistics


@dataclass(frozen=True, slots=True)
class SlotSavepoint:
    """What the driver has told of a savepoint before its barriers come."""

    place: SavepointFolder
    format: SavepointFormat
    ends_job: bool


class _OneFile(Segments):
    """What an operator takes for a file of its own; the slot closes the one that all share."""

    def __init__(self, writer: SegmentWriter) -> None:
        self._writer = writer

    def add(self, data: Buffer) -> Handle:
        return self._writer.add(data)

    def stream(self) -> SegmentStream:
        return self._writer.stream()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The slot learns of an error by the operator's future."""


@dataclass
class SlotCheckpoint:
    """One checkpoint in one slot. `finish` runs in the background, the rest in the slot's thread.

    As a target of snapshots it gives all operators one file, one for their logs, and as many shared
    ones as they ask for. Their compression is the slot's, but for logs of which more is asked.
    """

    checkpoint_id: int
    writer: SegmentWriter
    begin_shared: Callable[[], SegmentWriter]
    """Begins a shared file of this checkpoint. Any thread."""
    begin_log: Callable[[str], SegmentWriter]
    """Begins the file for logs, compressed as is asked for, or as the slot's; called at most once,
    by any thread."""
    begin_table: Callable[[str], SegmentWriter]
    """Begins the file of this name that has one table. Any thread."""
    clock: Clock
    chains_left: int
    on_written: Callable[[SlotCheckpoint], None]
    """Called once, by any thread, when nothing is missing but `finish`."""
    savepoint: SavepointFormat | None = None
    """In which format, if it is a savepoint."""
    ends_job: bool = False
    """Whether it is a savepoint, and nothing is processed after it."""
    is_over: bool = False
    """Whether the driver was answered, or will not be."""
    _began_s: float = 0.0
    _aligned_s: float = 0.0
    _sync_s: float = 0.0
    _futures: list[tuple[str, Future[StateSnapshot]]] = field(default_factory=list)
    _left: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _log: SegmentWriter | None = None
    is_given_up: bool = False

    def __post_init__(self) -> None:
        self._began_s = self._aligned_s = self.clock.monotonic_s()

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        """The slot's file, for an operator; see `SnapshotTarget`."""
        del label, compression
        self._check_mine(checkpoint_id)
        return _OneFile(self.writer)

    def shared_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        """Another shared file, for an operator, which closes it; see `SnapshotTarget`.

        Raises:
            CancelledError: the checkpoint was aborted, so the file is not needed.
        """
        del label, compression
        self._check_mine(checkpoint_id)
        if self.is_given_up:
            raise CancelledError
        return self.begin_shared()

    def log_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        """The slot's file for logs, for an operator; see `SnapshotTarget`.

        It is closed when the slot's part is finished, and is gone if that fails: so an operator may
        refer to it in a later checkpoint once this one is known to be complete.

        Raises:
            CancelledError: the checkpoint was aborted, so the file is not needed.
        """
        del label
        self._check_mine(checkpoint_id)
        with self._lock:
            if self.is_given_up:
                raise CancelledError
            if self._log is None:
                self._log = self.begin_log(compression)
            return _OneFile(self._log)

    def table_file(self, checkpoint_id: int, path: str) -> Segments:
        """A file of its own, for a table of an operator, which closes it; see `SnapshotTarget`.

        Raises:
            CancelledError: the checkpoint was aborted, so the file is not needed.
        """
        self._check_mine(checkpoint_id)
        if self.is_given_up:
            raise CancelledError
        return self.begin_table(path)

    def take(
        self, snapshots: Sequence[tuple[str, Callable[[], Sequence[Future[StateSnapshot]]]]]
    ) -> None:
        """Begin the snapshots of one chain, by uid: the part that processing waits for."""
        began_s = self._aligned_s = self.clock.monotonic_s()
        for uid, snapshot in snapshots:
            for future in snapshot():
                with self._lock:
                    self._left += 1
                self._futures.append((uid, future))
                if self.is_given_up:
                    future.cancel()
                future.add_done_callback(self._one_less)
        self._sync_s += self.clock.monotonic_s() - began_s
        self.chains_left -= 1
        if self.chains_left == 0:
            self._one_less()

    def finish(self) -> SlotPart:
        """Close the files and answer the slot's part.

        Raises:
            CancelledError: it was given up.
            HoldfastError, OSError: a snapshot could not be written; the files are gone, or orphans.
        """
        try:
            parts: _Parts = {}
            for uid, future in self._futures:
                parts.setdefault(uid, []).append(future.result())
            if self.is_given_up:
                raise CancelledError
            if self._log is not None:
                self._log.close()
            self.writer.close()
        except BaseException:
            self.abort()
            raise
        statistics = SlotStatistics(
            alignment_ms=round((self._aligned_s - self._began_s) * 1000),
            sync_ms=round(self._sync_s * 1000),
            async_ms=round((self.clock.monotonic_s() - self._aligned_s) * 1000),
        )
        return SlotPart(parts, statistics)

    def give_up(self) -> None:
        """Cancel what is being written. The checkpoint is still aligned, and then forgotten."""
        self.is_given_up = True
        for _, future in self._futures:
            future.cancel()

    def abort(self) -> None:
        """Drop the files, if they are not closed. No operator writes any more."""
        self.writer.abort()
        if self._log is not None:
            self._log.abort()

    def _check_mine(self, checkpoint_id: int) -> None:
        if checkpoint_id != self.checkpoint_id:
            raise Invalid(
                "a snapshot is written for another checkpoint",
                expected=str(self.checkpoint_id),
                found=str(checkpoint_id),
            )

    def _one_less(self, _: Future[StateSnapshot] | None = None) -> None:
        with self._lock:
            self._left -= 1
            is_written = self._left == 0
        if is_written:
            self.on_written(self)
