"""What an error of the operating system means to the caller of a storage or of a sink.

Also for libraries that raise Python's `OSError` in its place, mostly without a number.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from holdfast.storage.errors import HoldfastError, Invalid, Unavailable

__all__ = ["translated"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_WRONG_PLACE = {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EINVAL}
_WRONG_PLACE |= {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}  # no links, no sync
_WRONG_KINDS = (NotADirectoryError, IsADirectoryError, FileExistsError)
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


def translated(
    error: OSError,
    action: str,
    path: str,
    *,
    purpose: str = "checkpoints",
    shown: Callable[[str], str] = str,
) -> HoldfastError:
    """The error of Holdfast for one of the operating system, or of a library in its place.

    Libraries raise Python's kinds of error without a number. `shown` masks secrets in their texts.
    """
    what = f"cannot {action}"
    found = shown(error.strerror or str(error)).partition("\n")[0] or type(error).__name__
    if error.errno in _FULL:
        return Unavailable(
            what, where=path, expected="room to write", found=found, fix="Free space, then retry"
        )
    if error.errno in _NOT_ALLOWED or isinstance(error, PermissionError):
        return Invalid(
            what,
            where=path,
            expected="permission",
            found=found,
            fix="Give this user the right to read, write, link and move files here, or choose "
            "another place",
        )
    if error.errno in _WRONG_PLACE or isinstance(error, _WRONG_KINDS):
        return Invalid(
            what,
            where=path,
            expected="a directory" if action == "list" else "a directory that can be written to",
            found=f"{found} ({error.filename})" if error.filename else found,
            fix="Check the path: it must be the folder, not a file in it"
            if action == "list"
            else f"Choose another place for {purpose}",
        )
    return Unavailable(what, where=path, found=found)
