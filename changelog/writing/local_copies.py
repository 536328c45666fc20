"""Copies of log pieces on the slot's own disk, for the slot that starts again on this machine.

They are a cache: what is missing, or harmed, is read from the checkpoint storage, and nothing is
lost with the disk. So nothing is synced, and whatever may not be needed is deleted: but only in a
folder of ours below the directory that was named, and only what has the name of a copy.

    <directory>/holdfast-copies-<user>/<job>/shared/00000000000000000042-…
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import lz4.frame

from holdfast.backends.working_directory import lasting_directory
from holdfast.storage import (
    Buffer,
    Clock,
    Entropy,
    FileHandle,
    FileSystemCheckpointStorage,
    Handle,
    HoldfastError,
    StateFolder,
    SystemEntropy,
    names,
)

__all__ = ["CopiesFirst", "LocalCopies"]

_logger = logging.getLogger(__name__)
_STALE_S = 3600.0


class LocalCopies:
    """The copies that are kept for one job in a directory. Safe to use from any thread.

    Several slots may use one directory. Each deletes what it has put there and needs no more. What
    the dead have left, of any job, is deleted when it is an hour old.
    """

    def __init__(
        self, directory: str, job_id: str, clock: Clock, entropy: Entropy | None = None
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._needed: dict[int, tuple[frozenset[str], int]] = {}
        self._mine: set[str] = set()
        self._has_looked = False
        self._why: Exception | None
        """What nobody was told yet."""
        try:
            own = lasting_directory(directory, "copies", entropy or SystemEntropy())
        except (HoldfastError, OSError) as error:
            self._is_broken, self._why = True, error
            own = Path(directory)
        else:
            self._is_broken, self._why = False, None
        self.directory = own
        """Where all copies are, of any job of this user; nothing else is touched."""
        self.job = FileSystemCheckpointStorage(str(own)).job(job_id)
        self._folder = own / self.job.folder

    def put(self, handle: Handle, data: Buffer) -> None:
        """Keep what was written to a handle. If that cannot be, there are no more copies."""
        why, self._why = self._why, None
        if why is not None:
            self._tell(self.directory, why)
        if self._is_broken or not isinstance(handle, FileHandle) or not _is_copy(handle.file):
            return
        stored = lz4.frame.compress(data) if handle.compression else data
        path = self._folder / handle.file
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock:
                self._mine.add(handle.file)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(descriptor, stored, handle.offset)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._is_broken = True
            self._tell(self._folder, error)

    def has(self, handle: Handle) -> bool:
        """Whether there is a file that may hold it."""
        if self._is_broken or not isinstance(handle, FileHandle):
            return False
        return _is_copy(handle.file) and (self._folder / handle.file).exists()

    def need(self, holder: object, files: Collection[str], completed: int) -> None:
        """A checkpoint is completed, and of the files up to its number these may be read later.

        What nobody names, and is not above the number, goes.
        """
        if self._is_broken:
            return
        with self._lock:
            self._needed[id(holder)] = frozenset(files), completed
            self._mine.update(filter(_is_copy, files))
            needed = frozenset[str]().union(*(each for each, _ in self._needed.values()))
            settled = min(number for _, number in self._needed.values())
            dropped = {
                file for file in self._mine - needed if (names.writer_of(file) or 0) <= settled
            }
            self._mine -= dropped
            is_first, self._has_looked = not self._has_looked, True
        for file in dropped:
            (self._folder / file).unlink(missing_ok=True)
        if is_first:  # not before: a restore may have read what is old
            self._delete_stale()

    def leave(self, holder: object) -> None:
        """Somebody is gone."""
        with self._lock:
            self._needed.pop(id(holder), None)

    def _delete_stale(self) -> None:
        oldest_s = self._clock.now_ms() / 1000 - _STALE_S
        for folder, _, files in os.walk(self.directory):
            for path in (Path(folder, file) for file in files):
                job, _, name = path.relative_to(self.directory).as_posix().partition("/")
                if not names.is_legal(job) or not _is_copy(name) or self._is_mine(path):
                    continue
                with suppress(OSError):  # another slot was faster
                    found = path.lstat()
                    if stat.S_ISREG(found.st_mode) and found.st_mtime < oldest_s:
                        path.unlink()

    def _is_mine(self, path: Path) -> bool:
        return path.is_relative_to(self._folder) and (
            path.relative_to(self._folder).as_posix() in self._mine
        )

    @staticmethod
    def _tell(where: str | Path, error: Exception) -> None:
        _logger.warning(
            "no more copies of logs are kept in %s: %s; restores read the storage instead",
            where,
            error,
        )


def _is_copy(name: str) -> bool:
    """Whether a file of this name, within a job's folder, can be one of a log."""
    return names.is_legal(name) and names.parse_checkpoint_object(name) is not None


class CopiesFirst(StateFolder):
    """A folder with state of which some segments may be near."""

    def __init__(self, folder: StateFolder, copies: LocalCopies) -> None:
        super().__init__(folder.storage, folder.folder)
        self._copies = copies

    def read_all(self, handles: Iterable[Handle]) -> Iterator[bytes]:
        for is_near, run in groupby(handles, self._copies.has):
            if not is_near:
                yield from super().read_all(run)
                continue
            for handle in run:
                yield self._read_near(handle)

    def _read_near(self, handle: Handle) -> bytes:
        try:
            return self._copies.job.read(handle)
        except HoldfastError as error:
            _logger.warning("a copy of a log is of no use, and the log is read instead: %s", error)
            return self.read(handle)
