"""A slot's part of one checkpoint: from the first barrier to the acknowledgement.

All operators of a slot write into one file, and into one more what later checkpoints may refer to
as well. They are closed, and the checkpoint acknowledged, by a background thread once every chain
has taken its snapshot and every snapshot is written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from holdfast.backends import Segments
from holdfast.runtime.protocol.checkpoints import (
    OperatorStatistics,
    SavepointFormat,
    SlotStatistics,
)
from holdfast.runtime.protocol.messages import Acknowledge
from holdfast.storage import (
    Buffer,
    Clock,
    Handle,
    Invalid,
    JobStorage,
    SavepointFolder,
    SegmentStream,
    SegmentWriter,
    StateSnapshot,
)

__all__ = ["BeginInFlight", "SlotCheckpoint", "SlotSavepoint"]

BeginInFlight: TypeAlias = Callable[[], Future[Sequence[StateSnapshot]]]
"""Begins to write rows that barriers have overtaken: a part for each edge that has any."""


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

    def __exit__(self, *exception: object) -> None:
        """The slot learns of an error by the operator's future."""


class _OperatorTimes:
    """How long one operator's snapshot takes, from when this is made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s = self._begun_s = self._written_s = clock.monotonic_s()

    def has_begun(self) -> None:
        """The part for which processing waits is done."""
        self._begun_s = self._written_s = self._clock.monotonic_s()

    def has_written(self, _: Future[StateSnapshot]) -> None:
        """Called by any thread when a part of the state is written; the last one counts."""
        self._written_s = self._clock.monotonic_s()

    def statistics(self) -> OperatorStatistics:
        return OperatorStatistics(
            sync_ms=round((self._begun_s - self._since_s) * 1000),
            async_ms=round((self._written_s - self._begun_s) * 1000),
        )


class SlotCheckpoint:
    """One checkpoint in one slot. `finish` runs in the background, the rest in the slot's thread.

    It is the target of the operators' snapshots (`SnapshotTarget`): it gives all operators one
    file, one for their logs, and as many shared ones as they ask for. Rows in flight are in a
    shared file for each chain that has some. The compression of all is the slot's, but for logs of
    which more is asked. Once the checkpoint is given up a file that is asked for is not needed,
    which `CancelledError` says.

    `on_written` is called once, by any thread, when nothing is missing but `finish`.
    """

    def __init__(
        self,
        checkpoint_id: int,
        slot: int,
        job: JobStorage,
        clock: Clock,
        *,
        chains: int,
        on_written: Callable[[SlotCheckpoint], None],
        compression: str = "",
        savepoint: SlotSavepoint | None = None,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.savepoint = savepoint
        self.is_given_up = False
        self.is_over = False
        """Whether the driver was answered, or will not be."""
        self._slot, self._label = slot, f"slot-{slot}"
        self._place = job if savepoint is None else savepoint.place
        self._compression = compression
        self._clock = clock
        self._chains_left = chains
        self._on_written = on_written
        self._in_flight: list[Future[Sequence[StateSnapshot]]] = []
        self._began_s = self._aligned_s = clock.monotonic_s()
        self._sync_s = 0.0
        self._operators: dict[str, _OperatorTimes] = {}
        self._futures: list[tuple[str, Future[StateSnapshot]]] = []
        self._left = 1
        """Snapshots that are not written yet, and one for chains that are not aligned."""
        self._lock = threading.Lock()
        self._log: SegmentWriter | None = None
        self.writer = self._place.segments(checkpoint_id, self._label, compression=compression)

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        self._check_mine(checkpoint_id)
        return _OneFile(self.writer)

    def shared_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        self._check_wanted(checkpoint_id)
        return self._place.shared_segments(
            checkpoint_id, self._label, compression=self._compression
        )

    def log_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> Segments:
        """The slot's file for logs, closed when the slot's part is finished, or gone with it.

        So an operator may refer to it in a later checkpoint once this one is known to be complete.
        """
        with self._lock:
            self._check_wanted(checkpoint_id)
            if self._log is None:
                self._log = self._place.log_segments(
                    checkpoint_id, self._label, compression=compression or self._compression
                )
            return _OneFile(self._log)

    def table_file(self, checkpoint_id: int, path: str) -> Segments:
        self._check_wanted(checkpoint_id)
        return self._place.table_file(checkpoint_id, path)

    def take(
        self,
        snapshots: Sequence[tuple[str, Callable[[], Sequence[Future[StateSnapshot]]]]],
        in_flight: BeginInFlight | None = None,
    ) -> None:
        """Begin the snapshots of one chain, by uid: the part that processing waits for.

        `in_flight` writes rows of its channels that belong to the checkpoint, beside them.
        """
        began_s = self._aligned_s = self._clock.monotonic_s()
        for uid, snapshot in snapshots:
            times = self._operators[uid] = _OperatorTimes(self._clock)
            futures = snapshot()
            times.has_begun()
            for future in futures:
                with self._lock:
                    self._left += 1
                self._futures.append((uid, future))
                if self.is_given_up:
                    future.cancel()
                future.add_done_callback(times.has_written)
                future.add_done_callback(self._one_less)
        if in_flight is not None and not self.is_given_up:
            # At once, not at the end: until they are written they are held in memory.
            rows = in_flight()
            with self._lock:
                self._left += 1
            self._in_flight.append(rows)
            rows.add_done_callback(self._one_less)
        self._sync_s += self._clock.monotonic_s() - began_s
        self._chains_left -= 1
        if self._chains_left == 0:
            self._one_less()

    def finish(self) -> Acknowledge:
        """Close the files; returns the slot's part.

        Raises:
            CancelledError: it was given up.
            HoldfastError, OSError: a snapshot could not be written; the files are gone, or orphans.
        """
        try:
            parts: dict[str, list[StateSnapshot]] = {}
            for uid, future in self._futures:
                parts.setdefault(uid, []).append(future.result())
            self.check_wanted()
            in_flight = [part for rows in self._in_flight for part in rows.result()]
            if self._log is not None:
                self._log.close()
            self.writer.close()
        except BaseException:
            self.abort()
            raise
        statistics = SlotStatistics(
            alignment_ms=round((self._aligned_s - self._began_s) * 1000),
            sync_ms=round(self._sync_s * 1000),
            async_ms=round((self._clock.monotonic_s() - self._aligned_s) * 1000),
            operators={uid: times.statistics() for uid, times in self._operators.items()},
        )
        return Acknowledge(
            checkpoint_id=self.checkpoint_id,
            slot=self._slot,
            parts=parts,
            statistics=statistics,
            in_flight=in_flight,
        )

    def give_up(self) -> None:
        """Cancel what is being written. The checkpoint is still aligned, and then forgotten."""
        self.is_given_up = True
        for _, future in self._futures:
            future.cancel()
        for rows in self._in_flight:
            rows.cancel()

    def check_wanted(self) -> None:
        """Raise `CancelledError` if the checkpoint is given up. For any thread that writes."""
        if self.is_given_up:
            raise CancelledError

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

    def _check_wanted(self, checkpoint_id: int) -> None:
        self._check_mine(checkpoint_id)
        self.check_wanted()

    def _one_less(self, _: Future[Any] | None = None) -> None:
        with self._lock:
            self._left -= 1
            is_written = self._left == 0
        if is_written:
            self._on_written(self)
