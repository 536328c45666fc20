"""The per-user folder in which running jobs register: where it is, and whether it can be trusted.

A user who can write into it could impersonate a job, and one who can read it could command a job.
So it must belong to this user and be closed to all others, and no other user may be able to
replace it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir

from holdfast.storage import Invalid, Unavailable

__all__ = ["FOLDER_VARIABLE", "check_folder", "make_folder", "run_folders"]

FOLDER_VARIABLE = "HOLDFAST_RUN_DIR"
_OURS_ALONE = 0o700
_WRITABLE_BY_OTHERS = 0o022


def run_folders(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The folders in which jobs of this user may register, the best first.

    `HOLDFAST_RUN_DIR` is the only one if it is set. Otherwise a service and a shell of one user may
    have different environments, so a job takes the first folder that can be used, and commands
    search all of them.
    """
    named = environment.get(FOLDER_VARIABLE, "")
    if named:
        return (Path(named).absolute(),)
    user = os.getuid()
    bases = [Path(environment.get("XDG_RUNTIME_DIR", "")), Path(f"/run/user/{user}")]
    places = [base / "holdfast" for base in bases if base.is_absolute() and base.is_dir()]
    return tuple(dict.fromkeys([*places, Path(gettempdir()) / f"holdfast-{user}"]))


def make_folder(path: Path) -> None:
    """Make the folder unless it exists. Afterwards only this user can use it.

    Raises:
        Invalid: it exists, and other users can use it.
        Unavailable: it cannot be made.
    """
    try:
        path.mkdir(mode=_OURS_ALONE, exist_ok=True)
    except FileExistsError:
        pass  # it is no folder: `check_folder` says so
    except OSError as error:
        raise Unavailable(
            "the folder for running jobs cannot be made", where=str(path), found=str(error)
        ) from error
    check_folder(path)


def check_folder(path: Path) -> None:
    """Check that the folder is this user's, and closed to others.

    Raises:
        Invalid: it is not; the error says what to do.
        Unavailable: it cannot be read.
    """
    try:
        found, above = path.lstat(), path.parent.stat()
    except OSError as error:
        raise Unavailable(
            "the folder for running jobs cannot be read", where=str(path), found=str(error)
        ) from error
    user = os.getuid()
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode):
        raise _not_ours(path, "a link or a file, and no folder")
    if found.st_uid != user:
        raise _not_ours(path, f"the folder of user {found.st_uid}")
    if mode & ~_OURS_ALONE:
        raise _not_ours(path, f"a folder with mode {mode:04o}, open to others")
    is_shared = above.st_mode & _WRITABLE_BY_OTHERS and not above.st_mode & stat.S_ISVTX
    if is_shared or above.st_uid not in (0, user):
        raise _not_ours(path, "a place where others could put another folder instead")


def _not_ours(path: Path, found: str) -> Invalid:
    return Invalid(
        "the folder for running jobs cannot be trusted",
        where=str(path),
        expected=f"a folder of user {os.getuid()} with mode 0700, where only that user or root "
        "could replace it",
        found=found,
        fix=f"Remove it, or name another one in {FOLDER_VARIABLE}",
    )
