"""Every storage of the house passes the suite that it ships."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from holdfast.storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from holdfast.storage.testing import CheckpointStorageConformance, Place


def files_below(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def below_a_file(folder: Path) -> str:
    """A path at which no directory can be."""
    file = folder / "a file"
    file.write_bytes(b"")
    return str(file / "checkpoints")


class TestMemory(CheckpointStorageConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Place]:
        storage = JobManagerCheckpointStorage(f"memory://{tmp_path.name}")

        def unusable() -> CheckpointStorage:
            copy: CheckpointStorage = pickle.loads(pickle.dumps(storage))
            return copy

        yield Place(open=lambda: JobManagerCheckpointStorage(storage.url), unusable=unusable)
        storage.delete(info.name for info in storage.list(""))


class TestLocal(CheckpointStorageConformance):
    @pytest.fixture
    def place(self, quick_path: Path) -> Place:
        root = quick_path / "übung der kontrollpunkte 部" / "100% #1? a%41"
        return Place(
            open=lambda: FileSystemCheckpointStorage(str(root)),
            count=lambda: files_below(root),
            unusable=lambda: FileSystemCheckpointStorage(below_a_file(quick_path)),
        )


@pytest.mark.slow
@pytest.mark.dealt("class")
class TestFsspecMemory(CheckpointStorageConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Place]:
        files = fsspec.filesystem("memory")
        root = f"/{tmp_path.name}/a place"
        yield Place(
            open=lambda: FileSystemCheckpointStorage(f"memory://{root}"),
            count=lambda: len(files.find(root)),
        )
        files.store.clear()


@pytest.mark.slow
@pytest.mark.dealt("class")
class TestFsspecLocal(CheckpointStorageConformance):
    """A file system of which fsspec knows no atomic create, taken at the user's own risk."""

    @pytest.fixture
    def place(self, quick_path: Path) -> Place:
        root = quick_path / "übung 部"

        def at(path: str) -> CheckpointStorage:
            return FileSystemCheckpointStorage(f"local://{path}", allow_unsafe_commit=True)

        return Place(
            open=lambda: at(str(root)),
            count=lambda: files_below(root),
            unusable=lambda: at(below_a_file(quick_path)),
        )
