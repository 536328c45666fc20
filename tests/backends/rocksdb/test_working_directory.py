"""Directories of live processes are kept, those of dead ones are removed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.backends import working_directory
from holdfast.backends.working_directory import WorkingDirectory, lasting_directory
from holdfast.storage import Invalid, SeededEntropy, SystemEntropy, Unavailable

HOLDING = """
import sys
from holdfast.backends.working_directory import WorkingDirectory

directory = WorkingDirectory([sys.argv[1]])
(directory.path / "data").write_bytes(b"1")
print(directory.path, flush=True)
sys.stdin.read()
"""


def test_a_directory_is_new_and_is_removed_with_its_owner(tmp_path: Path) -> None:
    first, second = WorkingDirectory([str(tmp_path)]), WorkingDirectory([str(tmp_path)])
    assert first.path != second.path
    (first.path / "file").write_bytes(b"1")
    first.close()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [second.path.name]
    second.close()
    assert not list(tmp_path.iterdir())


def test_directories_of_dead_processes_are_removed_and_of_live_ones_kept(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        its = Path(other.stdout.readline().strip())
        WorkingDirectory([str(tmp_path)]).close()
        assert (its / "data").read_bytes() == b"1"
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert its.exists()
    WorkingDirectory([str(tmp_path)]).close()
    assert not list(tmp_path.iterdir())


def test_a_disk_that_cannot_be_written_to_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    bases = [str(tmp_path / "file" / "below"), str(tmp_path / "disk")]
    for _ in range(8):
        directory = WorkingDirectory(bases)
        assert directory.path.parent == tmp_path / "disk"
        directory.close()
    with pytest.raises(Unavailable, match=r"directory for state cannot be made.*file/below"):
        WorkingDirectory(bases[:1])


class Room:
    """What disks say that they have, and which of them are full when they are written to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: dict[str, int]) -> None:
        self.free = free
        monkeypatch.setattr(shutil, "disk_usage", self._usage)
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _usage(self, path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=self.free[Path(path).name])

    def _fsync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if self.free[path.parent.parent.name] < 1 << 16:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_disks_are_chosen_by_their_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(monkeypatch, {"large": 6 << 30, "small": 2 << 30, "full": 0})
    entropy = SeededEntropy(1)
    taken: Counter[str] = Counter()
    for _ in range(400):
        directory = WorkingDirectory([tmp_path / name for name in room.free], entropy)
        taken[directory.path.parent.name] += 1
        directory.close()
    assert taken["full"] == 0
    assert 250 < taken["large"] < 350
    assert taken["small"] == 400 - taken["large"]


def test_a_disk_that_is_full_when_it_is_written_to_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a quota is used up: the disk itself says that it has room."""
    room = Room(monkeypatch, {"quota": 100, "free": 1 << 17})
    for _ in range(20):
        directory = WorkingDirectory([tmp_path / name for name in room.free])
        assert directory.path.parent.name == "free"
        directory.close()
    room.free["free"] = 0
    with pytest.raises(Unavailable, match=r"quota.*free.*No space left.*Make room on the disk"):
        WorkingDirectory([tmp_path / name for name in room.free])
    assert not list(tmp_path.glob("*/*"))


def test_directories_of_dead_processes_are_removed_on_every_disk(tmp_path: Path) -> None:
    disks = [tmp_path / name for name in "abc"]
    for disk in disks:
        for kind in ("state", "query"):
            dead = disk / f"holdfast-{kind}-00112233445566ff"
            dead.mkdir(parents=True)
            (dead / "data").write_bytes(b"1")
        (disk / "of-somebody-else").mkdir()
    WorkingDirectory(disks).close()
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["of-somebody-else"] * 3


def test_state_is_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = WorkingDirectory([tmp_path])
        lasting = lasting_directory(tmp_path, "copies", SystemEntropy())
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (directory.path, lasting)] == [0o700] * 2
    directory.close()


@pytest.mark.parametrize("there", ["folder", "file", "link"])
def test_a_foreign_folder_with_the_name_of_a_lasting_directory_is_kept(
    tmp_path: Path, there: str
) -> None:
    base, elsewhere = tmp_path / "base", tmp_path / "elsewhere"
    path = base / f"holdfast-copies-{os.getuid()}"
    for folder in (base, elsewhere):
        folder.mkdir()
    (elsewhere / ".holdfast").write_bytes(b"1")
    if there == "folder":
        path.mkdir()
        (path / "precious").write_bytes(b"1")
    elif there == "file":
        path.write_bytes(b"1")
    else:
        path.symlink_to(elsewhere)
    with pytest.raises(Invalid, match=r"but not its marker.*Move it away"):
        lasting_directory(base, "copies", SystemEntropy())
    assert list(base.iterdir()) == [path]


def test_a_lasting_directory_is_found_again(tmp_path: Path) -> None:
    made = lasting_directory(tmp_path, "copies", SystemEntropy())
    (made / "kept").write_bytes(b"1")
    WorkingDirectory([tmp_path]).close()
    assert lasting_directory(tmp_path, "copies", SystemEntropy()) == made
    assert (made / "kept").read_bytes() == b"1"
    assert list(tmp_path.iterdir()) == [made]


def test_a_foreign_folder_or_file_with_such_a_name_is_kept(tmp_path: Path) -> None:
    (tmp_path / "of-somebody-else").mkdir()
    (tmp_path / "holdfast-state-00112233445566ee").symlink_to(tmp_path / "of-somebody-else")
    (tmp_path / "holdfast-state-00112233445566ff").write_bytes(b"1")
    (tmp_path / "holdfast-state-backup").mkdir()
    WorkingDirectory([tmp_path]).close()
    assert len(list(tmp_path.iterdir())) == 4


def test_a_directory_removed_between_creation_and_lock_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one looks between the making and the locking."""
    locked = working_directory._locked
    looked: list[Path] = []

    def and_another_one(path: Path) -> int | None:
        if not looked:
            looked.append(path)
            working_directory._remove_dead(tmp_path)
        return locked(path)

    monkeypatch.setattr(working_directory, "_locked", and_another_one)
    directory = WorkingDirectory([tmp_path])
    assert directory.path.is_dir()
    assert directory.path not in looked
    directory.close()


RACING = """
import sys
from pathlib import Path
from typing import Any
from holdfast.backends.working_directory import WorkingDirectory

base = Path(sys.argv[1])
for _ in range(150):
    directory = WorkingDirectory([str(base)])
    (directory.path / "file").write_bytes(b"1")
    assert directory.path.is_dir()
    directory.close()
"""


@pytest.mark.slow
def test_a_directory_made_during_another_cleaning_is_kept(quick_path: Path) -> None:
    command = [sys.executable, "-c", RACING, str(quick_path)]
    racing = [subprocess.Popen(command) for _ in range(4)]
    assert [each.wait() for each in racing] == [0, 0, 0, 0]
    assert not list(quick_path.iterdir())


def test_a_directory_that_cannot_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Path.mkdir

    def full(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name.startswith("holdfast-state-"):
            raise OSError(errno.ENOSPC, "No space left on device")
        made(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(Unavailable, match="No space left"):
        WorkingDirectory([str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_a_failed_removal_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = WorkingDirectory([str(tmp_path)])
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        directory.close()
    assert directory.path.exists()
    WorkingDirectory([str(tmp_path)]).close()
    assert not list(tmp_path.iterdir())
