"""Uploading and downloading files, several in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from errno import ENOSPC
from pathlib import Path
from threading import Event
from typing import TypeVar

from holdfast.backends.snapshots.neutral import Segments
from holdfast.storage import Handle, StateFolder, Unavailable

__all__ = ["Check", "fetch_file", "send_file", "side_by_side"]

_THREADS = 4
_PIECE_BYTES = 1024 * 1024
_T = TypeVar("_T")

Check = Callable[[], None]
"""Long operations call it now and then; it raises `CancelledError` when they must stop."""


def side_by_side(tasks: Sequence[Callable[[Check], _T]], check: Check = lambda: None) -> list[_T]:
    """The results of the tasks, in their order; some run at a time.

    When one fails, the checks of the others stop them, and its error is raised once all have
    ended.
    """
    failed = Event()

    def check_all() -> None:
        check()
        if failed.is_set():
            raise CancelledError

    if len(tasks) <= 1:
        return [task(check) for task in tasks]
    with ThreadPoolExecutor(min(_THREADS, len(tasks)), "holdfast-transfers") as pool:
        futures = [pool.submit(task, check_all) for task in tasks]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        first = next((each for each in futures if each in done and each.exception()), None)
        if first is not None:
            failed.set()
            for future in futures:
                future.cancel()
            raise first.exception() or CancelledError
        return [future.result() for future in futures]


def send_file(path: Path, segments: Segments, check: Check) -> Handle:
    """Write a file as one segment; answers its handle.

    Raises:
        Unavailable: the file cannot be read, or the storage failed.
    """
    try:
        with path.open("rb") as file, segments.stream() as segment:
            while piece := file.read(_PIECE_BYTES):
                check()
                segment.write(piece)
    except OSError as error:
        raise Unavailable(
            "a file of state cannot be read", where=str(path), found=str(error)
        ) from error
    return segment.handle


def fetch_file(storage: StateFolder, handle: Handle, path: Path, check: Check) -> None:
    """Download a segment, with its checksums verified, as a new file.

    Raises:
        Corrupt: it is missing in storage, or damaged; names the file there.
        Unavailable: the storage did not answer, or the file cannot be written.
    """
    try:
        with path.open("xb") as file:
            for piece in storage.stream(handle):
                check()
                file.write(piece)
    except OSError as error:
        raise Unavailable(
            "a file of state cannot be written",
            where=str(path),
            found=str(error),
            fix="Make room on the disk" if error.errno == ENOSPC else "",
        ) from error
