"""Registrations of running jobs: files in a per-user folder, beside the sockets of endpoints.

```
<folder>/<run>.json     who and where, and the secret; mode 0600
<folder>/<run>.sock     the socket that the driver listens on
```
The file appears whole, after the driver listens on the socket, and is removed before that ends. So
a socket that refuses connections belongs to a driver that was killed, and a process that finds it
removes both files. A process id would not tell: another process may have it by now.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.runtime.control.folder import check_folder
from holdfast.storage import Clock, Corrupt, HoldfastError, Invalid, Unavailable
from holdfast.storage.errors import UNREADABLE

__all__ = [
    "FoundRun",
    "Registration",
    "Runs",
    "entry_path",
    "find_runs",
    "register",
    "socket_path",
    "unregister",
]

_OURS = re.compile(r"([0-9a-f]{16})\.(json|sock|tmp)")
"""Names of files of runs; all other files in the folder are not ours, and are not touched."""
_VERSION = 1
_LIMIT_BYTES = 1 << 20
"""Of a registration: the longest name that a job may have fits in, however JSON escapes it."""
_CONNECT_TIMEOUT_S = 2.0
_BEGINNING_MS = 60_000
"""A driver that has not registered so long after it has made its socket was killed."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One running job, as its driver registers it; the driver answers for its state."""

    version: int = _VERSION
    job: str
    run: str
    """Identifies this run; also the name of its files."""
    pid: int
    host: str
    token: str
    storage: str
    """The folder of its checkpoints."""
    started_ms: int
    holdfast_version: str

    def __repr__(self) -> str:
        """Without the secret: this may be logged."""
        return f"Registration(job={self.job!r}, run={self.run!r}, pid={self.pid})"


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run whose driver listens."""

    registration: Registration
    socket: Path


@dataclass(frozen=True, slots=True)
class Runs:
    """The result of searching the folders."""

    found: tuple[FoundRun, ...]
    """By job and start."""
    troubles: tuple[HoldfastError, ...]
    """Errors of folders and files that were skipped."""


def socket_path(folder: Path, run: str) -> Path:
    """The socket of a run's endpoint."""
    return folder / f"{run}.sock"


def entry_path(folder: Path, run: str) -> Path:
    """The registration of a run."""
    return folder / f"{run}.json"


def register(folder: Path, registration: Registration) -> None:
    """Register a run, whose endpoint listens already.

    Raises:
        OSError: it cannot be written.
    """
    # Under another name first: a command that reads it half written would call it damaged.
    fresh = folder / f"{registration.run}.tmp"
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(msgspec.json.encode(registration))
    fresh.rename(entry_path(folder, registration.run))


def unregister(folder: Path, run: str) -> None:
    """Remove registration and socket of a run, as far as they exist."""
    for path in (entry_path(folder, run), socket_path(folder, run), folder / f"{run}.tmp"):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def find_runs(folders: Iterable[Path], *, host: str, clock: Clock) -> Runs:
    """The runs whose drivers listen. Removes the files of drivers that were killed.

    Folders that do not exist are skipped; those that other users could use are not read, and are
    among the troubles.
    """
    found: list[FoundRun] = []
    troubles: list[HoldfastError] = []
    for folder in folders:
        if not os.path.lexists(folder):
            continue
        try:
            check_folder(folder)
            names = sorted(path.name for path in folder.iterdir() if _OURS.fullmatch(path.name))
        except HoldfastError as error:
            troubles.append(error)
            continue
        except OSError as error:
            troubles.append(
                Unavailable("a folder cannot be read", where=str(folder), found=str(error))
            )
            continue
        for name in names:
            if name.endswith(".json"):
                _look(folder, name.removesuffix(".json"), host, found, troubles)
        _remove_unregistered(folder, set(names), clock)
    found.sort(key=lambda each: (each.registration.job, each.registration.started_ms))
    return Runs(tuple(found), tuple(troubles))


def _look(
    folder: Path, run: str, host: str, found: list[FoundRun], troubles: list[HoldfastError]
) -> None:
    path = socket_path(folder, run)
    try:
        registration = _read(entry_path(folder, run))
    except FileNotFoundError:
        return  # the run has just ended
    except HoldfastError as error:
        if _listens(path):
            troubles.append(error)
        else:
            unregister(folder, run)
        return
    if _listens(path):
        found.append(FoundRun(registration, path))
    elif registration.host == host:  # a socket of another machine cannot be tried from here
        unregister(folder, run)


def _read(path: Path) -> Registration:
    """The registration in a file.

    Raises:
        FileNotFoundError: it exists no more.
        Invalid: it is of a newer version, or other users may read or have written it.
        Corrupt: it is damaged.
    """
    try:
        # Not blocking: to open a FIFO in its place would wait for a writer. What it is, and whose,
        # is asked of the open file below, which cannot be exchanged any more.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Invalid("the file of a running job cannot be read", where=str(path)) from error
    with os.fdopen(file, "rb") as stream:
        status = os.fstat(file)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or mode & 0o077:
            raise Invalid(
                "the file of a running job is open to other users",
                where=str(path),
                expected=f"a file of user {os.getuid()} with mode 0600",
                found=f"user {status.st_uid}, mode {mode:04o}",
                fix="Remove it; its job continues, and only its own program can reach it",
            )
        data = stream.read(_LIMIT_BYTES + 1)
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version == _VERSION:
            return msgspec.json.decode(data, type=Registration)
    except UNREADABLE as error:
        raise Corrupt(
            "the file of a running job is damaged", where=str(path), found=str(error)
        ) from error
    raise Invalid(
        "a running job has registered in a form that this Holdfast does not know",
        where=str(path),
        expected=f"version {_VERSION}",
        found=f"version {version}",
        fix="Use the holdfast command of the installation that runs the job",
    )


class _Versioned(msgspec.Struct):
    version: int


def _listens(path: Path) -> bool:
    """Whether a process listens there. One that is too busy to answer does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        try:
            connection.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _remove_unregistered(folder: Path, names: set[str], clock: Clock) -> None:
    """Remove files of drivers that were killed before they had registered."""
    for name in names:
        run, _, kind = name.rpartition(".")
        if kind == "json" or f"{run}.json" in names:
            continue
        path = folder / name
        with suppress(OSError):
            age_ms = clock.now_ms() - path.lstat().st_mtime_ns // 1_000_000
            if age_ms > _BEGINNING_MS and not _listens(socket_path(folder, run)):
                path.unlink(missing_ok=True)
