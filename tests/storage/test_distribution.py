"""What the project is called where packages are installed, and another project of its old name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import holdfast
from holdfast.storage.distribution import DISTRIBUTION, holdfast_version, install_line

SAYS = "print('somebody else')\n"


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python that finds the packages of a folder before those that are installed."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_distribution_is_installed_under_its_name() -> None:
    assert DISTRIBUTION == "holdfast-spark"
    assert holdfast_version()[0].isdigit()
    assert install_line("s3") == 'pip install "holdfast-spark[s3]"'


def test_modules_beside_those_of_another_project_say_so(tmp_path: Path) -> None:
    (tmp_path / "holdfast").mkdir()
    stranger = tmp_path / "holdfast" / "__init__.py"
    ours = list(holdfast.__path__)
    # pip puts the files of both into one folder: the package is theirs, and has our modules.
    stranger.write_text(f"{SAYS}__path__.extend({ours!r})\n")
    for room in ("storage", "backends", "changelog", "runtime"):
        done = ran(tmp_path, "-c", f"from holdfast.{room} import *")
        assert done.returncode == 1
        told = done.stderr.splitlines()[-1]
        assert told.startswith("ImportError: another project's package `holdfast` is installed")
        assert f"{stranger}. Do: pip uninstall holdfast holdfast-spark; pip install" in told


def test_the_command_says_why_its_modules_are_not_found(tmp_path: Path) -> None:
    (tmp_path / "holdfast").mkdir()
    stranger = tmp_path / "holdfast" / "__init__.py"
    stranger.write_text(SAYS)
    done = ran(tmp_path, "-m", "holdfast_spark", "list")
    assert (done.returncode, done.stdout) == (1, "")
    (told,) = done.stderr.splitlines()
    assert told.startswith("error: another project's package `holdfast` is installed beside")
    assert str(stranger) in told


def test_the_command_is_there_as_a_module(tmp_path: Path) -> None:
    done = ran(tmp_path, "-m", "holdfast_spark", "--help")
    assert done.returncode == 0
    assert "savepoint" in done.stdout
