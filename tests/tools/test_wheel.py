"""The wheel holds the modules of every room, their type markers and the entry points: no more."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import bootstrap

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_wheel_holds_what_the_rooms_hold(tmp_path: Path) -> None:
    files = bootstrap.package_files(ROOT)
    for name in (*files, "pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out", "."]
    ended = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = (tmp_path / "out").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (points,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        listed = archive.read(points).decode()
    assert {name for name in names if ".dist-info/" not in name} == {
        f"holdfast/{name}" if "/" in name else name for name in files
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for group, entries in project["entry-points"].items():
        assert f"[{group}]" in listed
        assert all(f"{name} = {target}" in listed for name, target in entries.items())
