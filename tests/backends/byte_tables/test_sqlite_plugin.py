"""The worked example of docs/write-a-backend.md: a plug-in that passes the suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.backends import (
    HashMapStateBackend,
    StateBackend,
    load_backend,
    registered_backends,
)
from holdfast.backends.testing import Place, StateBackendConformance
from holdfast.backends.testing.machine import StateBackendMachine
from holdfast.storage import Invalid
from holdfast_sqlite import SqliteStateBackend
from support.installing import install_project

ROOT = Path(__file__).resolve().parents[3]
PROJECT = ROOT / "tests" / "sqlite_plugin"
USUAL = settings(
    max_examples=10,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
class TestSqlite(StateBackendConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        (tmp_path / "a file").write_bytes(b"")
        root = tmp_path / "state"
        root.mkdir()
        return Place(
            open=lambda: SqliteStateBackend(str(root)),
            count=lambda: len(list(root.rglob("*"))),
            unusable=lambda: SqliteStateBackend(str(tmp_path / "a file")),
        )


class SqliteMachine(StateBackendMachine):
    def open_backend(self) -> StateBackend:
        return SqliteStateBackend()


@pytest.mark.slow
def test_the_plugin_behaves_like_a_dict_that_survives_restores() -> None:
    run_state_machine_as_test(SqliteMachine, settings=USUAL)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install_project(tmp_path, PROJECT))


@pytest.mark.usefixtures("installed")
def test_the_plugin_is_found_by_its_entry_point() -> None:
    assert sorted(registered_backends()) == ["changelog", "hashmap", "rocksdb", "sqlite"]
    backend = load_backend("sqlite", directory="/fast")
    assert backend == SqliteStateBackend("/fast")


@pytest.mark.usefixtures("installed")
def test_an_unknown_option_names_those_there_are() -> None:
    with pytest.raises(Invalid, match=r"'folder' is not known.*one of directory"):
        load_backend("sqlite", folder="/fast")


def test_the_name_is_unknown_without_the_plugin() -> None:
    with pytest.raises(Invalid, match=r"'sqlite'.*hashmap"):
        load_backend("sqlite")
    assert load_backend("hashmap") == HashMapStateBackend()
