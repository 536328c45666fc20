"""Two conversions to one place: one is refused, or stops, and no savepoint is destroyed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.backends import SnapshotForm
from holdfast.savepoints import StoredSnapshot, compare, find_snapshot
from holdfast.savepoints.conversion import (
    Conversion,
    ConversionOptions,
    InProcess,
    PieceResult,
    PieceTask,
    PieceWorker,
    exclusive_run,
)
from holdfast.savepoints.conversion.destination import Destination
from holdfast.savepoints.conversion.exclusive_run import ExclusiveRun
from holdfast.storage import (
    CheckpointMetadata,
    Fenced,
    SavepointFolder,
    Taken,
    load_storage,
    processes,
)
from support.states.stored_snapshots import stored
from support.states.tried_backends import backend_named

FILE = "_conversion/running"


@pytest.fixture
def source(quick_path: Path) -> StoredSnapshot:
    backend = backend_named("hashmap", quick_path / "state")
    return stored(quick_path / "from", backend, "savepoint", SnapshotForm.NATIVE)


def folder_at(path: Path) -> SavepointFolder:
    return SavepointFolder(load_storage(str(path)), "")


def conversion(source: StoredSnapshot, to: Path, runner: InProcess | None = None) -> Conversion:
    return Conversion(
        source=source,
        destination=folder_at(to),
        options=ConversionOptions(backend=None, is_canonical=True),
        backend=None,
        runner=runner or InProcess(),
    )


class _Meanwhile(InProcess):
    """Before pieces are done for the first time, something else happens."""

    def __init__(self, happens: Any) -> None:
        self.happens = happens

    def run(
        self, work: PieceWorker, tasks: Sequence[PieceTask]
    ) -> Iterator[tuple[PieceTask, PieceResult]]:
        happens, self.happens = self.happens, lambda: None
        happens()
        return super().run(work, tasks)


def files_below(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


def check_whole(source: StoredSnapshot, to: Path) -> None:
    after = find_snapshot(str(to))
    assert compare(source, after, lambda _: None).are_equal
    assert files_below(to).keys() == {"_metadata", *after.metadata.files()}


def test_a_savepoint_that_another_run_completed_is_not_deleted(
    source: StoredSnapshot, quick_path: Path
) -> None:
    to = quick_path / "to"
    conversion(source, to).run()
    there = files_below(to)
    mine = msgspec.structs.replace(find_snapshot(str(to)).metadata, completed_ms=7)
    destination = Destination(folder_at(to), source)
    destination._exclusive.enter()
    with pytest.raises(Taken, match="another savepoint"):
        destination.complete(mine)
    destination.leave()
    assert files_below(to) == there


def test_in_one_process_the_second_is_refused(source: StoredSnapshot, quick_path: Path) -> None:
    to = quick_path / "to"
    refused = []

    def other() -> None:
        for fresh in (False, True):
            with pytest.raises(Taken, match=f"process {os.getpid()} of this machine"):
                conversion(source, to).run(fresh=fresh)
            refused.append(fresh)

    conversion(source, to, _Meanwhile(other)).run()
    assert refused == [False, True]
    check_whole(source, to)


def test_a_run_on_another_machine_is_refused_unless_it_takes_over(
    source: StoredSnapshot, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = quick_path / "to"
    there: dict[str, bytes] = {}

    def other() -> None:
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        with pytest.raises(Taken, match="pass --take-over"):
            conversion(source, to).run()
        assert not conversion(source, to).run(take_over=True).was_done
        there.update(files_below(to))

    with pytest.raises(Fenced, match="has taken over"):
        conversion(source, to, _Meanwhile(other)).run()
    assert there
    after = find_snapshot(str(to))
    assert compare(source, after, lambda _: None).are_equal
    assert {name: there[name] for name in after.metadata.files()}.items() <= there.items()


def test_a_replaced_run_does_not_commit(
    source: StoredSnapshot, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = quick_path / "to"
    whole = SavepointFolder.check_files

    def taken_over_meanwhile(folder: SavepointFolder, metadata: CheckpointMetadata) -> None:
        whole(folder, metadata)
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        ExclusiveRun(folder_at(to), FILE).enter(take_over=True)

    monkeypatch.setattr(SavepointFolder, "check_files", taken_over_meanwhile)
    with pytest.raises(Fenced, match="has taken over"):
        conversion(source, to).run()
    assert not (to / "_metadata").exists()
    assert (to / FILE).exists(), "it is that of the other one"


def test_of_two_concurrent_runs_one_is_admitted(quick_path: Path) -> None:
    folder = folder_at(quick_path / "to")
    first, second = ExclusiveRun(folder, FILE), ExclusiveRun(folder, FILE)
    first.enter()
    with pytest.raises(Taken):
        second.enter(take_over=True)
    first.check()
    first.leave()
    second.enter()
    first.leave()
    second.check()
    with pytest.raises(Fenced):
        first.check()


def ended_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("is_number_used_again", [False, True])
def test_a_killed_run_is_replaced(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_number_used_again: bool
) -> None:
    folder = folder_at(quick_path / "to")
    with monkeypatch.context() as before:
        here = str(exclusive_run._begun(os.getpid())).rpartition("/")[0]
        before.setattr(exclusive_run, "_begun", lambda _: f"{here}/1")
        number = os.getppid() if is_number_used_again else ended_process()
        before.setattr(os, "getpid", lambda: number)
        ExclusiveRun(folder, FILE).enter()
    after = ExclusiveRun(folder, FILE)
    after.enter()
    after.check()


@pytest.mark.parametrize("elsewhere", ["other-boot/pid:[1]/5", "other-boot/5"])
def test_a_run_in_another_container_of_the_same_name_may_be_alive(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    """Its pid comes from another namespace, so a missing pid here says nothing."""
    folder = folder_at(quick_path / "to")
    with monkeypatch.context() as before:
        before.setattr(exclusive_run, "_begun", lambda _: elsewhere)
        number = ended_process()
        before.setattr(os, "getpid", lambda: number)
        ExclusiveRun(folder, FILE).enter()
    after = ExclusiveRun(folder, FILE)
    with pytest.raises(Taken, match="pass --take-over"):
        after.enter()
    after.enter(take_over=True)
    after.check()


def test_a_run_without_a_known_start_time_is_replaced_on_request(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_at(quick_path / "to")
    monkeypatch.setattr(processes, "_PROC", quick_path / "none")
    with monkeypatch.context() as before:
        before.setattr(os, "getpid", os.getppid)
        ExclusiveRun(folder, FILE).enter()
    after = ExclusiveRun(folder, FILE)
    with pytest.raises(Taken, match="pass --take-over"):
        after.enter()
    after.enter(take_over=True)
    after.check()


def test_an_unreadable_marker_is_replaced_on_request(
    quick_path: Path,
) -> None:
    folder = folder_at(quick_path / "to")
    folder.storage.write(FILE, b"damaged")
    with pytest.raises(Taken, match=r"marker cannot be read.*--take-over"):
        ExclusiveRun(folder, FILE).enter()
    ExclusiveRun(folder, FILE).enter(take_over=True)
