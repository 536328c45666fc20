"""`holdfast backends`: what is registered, and why something cannot be used."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from holdfast.runtime.cli.application import application
from support.installing import install_entries


def call(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["backends", *arguments], catch_exceptions=False)


def document(code: int = 0) -> dict[str, dict[str, Any]]:
    result = call("--json")
    assert result.exit_code == code, result.output
    told = json.loads(result.stdout)
    return {kind: {part["name"]: part for part in parts} for kind, parts in told.items()}


def test_registered_plugins_are_listed_with_their_capabilities() -> None:
    told = document()
    assert set(told) == {"state_backends", "checkpoint_storages", "changelog_storages"}
    assert told["state_backends"]["rocksdb"]["capabilities"] == {
        "keeps_files": True,
        "own_snapshots": True,
    }
    assert told["state_backends"]["hashmap"]["capabilities"]["own_snapshots"] is False
    storages = told["checkpoint_storages"]
    assert {"memory", "file", "s3", "hdfs", "viewfs"} <= set(storages)
    assert storages["memory"]["capabilities"]["shared_between_processes"] is False
    assert storages["s3"]["capabilities"]["atomic_create"] is True
    assert "nothing mounted" in storages["viewfs"]["unknown"]
    assert told["changelog_storages"]["checkpoints"]["purpose"].startswith("Writes logs")
    table = call()
    assert table.exit_code == 0
    assert "not shared between processes" in table.stdout


def test_a_plugin_that_cannot_be_loaded_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_plugin.py").write_text(
        "class Needs:\n    def __init__(self): raise RuntimeError('no licence')\n"
    )
    entries = {"absent": "no_such_module:Backend", "picky": "broken_plugin:Needs"}
    path = install_entries(tmp_path, "broken-plugin", "holdfast.state_backends", entries)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(path)
    told = document(code=1)["state_backends"]
    assert told["absent"]["error"].startswith("state backend 'absent' cannot be imported")
    assert "No module named 'no_such_module'" in told["absent"]["error"]
    assert told["absent"]["distribution"] == "broken-plugin 1.0"
    assert "RuntimeError('no licence')" in told["picky"]["error"]
    assert "error" not in told["hashmap"]
    result = call()
    assert result.exit_code == 1
    assert "absent: " in result.stderr
    assert "cannot be used" in result.stdout
    sys.modules.pop("broken_plugin", None)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.storage.places.s3.storage.find_spec", lambda _: None)
    storages = document(code=1)["checkpoint_storages"]
    for name in ("s3", "s3a"):
        assert 'pip install "holdfast-spark[s3]"' in storages[name]["error"]
    assert "error" not in storages["file"]
