"""`make test` does not run again what `make check` has run on the same files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import run_tests


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".venv").mkdir()
    (tmp_path / "file.py").write_text("a = 1\n")
    (tmp_path / ".gitignore").write_text("/.venv/\n*.pyc\n")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "STAMP", tmp_path / ".venv" / "stamp")
    return tmp_path


def test_a_pass_is_remembered_until_a_file_changes(house: Path) -> None:
    state = run_tests.state_of_files()
    assert not run_tests.have_passed(state)
    run_tests.note_passed(state)
    (house / "made.pyc").write_bytes(b"")
    assert run_tests.have_passed(run_tests.state_of_files())
    (house / "new.py").write_text("b = 1\n")
    assert not run_tests.have_passed(run_tests.state_of_files())
    (house / "new.py").unlink()
    assert run_tests.have_passed(run_tests.state_of_files())
    (house / ".venv" / "holdfast-packages.stamp").write_text("other packages")
    assert not run_tests.have_passed(run_tests.state_of_files())


def test_files_that_change_while_tests_run_have_not_passed(house: Path) -> None:
    state = run_tests.state_of_files()
    (house / "file.py").write_text("a = 2\n")
    run_tests.note_passed(state)
    assert not run_tests.have_passed(state)
    assert not run_tests.have_passed(run_tests.state_of_files())


@pytest.mark.usefixtures("house")
def test_without_git_all_is_run_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert run_tests.state_of_files() is None
    run_tests.note_passed(None)
    assert not run_tests.have_passed(None)


def test_every_test_is_in_one_part() -> None:
    marks = [run_tests.CHOICES[part][1] for part in ("quick", "slow", "spark")]
    assert marks == ["not slow and not soak", "slow and not soak", "slow and not soak"]
    left_out = {word.removeprefix("--ignore=") for word in run_tests.CHOICES["slow"][2:]}
    assert left_out == {*run_tests.CHOICES["spark"][2:]}
    root = Path(run_tests.__file__).parents[1]
    assert all((root / each).exists() for each in left_out)
