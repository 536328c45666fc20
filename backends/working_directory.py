"""A directory of one store on this machine's disks, and the end of those whose process has died.

    <base>/holdfast-state-<token>/       what the store keeps; the process holds a lock on it

The system lets go of the lock when the process ends, however it does. So a directory that nobody
has locked belonged to a process that is dead, and whoever comes next removes it; one that a live
process uses is never touched. Programs that clean up old temporary files leave what is locked, too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from os import PathLike
from pathlib import Path

from holdfast.storage import Entropy, SystemEntropy, Unavailable

__all__ = ["WorkingDirectory"]

_PREFIX = "holdfast-state-"
_PROBE_BYTES = 64 * 1024


class WorkingDirectory:
    """A new, empty directory below one of `bases`, this object's own until `close`."""

    def __init__(
        self, bases: Sequence[str | PathLike[str]] = (), entropy: Entropy | None = None
    ) -> None:
        """Make one where files can be written; without bases it is where temporary files are.

        Each base is taken the more often the more room is on its disk: so stores that are made at
        the same time spread over the disks, and a full one is left alone. Before that, what dead
        processes have left is removed from all of them.

        Raises:
            Unavailable: no base can be written to; names them all.
        """
        entropy = entropy or SystemEntropy()
        candidates = [Path(base) for base in bases] or [Path(tempfile.gettempdir())]
        failures: dict[Path, OSError] = {}
        rooms: dict[Path, int] = {}
        for base in candidates:
            try:
                base.mkdir(parents=True, exist_ok=True)
                _remove_dead(base)
                rooms[base] = shutil.disk_usage(base).free
            except OSError as error:
                failures[base] = error
        for base in _by_room(rooms, entropy):
            try:
                self.path, self._lock = _made(base, entropy)
            except OSError as error:
                failures[base] = error
            else:
                return
        raise Unavailable(
            "a directory for state cannot be made",
            where=", ".join(map(str, candidates)),
            expected="a directory of this machine that can be written to",
            found="; ".join(map(str, failures.values())),
            fix="Make room on the disk, or name another one in `directories`",
        ) from next(iter(failures.values()))

    def close(self) -> None:
        """Remove the directory with all that is in it."""
        _remove(self.path, self._lock)


def _by_room(rooms: dict[Path, int], entropy: Entropy) -> Iterator[Path]:
    """All of them, each drawn from those that are left, by the room that it has."""
    left = dict(rooms)
    while left:
        drawn = entropy.uniform(0, sum(left.values()))
        reached = zip(left, accumulate(left.values()), strict=True)
        base = next((base for base, end in reached if drawn < end), next(reversed(left)))
        del left[base]
        yield base


def _made(base: Path, entropy: Entropy) -> tuple[Path, int]:
    """A new directory that can be written to, and the descriptor that holds its lock."""
    while True:
        path = base / f"{_PREFIX}{entropy.token()}"
        path.mkdir()
        lock = _locked(path)
        if lock is not None:
            break  # else somebody who removes what is dead was quicker to lock it
    try:
        _probe(path / "probe")
    except OSError:
        _remove(path, lock)
        raise
    return path, lock


def _probe(path: Path) -> None:
    """Write a file: a disk that is full has room for a directory."""
    with path.open("wb", buffering=0) as file:
        data = memoryview(bytes(_PROBE_BYTES))
        while data:
            data = data[file.write(data) :]
        os.fsync(file.fileno())
    path.unlink()


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of a directory.

    None if another one holds it, or has held it and removed the directory meanwhile.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _remove_dead(base: Path) -> None:
    """Remove the directories of processes that are gone. What cannot be removed stays."""
    for path in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock = _locked(path)
            if lock is not None:  # else its process lives
                _remove(path, lock)


def _remove(path: Path, lock: int) -> None:
    """Remove a directory, or what can be: it is unlocked then, so that the next one tries again."""
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)
