"""What runs is found, and what a driver that was killed has left is cleaned away."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.runtime.control.endpoint import ListeningSocket
from holdfast.runtime.control.folder import make_folder
from holdfast.runtime.control.lookup import chosen_run
from holdfast.runtime.control.registry import (
    Registration,
    Runs,
    find_runs,
    register,
    socket_path,
    unregister,
)
from holdfast.storage import Corrupt, Invalid, ManualClock, NotFound, SystemClock
from support.jobs.job_with_endpoint import HOST

TOKEN = "the secret"


@pytest.fixture
def folder(quick_path: Path) -> Path:
    """A folder of running jobs; sockets want short paths."""
    make_folder(quick_path / "runs")
    return quick_path / "runs"


def entry(run: str, job: str = "orders", host: str = HOST, started_ms: int = 5) -> Registration:
    return Registration(
        job=job,
        run=run,
        pid=os.getpid(),
        host=host,
        token=TOKEN,
        storage=f"memory://{run}/{job}",
        started_ms=started_ms,
        holdfast_version="1",
    )


@contextmanager
def listening(folder: Path, run: str) -> Iterator[None]:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(str(socket_path(folder, run)))
        listener.listen(1)
        yield


def look(*folders: Path) -> Runs:
    return find_runs(folders, host=HOST, clock=SystemClock())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_runs_are_found_by_job_and_start(folder: Path) -> None:
    with (
        listening(folder, "aaaa100000000000"),
        listening(folder, "aaaa200000000000"),
        listening(folder, "bbbb100000000000"),
    ):
        register(folder, entry("bbbb100000000000", started_ms=2))
        register(folder, entry("aaaa100000000000", job="zebra"))
        register(folder, entry("aaaa200000000000", started_ms=1))
        runs = look(folder, folder.parent / "not there")
        assert [each.registration.run for each in runs.found] == [
            "aaaa200000000000",
            "bbbb100000000000",
            "aaaa100000000000",
        ]
        assert runs.troubles == ()
        assert stat.S_IMODE((folder / "aaaa100000000000.json").stat().st_mode) == 0o600
        unregister(folder, "aaaa100000000000")
        unregister(folder, "aaaa100000000000")
        assert [each.registration.run for each in look(folder).found] == [
            "aaaa200000000000",
            "bbbb100000000000",
        ]


@pytest.mark.parametrize("letter", ["x", "\x01", "\U0001f701"])
def test_a_run_is_found_however_long_the_name_of_its_job(folder: Path, letter: str) -> None:
    """Names of jobs may have 65,536 characters."""
    with listening(folder, "aaaa100000000000"):
        register(folder, entry("aaaa100000000000", job=letter * 65_536))
        runs = look(folder)
    assert runs.troubles == ()
    assert [each.registration.job for each in runs.found] == [letter * 65_536]


def test_a_secret_is_not_shown() -> None:
    assert TOKEN not in repr(entry("aaaa100000000000"))


def test_a_driver_that_was_killed_is_forgotten(folder: Path) -> None:
    child = """
import os, signal, socket, sys
from pathlib import Path
from holdfast.runtime.control.registry import Registration, register, socket_path
folder = Path(sys.argv[1])
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(str(socket_path(folder, "dead100000000000")))
listener.listen(1)
register(folder, Registration(job="orders", run="dead100000000000", pid=os.getpid(),
    host=sys.argv[2], token="t", storage="memory://", started_ms=1, holdfast_version="1"))
print("ready", flush=True)
signal.pause()
"""
    command = [sys.executable, "-c", child, str(folder), HOST]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        assert [each.registration.pid for each in look(folder).found] == [driver.pid]
        driver.kill()
    assert names(folder) == {"dead100000000000.json", "dead100000000000.sock"}
    assert look(folder) == Runs((), ())
    assert names(folder) == set()


def test_of_another_machine_nothing_is_removed(folder: Path) -> None:
    register(folder, entry("fa10000000000000", host=f"not {HOST}"))
    assert look(folder) == Runs((), ())
    assert names(folder) == {"fa10000000000000.json"}


def test_files_of_a_driver_killed_during_registration_are_removed(folder: Path) -> None:
    with listening(folder, "000000000001ef71"):
        pass
    (folder / "000000000001ef72.tmp").write_bytes(b"{")
    now_ms = SystemClock().now_ms()
    for passed_ms, left in (
        (0, {"000000000001ef71.sock", "000000000001ef72.tmp"}),
        (120_000, set()),
    ):
        clock = ManualClock(now_ms + passed_ms)
        assert find_runs([folder], host=HOST, clock=clock) == Runs((), ())
        assert names(folder) == left


def test_a_socket_that_is_listened_on_stays_however_old(folder: Path) -> None:
    with listening(folder, "ea10000000000000"):
        clock = ManualClock(SystemClock().now_ms() + 10**9)
        assert find_runs([folder], host=HOST, clock=clock) == Runs((), ())
        assert names(folder) == {"ea10000000000000.sock"}


@pytest.mark.parametrize(
    "data", [b'{"version": 1, "job": 3}', b'{"version": 1, "job": "\xff"}', b"[" * 50_000]
)
def test_a_damaged_entry_is_reported_while_its_socket_listens(folder: Path, data: bytes) -> None:
    path = folder / "aaaa100000000000.json"
    with listening(folder, "aaaa100000000000"):
        path.touch(0o600)
        path.write_bytes(data)
        (trouble,) = look(folder).troubles
        assert isinstance(trouble, Corrupt)
        assert trouble.where == str(path)
    assert look(folder) == Runs((), ())
    assert names(folder) == set()


def test_an_entry_of_a_newer_holdfast_is_told(folder: Path) -> None:
    register(folder, msgspec.structs.replace(entry("aaaa100000000000"), version=2))
    with listening(folder, "aaaa100000000000"):
        (trouble,) = look(folder).troubles
        assert "expected version 1, found version 2" in str(trouble)


def test_an_entry_that_others_may_read_is_refused(folder: Path) -> None:
    register(folder, entry("aaaa100000000000"))
    (folder / "aaaa100000000000.json").chmod(0o644)
    with listening(folder, "aaaa100000000000"):
        runs = look(folder)
        assert runs.found == ()
        assert "open to other users" in str(runs.troubles[0])


def test_a_link_to_an_entry_is_refused(folder: Path) -> None:
    register(folder, entry("aaaa100000000000"))
    (folder / "aaaa100000000000.json").rename(folder.parent / "elsewhere.json")
    (folder / "aaaa100000000000.json").symlink_to(folder.parent / "elsewhere.json")
    with listening(folder, "aaaa100000000000"):
        assert isinstance(look(folder).troubles[0], Invalid)


def test_a_folder_that_is_open_is_not_looked_into(folder: Path) -> None:
    register(folder, entry("aaaa100000000000"))
    folder.chmod(0o755)
    with listening(folder, "aaaa100000000000"):
        runs = look(folder)
        assert runs.found == ()
        assert "cannot be trusted" in str(runs.troubles[0])
    look(folder)
    assert names(folder) == {"aaaa100000000000.json", "aaaa100000000000.sock"}


def test_two_jobs_of_one_name_are_told_apart(folder: Path) -> None:
    with (
        listening(folder, "aaaa100000000000"),
        listening(folder, "aabb200000000000"),
        listening(folder, "cccc300000000000"),
    ):
        register(folder, entry("aaaa100000000000"))
        register(folder, entry("aabb200000000000"))
        register(folder, entry("cccc300000000000", job="aabb"))
        found = look(folder).found
        with pytest.raises(
            Invalid, match=r"2 running jobs.*run aaaa100000000000, process.*run aabb200000000000,"
        ):
            chosen_run("orders", found)
        assert chosen_run("aaaa", found).registration.run == "aaaa100000000000"
        assert chosen_run("aabb200000000000", found).registration.run == "aabb200000000000"
        assert chosen_run("aabb", found).registration.run == "cccc300000000000", (
            "a name goes before a run"
        )
        with pytest.raises(NotFound, match=r"no job 'order' .*running: 'orders'"):
            chosen_run("order", found)
        with pytest.raises(NotFound, match="no job 'aa' "):
            chosen_run("aa", found)
    with pytest.raises(NotFound, match="no running job"):
        chosen_run("orders", [])


def test_foreign_files_in_the_folder_are_kept(folder: Path) -> None:
    """Such a folder was configured as the one for runs."""
    foreign = ["package.json", "notes.tmp", "agent.sock", "0123456789abcdef.txt", "x.json"]
    for name in foreign:
        (folder / name).write_bytes(b"{}")
        os.utime(folder / name, (0, 0))
    assert look(folder) == Runs((), ())
    assert sorted(path.name for path in folder.iterdir()) == sorted(foreign)


def test_a_new_registration_removes_files_of_killed_drivers(folder: Path) -> None:
    with listening(folder, "dead100000000000"):
        register(folder, entry("dead100000000000"))
    with listening(folder, "aaaa100000000000"):
        register(folder, entry("aaaa100000000000"))
        with closing(ListeningSocket(folder, entry("bbbb100000000000"), SystemClock()).socket):
            assert {path.stem for path in folder.iterdir()} == {
                "aaaa100000000000",
                "bbbb100000000000",
            }
