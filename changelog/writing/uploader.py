"""Uploads pieces of logs between checkpoints: one uploader a slot, shared by its operators.

Sets that arrive within a short time go into one file. If a file takes too long, a second attempt
starts beside the first; the first to finish wins, and the other file is deleted.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from holdfast.backends import Segments
from holdfast.changelog.change_sets import ChangeSet
from holdfast.changelog.options import ChangelogOptions
from holdfast.changelog.writing.local_copies import LocalCopies
from holdfast.changelog.writing.storages import StateChangelogStorage
from holdfast.storage import (
    Clock,
    FileHandle,
    Handle,
    HoldfastError,
    JobStorage,
    Unavailable,
)

__all__ = ["LogUploader", "QueuedSets", "UploadStatistics"]

_logger = logging.getLogger(__name__)
# Bounds of what is remembered of uploads: a job may run for months.
_LATENCIES = 1000
_SIZES = 10_000
_LOOK_S = 0.5
_CLOSED: QueuedSets | None = None


@dataclass(frozen=True, slots=True)
class QueuedSets:
    """Sets of an operator in the queue, and the futures of their handles."""

    sets: Sequence[ChangeSet]
    futures: Sequence[Future[Handle]]
    number: int
    """The number of the operator's next checkpoint: the file is named by it, or by a later one."""

    @property
    def about_bytes(self) -> int:
        return sum(each.about_bytes for each in self.sets)


@dataclass(slots=True)
class UploadStatistics:
    """Statistics of an uploader."""

    files: int = 0
    bytes: int = 0
    failures: int = 0
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES))
    """Of the last uploads, from the first attempt to the end of the winner."""


class LogUploader:
    """Safe to call from any thread. `close` ends its own threads."""

    def __init__(
        self,
        job: JobStorage,
        storage: StateChangelogStorage,
        options: ChangelogOptions,
        clock: Clock,
        copies: LocalCopies | None,
    ) -> None:
        self._job = job
        self._storage = storage
        self._options = options
        self._copies = copies
        self._clock = clock
        self._queue: queue.SimpleQueue[QueuedSets | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._held: dict[int, int] = {}
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._closing = threading.Event()
        self._attempts = ThreadPoolExecutor(
            options.upload_threads * options.upload_attempts, "holdfast-log-attempts"
        )
        self._files = ThreadPoolExecutor(options.upload_threads, "holdfast-log-files")
        self._collector = threading.Thread(
            target=self._collect, name="holdfast-log-batches", daemon=True
        )
        self._collector.start()
        self.statistics = UploadStatistics()
        self._failed = 0
        """Consecutive files that failed."""

    @property
    def held_bytes(self) -> int:
        """Bytes in memory that are not written yet, about."""
        with self._lock:
            return sum(self._held.values())

    @property
    def has_room(self) -> bool:
        """Whether more may be held in memory."""
        return self.held_bytes < self._options.max_in_flight_bytes

    def size_of(self, file: str) -> int | None:
        """The length of a file that this uploader has written; None if unknown."""
        return self._sizes.get(file)

    def hold(self, holder: object, size_bytes: int) -> None:
        """Set the bytes that wait in the memory of one operator."""
        with self._lock:
            self._held[id(holder)] = size_bytes

    def submit(self, sets: Sequence[ChangeSet], number: int) -> None:
        """Queue these sets; each gets its `upload` future."""
        futures: list[Future[Handle]] = [Future() for _ in sets]
        for each, future in zip(sets, futures, strict=True):
            each.upload = future
        self._queue.put(QueuedSets(sets, futures, number))

    def close(self) -> None:
        """Cancel pending uploads and join the threads."""
        self._closing.set()
        self._queue.put(_CLOSED)
        self._collector.join()
        self._files.shutdown(wait=True, cancel_futures=True)
        self._attempts.shutdown(wait=True, cancel_futures=True)
        while not self._queue.empty():
            upload = self._queue.get()
            if upload is not None:
                self._fail([upload], _closed())

    def _collect(self) -> None:
        """Combine sets that arrive within `batch_delay_s` into files."""
        while True:
            upload = self._queue.get()
            if upload is None:
                return
            batch, ends_s = [upload], self._clock.monotonic_s() + self._options.batch_delay_s
            while sum(each.about_bytes for each in batch) < self._options.batch_bytes:
                left_s = ends_s - self._clock.monotonic_s()
                try:
                    more = self._queue.get(timeout=max(left_s, 0)) if left_s > 0 else None
                except queue.Empty:
                    break
                if more is None:
                    if left_s > 0:  # it was in the queue: the next round ends by it
                        self._queue.put(_CLOSED)
                    break
                batch.append(more)
            self._files.submit(self._write_file, batch)

    def _write_file(self, batch: Sequence[QueuedSets]) -> None:
        began_s = self._clock.monotonic_s()
        try:
            contents = [each.encoded().data for upload in batch for each in upload.sets]
            handles = self._race(contents, max(upload.number for upload in batch))
        except BaseException as error:  # noqa: BLE001 - the futures pass it on
            self.statistics.failures += 1
            self._fail(batch, error)
            self._tell(error)
            return
        self._failed = 0
        self.statistics.files += 1
        self.statistics.bytes += sum(map(len, contents))
        self.statistics.latencies_s.append(self._clock.monotonic_s() - began_s)
        self._note_sizes(handles)
        if self._copies is not None:
            for handle, content in zip(handles, contents, strict=True):
                self._copies.put(handle, content)
        left = iter(handles)
        for upload in batch:
            for future in upload.futures:
                future.set_result(next(left))

    def _tell(self, error: BaseException) -> None:
        """Log a failed file: the 1st, 2nd, 4th, 8th … in a row, so that the log stays readable."""
        with self._lock:
            self._failed += 1
            failed = self._failed
        if failed.bit_count() == 1 and not self._closing.is_set():
            _logger.warning(
                "a file of a log cannot be written to %s, %d in a row so far; what was to be in it "
                "waits in memory, and is tried again: %s",
                self._job.url,
                failed,
                error,
            )

    def _note_sizes(self, handles: Sequence[Handle]) -> None:
        files = [each for each in handles if isinstance(each, FileHandle)]
        with self._lock:
            for each in files:
                end = max(each.offset + each.length, self._sizes.get(each.file, 0))
                self._sizes[each.file] = end
            while len(self._sizes) > _SIZES:
                self._sizes.popitem(last=False)

    def _race(self, contents: Sequence[bytes], number: int) -> list[Handle]:
        """The handles of the contents, from the attempt that finishes first."""
        options = self._options
        most = 1 if options.retry_policy == "none" else options.upload_attempts
        begin = partial(self._storage.begin, self._job, number, compression=options.compression)
        attempts: list[_Attempt] = []
        winner = None
        try:
            while winner is None and len(attempts) < most:
                if attempts and attempts[-1].future.done():
                    self._closing.wait(options.next_attempt_delay_s)
                attempt = _Attempt(self._job, begin, contents)
                attempts.append(attempt)
                attempt.future = self._attempts.submit(attempt.write)
                is_last = len(attempts) == most
                winner = self._winner(attempts, None if is_last else options.upload_timeout_s)
        finally:
            for other in attempts:
                if other is not winner:
                    other.lose()
        return (winner or attempts[-1]).future.result()  # raises what went wrong with the last

    def _winner(self, attempts: Sequence[_Attempt], patience_s: float | None) -> _Attempt | None:
        """The first successful attempt; None if the newest one failed, or `patience_s` has passed.

        With `patience_s` None it waits for all attempts, and returns None if all have failed.
        """
        began_s = self._clock.monotonic_s()
        while not self._closing.is_set():
            winner = next((each for each in attempts if each.has_won), None)
            if winner is not None:
                return winner
            under_way = {each.future for each in attempts if not each.future.done()}
            if not under_way or (patience_s is not None and attempts[-1].future.done()):
                return None
            waited_s = self._clock.monotonic_s() - began_s
            if patience_s is not None and waited_s >= patience_s:
                return None
            left_s = _LOOK_S if patience_s is None else min(_LOOK_S, patience_s - waited_s)
            wait(under_way, left_s, FIRST_COMPLETED)
        raise _closed()

    def _fail(self, batch: Sequence[QueuedSets], error: BaseException) -> None:
        for upload in batch:
            for future in upload.futures:
                future.set_exception(error)


class _Attempt:
    """One attempt to write a file. One attempt wins; the files of the others are deleted."""

    future: Future[list[Handle]]

    def __init__(
        self, job: JobStorage, begin: Callable[[], Segments], contents: Sequence[bytes]
    ) -> None:
        self._job = job
        self._begin = begin
        self._contents = contents
        self._lock = threading.Lock()
        self._has_lost = self._is_written = False
        self._handles: list[Handle] = []

    @property
    def has_won(self) -> bool:
        return self.future.done() and self.future.exception() is None

    def write(self) -> list[Handle]:
        """Write the file; returns a handle for each content."""
        with self._begin() as writer:
            for content in self._contents:
                if self._has_lost:
                    raise Unavailable("another attempt was faster", where=self._job.url)
                self._handles.append(writer.add(content))
        with self._lock:
            self._is_written = True
        if self._has_lost:
            self._delete()
        return self._handles

    def lose(self) -> None:
        """Another attempt has won: delete the file, now or when it is written. Does not wait."""
        with self._lock:
            self._has_lost = True
            is_written = self._is_written
        if is_written:
            self._delete()

    def _delete(self) -> None:
        """Delete the file. If that fails it is an orphan, which the job's sweep removes."""
        files = {each.file for each in self._handles if isinstance(each, FileHandle)}
        with suppress(HoldfastError, OSError):
            self._job.storage.delete([f"{self._job.folder}/{file}" for file in files])


def _closed() -> Unavailable:
    return Unavailable("the log is closed, and what was not written of it is given up")
