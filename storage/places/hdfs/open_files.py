"""Recently opened files of an HDFS, so that the ranges of a long one open it once.

Opening a file asks the name node for its blocks, which takes an eighth as long as reading a block
of a segment. Entries are a few seconds old at most, and objects do not change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from holdfast.storage.clock import Clock

if TYPE_CHECKING:
    from hdfs_native import FileReader

__all__ = ["OpenFiles"]

_FILES = 16
_KEPT_S = 5.0


class OpenFiles:
    """The files by path. Safe to use from many threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._files: OrderedDict[str, tuple[float, FileReader]] = OrderedDict()

    def get(self, path: str) -> FileReader | None:
        """The file, if it was opened recently."""
        with self._lock:
            opened_s, file = self._files.get(path, (0.0, None))
            if file is not None and self._clock.monotonic_s() - opened_s > _KEPT_S:
                del self._files[path]
                return None
            return file

    def keep(self, path: str, file: FileReader) -> None:
        """Add a file that was just opened."""
        with self._lock:
            self._files[path] = self._clock.monotonic_s(), file
            self._files.move_to_end(path)
            while len(self._files) > _FILES:
                self._files.popitem(last=False)

    def drop(self, path: str) -> None:
        """Remove a file that is gone, was replaced, or cannot be read."""
        with self._lock:
            self._files.pop(path, None)
