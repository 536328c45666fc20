"""A changelog over each backend passes the suite that every backend passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.backends import load_backend
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.testing import Place, StateBackendConformance
from holdfast.changelog import ChangelogStateBackend
from holdfast_sqlite import SqliteStateBackend


@pytest.mark.slow
@pytest.mark.dealt("class")
class TestOverHashMap(StateBackendConformance):
    @pytest.fixture
    def place(self) -> Place:
        return Place(open=lambda: ChangelogStateBackend(load_backend("hashmap")))


@pytest.mark.slow
@pytest.mark.dealt("class")
class TestOverRocksDB(StateBackendConformance):
    @pytest.fixture
    def place(self, quick_path: Path) -> Place:
        (quick_path / "file").write_bytes(b"")
        root = quick_path / "place"

        def opened(directory: Path) -> ChangelogStateBackend:
            return ChangelogStateBackend(
                RocksDBStateBackend(memory="16m", directories=[str(directory)])
            )

        return Place(
            open=lambda: opened(root),
            count=lambda: sum(path.is_file() for path in root.rglob("*")),
            unusable=lambda: opened(quick_path / "file" / "place"),
        )


@pytest.mark.slow
@pytest.mark.dealt("class")
class TestOverAPlugIn(StateBackendConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        (tmp_path / "a file").write_bytes(b"")
        root = tmp_path / "state"
        root.mkdir()
        return Place(
            open=lambda: ChangelogStateBackend(SqliteStateBackend(str(root))),
            count=lambda: len(list(root.rglob("*"))),
            unusable=lambda: ChangelogStateBackend(SqliteStateBackend(str(tmp_path / "a file"))),
        )
