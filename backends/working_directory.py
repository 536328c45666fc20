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
from pathlib import Path

from holdfast.storage import Entropy, SystemEntropy, Unavailable

__all__ = ["WorkingDirectory"]

_PREFIX = "holdfast-state-"
_LOCK = ".lock"


class WorkingDirectory:
    """A new, empty directory below one of `bases`, this object's own until `close`."""

    def __init__(self, bases: Sequence[str] = (), entropy: Entropy | None = None) -> None:
        """Make one; without bases it is where temporary files are.

        Raises:
            Unavailable: no base can be written to; names the last one.
        """
        entropy = entropy or SystemEntropy()
        candidates = [Path(base) for base in bases] or [Path(tempfile.gettempdir())]
        first = int(entropy.uniform(0, len(candidates)))
        failure: OSError | None = None
        token = entropy.token()
        for base in candidates[first:] + candidates[:first]:
            try:
                base.mkdir(parents=True, exist_ok=True)
                _remove_dead(base)
                self._lock = _locked(base / f"{_PREFIX}{token}{_LOCK}")
                self.path = base / f"{_PREFIX}{token}"
                self.path.mkdir()
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
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self.path.with_name(self.path.name + _LOCK).unlink()
        os.close(self._lock)


def _locked(path: Path) -> int:
    """A descriptor that holds the lock; the system lets go of it when the process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_dead(base: Path) -> None:
    """Remove the directories of processes that are gone. What cannot be removed stays."""
    for lock in base.glob(f"{_PREFIX}*{_LOCK}"):
        try:
            descriptor = _locked(lock)
        except OSError:
            continue  # its process lives
        shutil.rmtree(lock.with_name(lock.name.removesuffix(_LOCK)), ignore_errors=True)
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)
