"""Files of a sink in a directory of this machine, or one that the kernel mounts.

What was finished survives the loss of power: the file is synced, and so is every directory that
leads to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from holdfast.runtime.sinks.files.output_folder import HiddenFile, OutputFolder
from holdfast.storage.places.local import make_directories, sync_directory

__all__ = ["LocalOutputFolder"]

_BUFFER_BYTES = 1 << 20


class LocalOutputFolder(OutputFolder):
    """A directory."""

    def __init__(self, root: str) -> None:
        super().__init__(root, root)

    def create(self, hidden: str) -> HiddenFile:
        path = self.path(hidden)
        make_directories(os.path.dirname(path))
        return _LocalFile(path)

    def size_bytes(self, name: str) -> int | None:
        try:
            return os.stat(self.path(name)).st_size
        except FileNotFoundError:
            return None

    def move(self, hidden: str, final: str) -> None:
        os.rename(self.path(hidden), self.path(final))

    def make_durable(self, finals: Sequence[str]) -> None:
        for folder in sorted({os.path.dirname(self.path(final)) for final in finals}):
            sync_directory(folder)

    def remove(self, hidden: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.path(hidden))

    def listed(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.path(folder)))
        except FileNotFoundError:
            return []


class _LocalFile(HiddenFile):
    def __init__(self, path: str) -> None:
        super().__init__(open(path, "xb", buffering=_BUFFER_BYTES), path)  # noqa: SIM115

    def finish(self) -> int:
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        sync_directory(os.path.dirname(self.where))
        return self._written

    def discard(self) -> None:
        with suppress(OSError):  # closing writes what is in the buffer, which may be why it failed
            self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self.where)
