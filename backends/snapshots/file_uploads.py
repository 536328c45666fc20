"""Writing a snapshot that is files of the store: only those that no confirmed checkpoint has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from holdfast.backends.snapshots.neutral import KeyedAttributes, Segments, TableInfo
from holdfast.backends.snapshots.transfers import Check, send_file, side_by_side
from holdfast.backends.tables.files import KeptTable, StoreFile
from holdfast.storage import Handle

__all__ = [
    "ConfirmedFiles",
    "FileHandles",
    "FilesAttributes",
    "FilesTarget",
    "KeptInfo",
    "handle_name",
    "write_files",
]

_SHARED_FROM_BYTES = 64 * 1024
"""Smaller files are written into the slot's own file each time: to have a file for each of them
would cost a storage more than their bytes do."""


class KeptInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table that is in the files: what it is, and how it is kept."""

    info: TableInfo
    kept: KeptTable


class FilesAttributes(KeyedAttributes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attributes of a snapshot of keyed state in files of the store.

    `tables` are those that are not in the files, but beside them in the neutral form.
    """

    format: str
    files: tuple[KeptInfo, ...]


def handle_name(file: str) -> str:
    """The name of the handle of a file. No table's segment has such a name."""
    return f"_files/{file}"


class ConfirmedFiles:
    """Which files need not be written again: those of the newest checkpoint known to be completed.

    A file that was written for a checkpoint which is not completed may be deleted with it, so it
    is not built on. Files of a checkpoint before the newest one may be deleted as well: if the
    newest wrote one of them again, it has a handle of its own, and that one counts.

    `restored` has those of the checkpoint that it all began from. What is told of it, or of any
    before the first that was begun here, changes nothing.

    Whoever writes a snapshot says so in `written`; all else belongs to the owner's thread.
    """

    def __init__(self, restored: Mapping[str, Handle] | None = None) -> None:
        self._base = restored or {}
        self._base_id: int | None = None
        self._written: dict[int, Mapping[str, Handle]] = {}

    def begin(self, checkpoint_id: int) -> Mapping[str, Handle]:
        """The handles of lasting files that this snapshot may refer to, by file, if it is files."""
        if self._base_id is None:
            self._base_id = checkpoint_id - 1
        return self._base

    def written(self, checkpoint_id: int, files: Mapping[str, Handle]) -> None:
        """A snapshot is written; these are its lasting files."""
        self._written[checkpoint_id] = files

    def completed(self, checkpoint_id: int) -> None:
        """The checkpoint is completed, and those before it are of no use any more."""
        if self._base_id is not None and checkpoint_id > self._base_id:
            self._base = self._written.get(checkpoint_id, {})
            self._base_id = checkpoint_id
            written = list(self._written)  # at once: the background may be adding one
            for number in written:
                if number <= checkpoint_id:
                    del self._written[number]

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will not be completed."""
        self._written.pop(checkpoint_id, None)


def write_files(
    files: Sequence[StoreFile], base: Mapping[str, Handle], upload: FilesTarget
) -> FileHandles:
    """Write what `base` has not, answer where everything is.

    Small files and those that do not last go into the slot's own file, the others side by side,
    each into one of its own.

    Raises:
        CancelledError: the snapshot was given up.
        HoldfastError: a file could not be read or written; what was written is nobody's.
    """
    handles: dict[str, Handle] = {}
    lasting: dict[str, Handle] = {}
    missing: list[StoreFile] = []
    for file in files:
        if not file.is_lasting or file.size_bytes < _SHARED_FROM_BYTES:
            handles[file.name] = send_file(file.path, upload.own, upload.check)
        elif file.name in base:
            lasting[file.name] = base[file.name]
        else:
            missing.append(file)
    tasks = [partial(_write_shared, upload, file.path) for file in missing]
    sent = side_by_side(tasks, upload.check)
    lasting |= {file.name: handle for file, handle in zip(missing, sent, strict=True)}
    return FileHandles(handles | lasting, lasting)


@dataclass(frozen=True, slots=True)
class FilesTarget:
    """Where the files of one snapshot go: `own` is the slot's file, `shared` begins one more."""

    own: Segments
    shared: Callable[[], Segments]
    check: Check


@dataclass(frozen=True, slots=True)
class FileHandles:
    """The handles of all files of a snapshot, by file, and of those to build on later."""

    handles: Mapping[str, Handle]
    lasting: Mapping[str, Handle]


def _write_shared(upload: FilesTarget, path: Path, check: Check) -> Handle:
    with upload.shared() as segments:
        return send_file(path, segments, check)
