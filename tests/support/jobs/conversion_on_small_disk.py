"""A savepoint that takes some pieces to convert, its conversion, and a disk that gets full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import KeyGroupRange, ValueStateDescriptor, load_backend
from holdfast.savepoints import StoredSnapshot, compare, find_snapshot
from holdfast.savepoints.conversion import Conversion, ConversionOptions, InProcess
from holdfast.storage import (
    FileSystemCheckpointStorage,
    NotFound,
    ObjectWriter,
    OperatorState,
    SavepointFolder,
    Unavailable,
    load_storage,
)
from support.states.made_savepoints import complete

__all__ = [
    "ENTRIES",
    "FullDisk",
    "begin_until_full",
    "check_is_none",
    "check_same",
    "conversion",
    "make_large",
    "tasks_done",
]

ENTRIES = 120_000


def make_large(root: Path) -> StoredSnapshot:
    """A savepoint that takes a while to convert in small pieces."""
    folder = SavepointFolder.begin(load_storage(str(root)), "job")
    with load_backend("hashmap").open(
        uid="spend", key_groups=KeyGroupRange(0, 127), max_parallelism=128
    ) as state:
        total = state.get_state(ValueStateDescriptor("total", int))
        total.put_many([f"user {number:011d}" for number in range(ENTRIES)], range(ENTRIES))
        part = state.snapshot(1, folder).result(60)
    complete(folder, {"spend": OperatorState(parallelism=2, max_parallelism=128, parts=(part,))})
    return find_snapshot(folder.url)


def conversion(
    source: StoredSnapshot, to: Path | FileSystemCheckpointStorage, **changes: Any
) -> Conversion:
    storage = to if isinstance(to, FileSystemCheckpointStorage) else load_storage(str(to))
    options = {"backend": None, "is_canonical": True, **changes.pop("options", {})}
    return Conversion(
        **{
            "source": source,
            "destination": SavepointFolder(storage, ""),
            "options": ConversionOptions(**options),
            "backend": None,
            "runner": InProcess(),
            **changes,
        }
    )


def check_same(source: StoredSnapshot, to: Path) -> None:
    after = find_snapshot(str(to))
    assert compare(source, after, lambda _: None).are_equal
    found = {str(each.relative_to(to)) for each in to.rglob("*") if each.is_file()}
    assert found == {"_metadata", *after.metadata.files()}


def tasks_done(to: Path) -> int:
    return len(list(to.glob("_conversion/task-*")))


class FullDisk(FileSystemCheckpointStorage):
    """A disk with room for so many files."""

    room = 10**9

    def writer(self, name: str) -> ObjectWriter:
        if self.room == 0:
            raise Unavailable("the disk is full", where=name)
        self.room -= 1
        return super().writer(name)


def begin_until_full(source: StoredSnapshot, to: Path, room: int = 9, **changes: Any) -> None:
    """A conversion that meets a full disk after so many files."""
    storage = FullDisk(str(to))
    storage.room = room
    with pytest.raises(Unavailable, match="the disk is full"):
        conversion(source, storage, **changes).run()


def check_is_none(to: Path) -> None:
    with pytest.raises(NotFound, match="no whole savepoint"):
        find_snapshot(str(to))
