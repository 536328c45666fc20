"""Uploading a snapshot that is files of the store: only files that no confirmed checkpoint has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from holdfast.backends.snapshots.neutral import KeyedAttributes, Segments, TableInfo
from holdfast.backends.snapshots.transfers import Check, send_file, side_by_side
from holdfast.backends.tables.files import KeptTable, StoreFile
from holdfast.storage import Handle

__all__ = ["ConfirmedFiles", "FilesAttributes", "KeptInfo", "handle_name", "write_files"]

_SHARED_FROM_BYTES = 64 * 1024
"""Smaller files are written into the slot's own file each time: an object of their own would cost
the storage more than their bytes do."""


class KeptInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table in the files: its description, and how it is kept."""

    info: TableInfo
    kept: KeptTable


class FilesAttributes(KeyedAttributes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attributes of a snapshot of keyed state in files of the store.

    `tables` are those beside the files, in the neutral form.
    """

    format: str
    files: tuple[KeptInfo, ...]


def handle_name(file: str) -> str:
    """The name of the handle of a file. No segment of a table has such a name."""
    return f"_files/{file}"


class ConfirmedFiles:
    """Files that need not be uploaded again: those of the newest checkpoint known to be completed.

    A file of a checkpoint that is not completed may be deleted with it, so no snapshot refers to
    it. Files of older checkpoints may be deleted, too: if the newest one uploaded such a file
    again, its own handle is used.

    `restored` has the files of the restored checkpoint. Notifications about that one, or about any
    before the first that was begun here, change nothing.

    The background thread calls `written`; the owner's thread calls everything else.
    """

    def __init__(self, restored: Mapping[str, Handle] | None = None) -> None:
        self._base = restored or {}
        self._base_id: int | None = None
        self._written: dict[int, Mapping[str, Handle]] = {}

    def begin(self, checkpoint_id: int) -> Mapping[str, Handle]:
        """The handles of lasting files that this snapshot may refer to, by file."""
        if self._base_id is None:
            self._base_id = checkpoint_id - 1
        return self._base

    def written(self, checkpoint_id: int, files: Mapping[str, Handle]) -> None:
        """Record that a snapshot is written, with these lasting files."""
        self._written[checkpoint_id] = files

    def completed(self, checkpoint_id: int) -> None:
        """Record that the checkpoint is completed; files of earlier ones are not used any more."""
        if self._base_id is not None and checkpoint_id > self._base_id:
            self._base = self._written.get(checkpoint_id, {})
            self._base_id = checkpoint_id
            written = list(self._written)  # a copy: the background thread may add one
            for number in written:
                if number <= checkpoint_id:
                    del self._written[number]

    def aborted(self, checkpoint_id: int) -> None:
        """Record that the checkpoint will not be completed."""
        self._written.pop(checkpoint_id, None)


def write_files(
    files: Sequence[StoreFile],
    base: Mapping[str, Handle],
    *,
    own: Segments,
    shared: Callable[[], Segments],
    check: Check,
) -> tuple[dict[str, Handle], dict[str, Handle]]:
    """Upload the files that `base` does not have.

    Small files and those that do not last go into the slot's `own` file, the others in parallel
    into a file each, which `shared` begins. Answers the handles of lasting files, to which later
    snapshots may refer, and those of the other files.

    Raises:
        CancelledError: the snapshot was cancelled.
        HoldfastError: a file could not be read or written; uploaded files are orphans.
    """

    def write_shared(path: Path, check: Check) -> Handle:
        with shared() as segments:
            return send_file(path, segments, check)

    others: dict[str, Handle] = {}
    lasting: dict[str, Handle] = {}
    missing: list[StoreFile] = []
    for file in files:
        if not file.is_lasting or file.size_bytes < _SHARED_FROM_BYTES:
            others[file.name] = send_file(file.path, own, check)
        elif file.name in base:
            lasting[file.name] = base[file.name]
        else:
            missing.append(file)
    sent = side_by_side([partial(write_shared, file.path) for file in missing], check)
    lasting |= {file.name: handle for file, handle in zip(missing, sent, strict=True)}
    return lasting, others
