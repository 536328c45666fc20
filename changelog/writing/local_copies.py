"""Copies of log pieces on the slot's local disk, for a slot that restarts on this machine.

They are a cache: missing or damaged copies are read from the checkpoint storage instead. So nothing
is synced to disk, and copies that may not be needed are deleted: only in a folder of our own below
the configured directory, and only files with the name of a copy.

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
    """The copies of one job in a directory. Safe to use from any thread.

    Several slots may share a directory. Each deletes its own copies once unneeded. Copies of slots
    that are gone, of any job, are deleted when they are an hour old.
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
        """An error that was not logged yet."""
        try:
            own = lasting_directory(directory, "copies", entropy or SystemEntropy())
        except (HoldfastError, OSError) as error:
            self._is_broken, self._why = True, error
            own = Path(directory)
        else:
            self._is_broken, self._why = False, None
        self.directory = own
        """The folder of all copies of this user; nothing outside is touched."""
        self.job = FileSystemCheckpointStorage(str(own)).job(job_id)
        self._folder = own / self.job.folder

    def put(self, handle: Handle, data: Buffer) -> None:
        """Copy the data of a handle. After a failure no more copies are made."""
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
        """Whether there is a file that may contain the copy."""
        if self._is_broken or not isinstance(handle, FileHandle):
            return False
        return _is_copy(handle.file) and (self._folder / handle.file).exists()

    def need(self, holder: object, files: Collection[str], completed: int) -> None:
        """State which files up to a completed checkpoint an operator may read again.

        Copies that no operator states, and that are not newer than the checkpoint, are deleted.
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
        if is_first:  # not earlier: the restore may have needed old copies
            self._delete_stale()

    def leave(self, holder: object) -> None:
        """An operator was closed."""
        with self._lock:
            self._needed.pop(id(holder), None)

    def _delete_stale(self) -> None:
        oldest_s = self._clock.now_ms() / 1000 - _STALE_S
        for folder, _, files in os.walk(self.directory):
            for path in (Path(folder, file) for file in files):
                job, _, name = path.relative_to(self.directory).as_posix().partition("/")
                if not names.is_legal(job) or not _is_copy(name) or self._is_mine(path):
                    continue
                with suppress(OSError):  # another slot may delete it at the same time
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
    """Whether a name within a job's folder can be that of a file of a log."""
    return names.is_legal(name) and names.parse_checkpoint_object(name) is not None


class CopiesFirst(StateFolder):
    """A folder with state, some segments of which may have local copies."""

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
            _logger.warning(
                "a local copy of a log cannot be read, and the storage is read instead: %s", error
            )
            return self.read(handle)
