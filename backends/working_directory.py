"""A directory of one store on this machine's disks, and the end of those whose process has died.

    <base>/holdfast-state-<token>.lock   held by the process that uses the directory
    <base>/holdfast-state-<token>/       what the store keeps

The lock is there, and held, before the directory is made, and goes after it. So a directory whose
lock nobody holds belonged to a process that is dead, and whoever comes next removes it; one that a
live process uses is never touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

from holdfast.storage import Entropy, SystemEntropy, Unavailable

__all__ = ["WorkingDirectory"]

_PREFIX = "holdfast-state-"
_LOCK = ".lock"


class WorkingDirectory:
    """A new, empty directory below one of `bases`, this object's own until `close`."""

    def __init__(
        self, bases: Sequence[str | PathLike[str]] = (), entropy: Entropy | None = None
    ) -> None:
        """Make one; without bases it is where temporary files are.

        Raises:
            Unavailable: no base can be written to; names the last one.
        """
        entropy = entropy or SystemEntropy()
        candidates = [Path(base) for base in bases] or [Path(tempfile.gettempdir())]
        first = int(entropy.uniform(0, len(candidates)))
        failure: OSError | None = None
        for base in candidates[first:] + candidates[:first]:
            try:
                base.mkdir(parents=True, exist_ok=True)
                _remove_dead(base)
                self.path, self._lock = _made(base, entropy)
            except OSError as error:
                failure = error
            else:
                return
        raise Unavailable(
            "a directory for state cannot be made",
            where=str(base),
            expected="a directory of this machine that can be written to",
            found=str(failure),
            fix="Name another one in `directories`, or make room",
        ) from failure

    def close(self) -> None:
        """Remove the directory with all that is in it."""
        _remove(self.path, self._lock)


def _made(base: Path, entropy: Entropy) -> tuple[Path, int]:
    """A new directory, and the descriptor that holds its lock."""
    while True:
        path = base / f"{_PREFIX}{entropy.token()}"
        lock = _locked(_lock_of(path))
        if lock is not None:
            break  # else somebody who removes what is dead was quicker to lock it
    try:
        path.mkdir()
    except OSError:
        _remove(path, lock)
        raise
    return path, lock


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock; the system lets go of it when the process ends.

    None if another one holds it, or has held and removed it meanwhile.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
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
    for found in base.glob(f"{_PREFIX}*{_LOCK}"):
        path = found.with_name(found.name.removesuffix(_LOCK))
        with suppress(OSError):
            lock = _locked(found)
            if lock is not None:  # else its process lives
                _remove(path, lock)


def _remove(path: Path, lock: int) -> None:
    """Remove a directory; its lock file goes only if it does, so that the next one tries again."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        with suppress(OSError):
            _lock_of(path).unlink()
    os.close(lock)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + _LOCK)
