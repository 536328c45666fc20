"""Holdfast's directories on local disks, and the removal of those whose process has died.

    <base>/holdfast-state-<token>/       files of a store; the process holds a lock on it
    <base>/holdfast-query-<token>/       the log of a query, likewise; other kinds have other words
    <base>/holdfast-copies-<user>/       outlives its process; has a marker file in it

The operating system releases the lock when the process ends in any way. So an unlocked directory
belonged to a dead process, and the next process that makes one removes it, of whatever kind it is;
a directory of a live process is never touched. Programs that delete old temporary files skip locked
ones, too. All directories have mode 0700, since they hold state.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from os import PathLike
from pathlib import Path

from holdfast.storage import Entropy, Invalid, SystemEntropy, Unavailable

__all__ = ["WorkingDirectory", "by_room", "lasting_directory", "remove_dead_directories"]

_OURS = re.compile(r"holdfast-[a-z]+-[0-9a-f]{16}")
_OURS_ALONE = 0o700
_MARKER, _MARK = ".holdfast", b"Holdfast keeps files in this folder, and deletes them.\n"
_PROBE_BYTES = 64 * 1024


class WorkingDirectory:
    """A new, empty directory below one of `bases`, this object's own until `close`."""

    def __init__(
        self,
        bases: Sequence[str | PathLike[str]] = (),
        entropy: Entropy | None = None,
        *,
        kind: str = "state",
    ) -> None:
        """Make one where files can be written; without bases in the directory of temporary files.

        `kind` is a word in small letters for the content. A base is chosen at random, weighted by
        the free space of its disk: so stores that are made at the same time spread over the disks,
        and a full disk is avoided. Before that, directories of dead processes are removed from all
        bases.

        Raises:
            Unavailable: no base can be written to; names them all.
        """
        entropy = entropy or SystemEntropy()
        candidates = _candidates(bases)
        failures: dict[Path, OSError] = {}
        rooms: dict[Path, int] = {}
        for base in candidates:
            try:
                base.mkdir(parents=True, exist_ok=True)
                _remove_dead(base)
                rooms[base] = shutil.disk_usage(base).free
            except OSError as error:
                failures[base] = error
        for base in by_room(rooms, entropy):
            try:
                self.path, self._lock = _made(base, kind, entropy)
            except OSError as error:
                failures[base] = error
            else:
                return
        raise Unavailable(
            f"a directory for {kind} cannot be made",
            where=", ".join(map(str, candidates)),
            expected="a directory of this machine that can be written to",
            found="; ".join(map(str, failures.values())),
            fix="Make room on the disk, or name another one in `directories`",
        ) from next(iter(failures.values()))

    def close(self) -> None:
        """Remove the directory with its content. Later calls do nothing."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            _remove(self.path, lock)


def remove_dead_directories(bases: Sequence[str | PathLike[str]] = ()) -> None:
    """Remove directories of dead processes, as the next `WorkingDirectory` there would do.

    For processes that may never make one, though one that was killed before them did.
    """
    for base in _candidates(bases):
        with suppress(OSError):
            _remove_dead(base)


def _candidates(bases: Sequence[str | PathLike[str]]) -> list[Path]:
    return [Path(base) for base in bases] or [Path(tempfile.gettempdir())]


def by_room(rooms: Mapping[Path, int], entropy: Entropy) -> Iterator[Path]:
    """All paths in random order, weighted by their free space."""
    left = dict(rooms)
    while left:
        drawn = entropy.uniform(0, sum(left.values()))
        reached = zip(left, accumulate(left.values()), strict=True)
        base = next((base for base, end in reached if drawn < end), next(reversed(left)))
        del left[base]
        yield base


def lasting_directory(base: str | PathLike[str], kind: str, entropy: Entropy) -> Path:
    """The user's own directory of a kind below a base, which stays when the process ends.

    It is made if it does not exist, and appears together with its marker file. Only Holdfast's own
    files are ever deleted: a directory of this name without the marker is refused.

    Raises:
        Invalid: something else has this name; nothing was changed.
        OSError: it cannot be made.
    """
    path = Path(base, f"holdfast-{kind}-{os.getuid()}")
    if not os.path.lexists(path):
        Path(base).mkdir(parents=True, exist_ok=True)
        fresh, lock = _made(Path(base), kind, entropy)
        try:
            (fresh / _MARKER).write_bytes(_MARK)
            fresh.rename(path)
        except OSError:
            if not os.path.lexists(path):
                raise
            _remove(fresh, os.dup(lock))  # another process made it first
        finally:
            os.close(lock)
    found = path.lstat()
    marker = path / _MARKER
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or not marker.is_file() or marker.is_symlink():
        raise Invalid(
            "a folder has the name of one of Holdfast's, but not its marker",
            where=str(path),
            expected=f"a directory of user {os.getuid()} with a file {_MARKER} in it",
            found="a folder without it" if is_ours else "a link, a file, or another user's",
            fix="Move it away, or name another directory",
        )
    path.chmod(_OURS_ALONE)
    return path


def _made(base: Path, kind: str, entropy: Entropy) -> tuple[Path, int]:
    """A new directory that can be written to, and the descriptor that holds its lock."""
    while True:
        path = base / f"holdfast-{kind}-{entropy.token()}"
        path.mkdir(mode=_OURS_ALONE)
        lock = _locked(path)
        if lock is not None:
            break  # else a process that removes dead directories locked it first
    try:
        _probe(path / "probe")
    except OSError:
        _remove(path, lock)
        raise
    return path, lock


def _probe(path: Path) -> None:
    """Write a file: a full disk can still make a directory."""
    with path.open("wb", buffering=0) as file:
        data = memoryview(bytes(_PROBE_BYTES))
        while data:
            data = data[file.write(data) :]
        os.fsync(file.fileno())
    path.unlink()


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of a directory.

    None if another process holds it, or held it and has removed the directory.
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
    """Remove directories of dead processes. What cannot be removed stays.

    Only this user's: root could lock and remove one that another user's process is about to lock.
    """
    for path in base.glob("holdfast-*"):
        if not _OURS.fullmatch(path.name):
            continue
        with suppress(OSError):
            lock = _locked(path) if path.lstat().st_uid == os.getuid() else None
            if lock is not None:  # else its process lives
                _remove(path, lock)


def _remove(path: Path, lock: int) -> None:
    """Remove what can be removed of a directory, and unlock it: the next process tries again."""
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)
