"""Every built-in state backend passes the shipped suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.backends import HashMapStateBackend
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.testing import Place, StateBackendConformance
from holdfast.backends.testing.state_clauses.files import FileClauses
from holdfast.backends.testing.state_clauses.lifecycle import LifecycleClauses
from support.broken.backends.lifecycle import WithFiles


class TestHashMap(StateBackendConformance):
    @pytest.fixture
    def place(self) -> Place:
        return Place(open=HashMapStateBackend)


@pytest.mark.slow
@pytest.mark.dealt("form")
@pytest.mark.parametrize("form", ["incremental", "full"])
class TestRocksDB(StateBackendConformance):
    @pytest.fixture
    def place(self, quick_path: Path, form: str) -> Place:
        (quick_path / "file").write_bytes(b"")
        root = quick_path / "place"
        return Place(
            open=lambda: RocksDBStateBackend(
                memory="16m", incremental=form == "incremental", directories=[str(root)]
            ),
            count=lambda: sum(path.is_file() for path in root.rglob("*")),
            unusable=lambda: RocksDBStateBackend(directories=[str(quick_path / "file" / "place")]),
        )


class TestSomeThatKeepsFiles(FileClauses, LifecycleClauses):
    """What the broken ones that keep files are, but for one thing."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        (tmp_path / "file").write_bytes(b"")
        root = tmp_path / "place"
        return Place(
            open=lambda: WithFiles(str(root)),
            count=lambda: sum(path.is_file() for path in root.rglob("*")),
            unusable=lambda: WithFiles(str(tmp_path / "file" / "place")),
        )
