"""The folder of running jobs: where it is, and when it cannot be trusted."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from tempfile import gettempdir

import pytest

from holdfast.runtime.control.folder import check_folder, make_folder, run_folders
from holdfast.storage import Invalid, Unavailable

USER = os.getuid()


def test_a_folder_that_is_named_is_the_only_one(tmp_path: Path) -> None:
    named = {"HOLDFAST_RUN_DIR": str(tmp_path / "runs"), "XDG_RUNTIME_DIR": str(tmp_path)}
    assert run_folders(named) == (tmp_path / "runs",)


def test_otherwise_the_system_has_one_for_the_user(tmp_path: Path) -> None:
    first, *others = run_folders({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert first == tmp_path / "holdfast"
    assert others[-1] == Path(gettempdir()) / f"holdfast-{USER}"


@pytest.mark.parametrize("told", ["", "here/there", "/no/such/folder"])
def test_a_runtime_folder_that_is_none_is_passed_over(told: str) -> None:
    folders = run_folders({"XDG_RUNTIME_DIR": told})
    assert folders[-1] == Path(gettempdir()) / f"holdfast-{USER}"
    assert not any(told and str(folder).startswith(told) for folder in folders)


def test_a_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    umask = os.umask(0)
    try:
        make_folder(folder)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    make_folder(folder)  # it may be there


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o704, 0o770, 0o777])
def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(Invalid, match=rf"mode 0700.*found a folder with mode {mode:04o}.*HOLDFAST"):
        make_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == mode


def test_a_link_or_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    (tmp_path / "file").touch(0o700)
    for name in ("link", "file"):
        with pytest.raises(Invalid, match="a link or a file, and no folder"):
            make_folder(tmp_path / name)


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path / "runs")
    monkeypatch.setattr("holdfast.runtime.control.folder.os.getuid", lambda: USER + 1)
    with pytest.raises(Invalid, match=rf"expected a folder of user {USER + 1}.*of user {USER}\b"):
        check_folder(tmp_path / "runs")


def test_a_folder_that_others_could_replace_is_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "runs")
    tmp_path.chmod(0o777)
    with pytest.raises(Invalid, match="others could put another folder instead"):
        check_folder(tmp_path / "runs")
    tmp_path.chmod(0o1777)
    check_folder(tmp_path / "runs")


def test_a_folder_that_cannot_be_made_says_where(tmp_path: Path) -> None:
    there = tmp_path / "not" / "there"
    with pytest.raises(Unavailable, match=re.escape(str(there))):
        make_folder(there)
