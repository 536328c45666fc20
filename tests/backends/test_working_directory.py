"""Directories of live processes are left alone, those of dead ones go."""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends.working_directory import WorkingDirectory
from holdfast.storage import Unavailable

HOLDING = """
import sys
from holdfast.backends.working_directory import WorkingDirectory

directory = WorkingDirectory([sys.argv[1]])
(directory.path / "data").write_bytes(b"1")
print(directory.path, flush=True)
sys.stdin.read()
"""


def test_a_directory_is_new_and_goes_with_its_owner(tmp_path: Path) -> None:
    first, second = WorkingDirectory([str(tmp_path)]), WorkingDirectory([str(tmp_path)])
    assert first.path != second.path
    (first.path / "file").write_bytes(b"1")
    first.close()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [second.path.name]
    second.close()
    assert not list(tmp_path.iterdir())


def test_what_a_dead_process_left_is_removed_and_what_a_live_one_uses_is_not(
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


def test_another_disk_is_taken_where_one_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    bases = [str(tmp_path / "file" / "below"), str(tmp_path / "disk")]
    for _ in range(8):
        directory = WorkingDirectory(bases)
        assert directory.path.parent == tmp_path / "disk"
        directory.close()
    with pytest.raises(Unavailable, match=r"directory for state cannot be made.*file/below"):
        WorkingDirectory(bases[:1])


RACING = """
import sys
from pathlib import Path
from typing import Any
from holdfast.backends.working_directory import WorkingDirectory

base = Path(sys.argv[1])
for _ in range(150):
    directory = WorkingDirectory([str(base)])
    assert directory.path.with_name(directory.path.name + ".lock").exists()
    assert directory.path.is_dir()
    directory.close()
"""


@pytest.mark.slow
def test_whoever_begins_while_others_clean_keeps_his_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACING, str(tmp_path)]
    racing = [subprocess.Popen(command) for _ in range(4)]
    assert [each.wait() for each in racing] == [0, 0, 0, 0]
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made_leaves_no_lock(
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


def test_what_cannot_be_removed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = WorkingDirectory([str(tmp_path)])
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        directory.close()
    assert directory.path.exists()
    WorkingDirectory([str(tmp_path)]).close()
    assert not list(tmp_path.iterdir())
