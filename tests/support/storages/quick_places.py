"""Where files of tests are that need not last."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 << 30


def quick_place() -> str | None:
    """For `dir` of temporary folders: in memory where the system offers that, else None.

    A database syncs each file that it writes. On a disk that others use too, tests of backends wait
    for that most of their time, and for nothing: no test takes the power away.
    """
    is_there = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)
    return str(_MEMORY) if is_there and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES else None
