"""The zip for `--py-files` imports, finds its plug-ins, and is the same for the same sources."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

import pyfiles

ROOT = Path(__file__).resolve().parents[2]

# -S: the editable install is out of reach, for its .pth file is not read; its dependencies are not.
IMPORT_ALL = """
import importlib, json, sys
from importlib.metadata import distribution, entry_points
packages, groups = map(json.loads, sys.argv[1:])
found = {
    "files": [importlib.import_module(name).__file__ for name in packages],
    "plugins": {group: [point.name for point in entry_points(group=group) if point.load()]
                for group in groups},
    "version": distribution("holdfast-spark").version,
}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.mark.slow
def test_every_package_and_plug_in_loads_from_the_zip(
    tmp_path: Path, pyproject: dict[str, Any]
) -> None:
    archive = pyfiles.build(ROOT, tmp_path)
    packages = pyproject["tool"]["setuptools"]["packages"]
    groups = pyproject["project"]["entry-points"]
    path = os.pathsep.join([str(archive), sysconfig.get_paths()["purelib"]])
    ended = subprocess.run(
        [sys.executable, "-S", "-c", IMPORT_ALL, json.dumps(packages), json.dumps([*groups])],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert all(file.startswith(f"{archive}{os.sep}holdfast") for file in found["files"])
    assert found["plugins"] == {group: list(entries) for group, entries in groups.items()}
    assert found["version"] == pyproject["project"]["version"]


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = (pyfiles.build(ROOT, tmp_path / name) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert list(one.parent.iterdir()) == [one]
