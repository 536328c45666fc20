"""Rows on local disk: what is staged beyond the slot's budget of memory, as streams of Arrow IPC.

A file is read back by mapping it, batch by batch. It loses its name when it is read to its end, and
no checkpoint is to store rows of it. So its room on the disk is free again when the last of its
batches has been processed.
"""

from __future__ import annotations

import shutil
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.backends.working_directory import (
    WorkingDirectory,
    by_room,
    remove_dead_directories,
)
from holdfast.runtime.protocol.elements import size_bytes
from holdfast.storage import Corrupt, Fenced, Invalid, SystemEntropy, Unavailable
from holdfast.storage.places.file_errors import translated

__all__ = ["Spill", "SpillFile"]

_KIND = "spill"
# A mapped file counts to the memory of its process from the first read of a page until the last of
# its batches is gone: files of all rows of a split would let that grow to the size of the split.
_FILE_BYTES = 64 << 20
# Of small batches each buffer would be a call of the operating system.
_BUFFER_BYTES = 1 << 20


class Spill:
    """The files of one slot, in working directories that are made for the first one.

    There is one on each disk that can be written to. Each file goes to one of them at random,
    weighted by the free space. Safe to call from any thread.
    """

    def __init__(self, directories: Sequence[str] = ()) -> None:
        """What slots that were killed have left in the directories is removed at once."""
        self._directories = directories
        self._made: dict[Path, WorkingDirectory] = {}
        self._entropy = SystemEntropy()
        self._numbers = count()
        self._lock = threading.Lock()
        self._is_closed = False
        remove_dead_directories(directories)

    def file(self, schema: pa.Schema) -> SpillFile:
        """A new file, to be written.

        Raises:
            Fenced: the slot is done with this attempt.
            Unavailable: no directory can be written to, or the disk is full.
        """
        with self._lock:
            if self._is_closed:  # a directory that is made now would stay
                raise Fenced("the slot is done with this attempt", fix="Stop")
            if not self._made:
                self._make()
            folder = next(by_room({path: _free_bytes(path) for path in self._made}, self._entropy))
            path = folder / f"{next(self._numbers):012}.arrows"
            return SpillFile(path, schema)  # with the lock: `close` may remove the directory

    def close(self) -> None:
        """Remove all files. Batches that were read stay valid."""
        with self._lock:
            self._is_closed = True
            for made in self._made.values():
                made.close()

    def _make(self) -> None:
        for base in self._directories:
            with suppress(Unavailable):  # the others may do
                made = WorkingDirectory([base], kind=_KIND)
                self._made[made.path] = made
        if not self._made:
            made = WorkingDirectory(self._directories, kind=_KIND)
            self._made[made.path] = made


def _free_bytes(path: Path) -> int:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return 0


class _Name:
    """The name of a file, which is removed when nothing refers to this any more, or by `remove`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.remove = weakref.finalize(self, _remove, path)

    def stream(self) -> Any:
        """A reader of the batches. The file is mapped as long as there is this, or one of them."""
        with pa.memory_map(str(self.path)) as file:
            return pa.ipc.open_stream(file.read_buffer())


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


@dataclass(frozen=True, slots=True)
class _Rest:
    """The batches of a file from some number on."""

    name: _Name
    first: int
    left: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        # Mapped for this alone: many files may wait for a checkpoint.
        try:
            yield from islice(self.name.stream(), self.first, None)
        except (pa.ArrowException, OSError) as error:
            raise _not_as_written(self.name.path, self.left, str(error)) from error


class SpillFile:
    """Batches of one schema: written by one thread, and then read once, in their order."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._name: _Name | None = _Name(path)
        self._written_bytes = 0
        self._left = self._read = 0
        self._batches: Any = None
        with self._writing():
            self._sink = pa.BufferedOutputStream(pa.OSFile(str(path), "wb"), _BUFFER_BYTES)
            self._writer = pa.ipc.new_stream(self._sink, schema)

    @property
    def is_full(self) -> bool:
        """Whether it is long enough."""
        return self._written_bytes >= _FILE_BYTES

    @property
    def written_bytes(self) -> int:
        """Of all its batches, as `size_bytes` counts them."""
        return self._written_bytes

    @property
    def has_more(self) -> bool:
        """Whether not all batches have been read."""
        return self._left > 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch.

        Raises:
            HoldfastError: the disk is full, or cannot be written to.
        """
        with self._writing():
            self._writer.write_batch(batch)
        self._written_bytes += size_bytes(batch)
        self._left += 1

    def seal(self) -> None:
        """End the file. Only then it may be read. Harmless when it is done already.

        Raises:
            HoldfastError: as `write`.
        """
        if not self._sink.closed:
            with self._writing():
                self._writer.close()
                self._sink.close()

    def read(self) -> pa.RecordBatch:
        """The next batch; there is one while the file `has_more`.

        Raises:
            Corrupt: the file is not as it was written.
        """
        try:
            if self._batches is None:
                assert self._name is not None
                self._batches = self._name.stream()
            batch = self._batches.read_next_batch()
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise _not_as_written(self._path, self._left, str(error)) from error
        self._left -= 1
        self._read += 1
        if not self.has_more:
            self._batches = self._name = None
        return batch

    def rest(self) -> _Rest:
        """The batches that are not read yet, to be read beside them; the file goes on as it is.

        There are some. The file stays on the disk as long as this is referred to.
        """
        assert self._name is not None
        return _Rest(self._name, self._read, self._left)

    def discard(self) -> None:
        """Remove the file, by any thread. The thread that writes may go on to write, and `seal`."""
        if self._name is not None:
            self._name.remove()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise translated(
                error, "stage rows on local disk", str(self._path), purpose="temporary files"
            ) from error
        except pa.ArrowException as error:
            raise Invalid(
                "rows cannot be staged on local disk", where=str(self._path), found=str(error)
            ) from error


def _not_as_written(path: Path, left: int, found: str) -> Corrupt:
    return Corrupt(
        "staged rows cannot be read back from local disk",
        where=str(path),
        expected=f"{left} more batches",
        found=found or "the end of the file",
        fix="The job starts again from its last checkpoint; let no other program change "
        "files in this directory",
    )
