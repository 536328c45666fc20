"""`holdfast checkpoints list` and `clean`, as people and programs call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from holdfast.runtime.cli.application import application
from holdfast.runtime.cli.main import main
from holdfast.storage import (
    CheckpointMetadata,
    FileHandle,
    FileSystemCheckpointStorage,
    JobOwner,
    JobResult,
    StateSnapshot,
    SystemClock,
    load_storage,
    names,
)
from holdfast.storage.jobs.decisions import settled_below
from holdfast.storage.testing.example_jobs import retain
from support.kills import busy_committer
from support.kills.busy_committer import JOB, check_whole

COMPLETED_MS = 1_700_000_000_000


def call(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["checkpoints", *arguments])


def document(result: Result, code: int = 0) -> Any:
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def own(number: int) -> str:
    return names.exclusive_file(number, "slot", "aa")


def shared(number: int) -> str:
    return names.shared_file(number, "slot", "aa")


class Root:
    """Two jobs, of which one has finished; and something that belongs to neither."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = load_storage(str(folder))
        self.owners: dict[str, JobOwner] = {}
        for name in ("orders", "a job/1"):
            self.owners[name] = self.storage.job(name).take_over()
            self.commit(name, 3, own(3), shared(3))
            self.commit(name, 5, own(5), shared(3))
            retain(self.owners[name], 1)
            self.leave(name, own(4), shared(4), own(6))
        self.storage.write("notes/of/somebody", b"x")

    def commit(self, job: str, number: int, *files: str) -> None:
        folder = self.storage.job(job).folder
        for name in files:
            if names.writer_of(name) == number:
                self.storage.write(f"{folder}/{name}", b"x" * 1000)
        handles = {name: FileHandle(name, 0, 1000, "00") for name in files}
        self.owners[job].commit(
            CheckpointMetadata(
                job_id=job,
                checkpoint_id=number,
                triggered_ms=COMPLETED_MS - 5,
                completed_ms=COMPLETED_MS,
                parts={"all": StateSnapshot(kind="t/1", handles={**handles})},
                properties={"trigger": "periodic"},
            )
        )

    def leave(self, job: str, *files: str) -> None:
        for name in files:
            self.storage.write(f"{self.storage.job(job).folder}/{name}", b"x" * 2000)

    def there(self, job: str) -> set[str]:
        folder = self.storage.job(job).folder
        found = (info.name.removeprefix(f"{folder}/") for info in self.storage.list(f"{folder}/"))
        return {name for name in found if names.parse_owner(name) is None}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "place")


KEPT = {names.metadata(5), own(5), shared(3)}


def test_clean_deletes_unneeded_objects_and_reports_them(root: Root) -> None:
    before = {job: root.there(job) for job in root.owners}
    dry = document(call("clean", str(root.folder), "--dry-run", "--json"))
    assert before == {job: root.there(job) for job in root.owners}
    told = document(call("clean", str(root.folder), "--json"))
    assert (dry["dry_run"], told["dry_run"]) == (True, False)
    for each, planned in zip(told["jobs"], dry["jobs"], strict=True):
        assert each["completed"] == [5]
        assert (
            each["unneeded"]
            == planned["unneeded"]
            == {
                "files of checkpoints": {"objects": 1, "size_bytes": 2000},
                "shared files": {"objects": 1, "size_bytes": 2000},
            }
        )
        assert (planned["deleted"], each["deleted"]) == (0, 2)
        assert root.there(each["job"]) == {*KEPT, own(6)}
        root.owners[each["job"]].check()
    assert {each["job"] for each in told["jobs"]} == {"orders", "a job/1"}
    again = document(call("clean", str(root.folder), "--json"))
    assert [each["deleted"] for each in again["jobs"]] == [0, 0]
    assert root.storage.read("notes/of/somebody") == b"x"


def test_clean_of_one_job_leaves_the_other_alone(root: Root) -> None:
    before = root.there("a job/1")
    result = call("clean", str(root.folder / "orders") + "/")
    assert result.exit_code == 0
    assert "files of checkpoints" in result.stdout
    assert "job 'orders': 2 objects deleted, 3.9 KiB, 1 completed checkpoint kept" in result.stdout
    assert root.there("orders") == {*KEPT, own(6)}
    assert root.there("a job/1") == before
    assert "nothing to delete" in call("clean", str(root.folder / "orders")).stdout


def test_clean_after_a_take_over_takes_every_orphan(root: Root) -> None:
    planned = document(call("clean", str(root.folder), "--take-over", "--dry-run", "--json"))
    for owner in root.owners.values():
        owner.check()
    told = document(call("clean", str(root.folder), "--take-over", "--json"))
    for each, before in zip(told["jobs"], planned["jobs"], strict=True):
        assert each["unneeded"] == before["unneeded"]
        assert each["deleted"] == 5
        assert each["unneeded"]["records of older owners"]["objects"] == 2
        assert root.there(each["job"]) == KEPT
    assert document(call("clean", str(root.folder), "--take-over", "--json"))["jobs"][0][
        "completed"
    ] == [5]


def test_a_job_that_cannot_be_cleaned_does_not_stop_the_others(root: Root) -> None:
    root.storage.write(f"orders/{names.metadata(5)}", b"damaged")
    result = call("clean", str(root.folder))
    assert result.exit_code == 1
    assert "job 'orders' could not be cleaned" in result.stdout
    assert f"{5:020d}/_metadata" in result.stdout
    assert root.there("a job/1") == {*KEPT, own(6)}
    told = document(call("clean", str(root.folder), "--json"), 1)
    assert [("error" in each) for each in told["jobs"]] == [False, True]


def test_ctrl_c_leaves_nothing_half_done(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = FileSystemCheckpointStorage.delete

    def interrupted(storage: FileSystemCheckpointStorage, wanted: Iterable[str]) -> None:
        delete(storage, [next(iter(wanted))])
        raise KeyboardInterrupt

    monkeypatch.setattr(FileSystemCheckpointStorage, "delete", interrupted)
    result = call("clean", str(root.folder))
    assert result.exit_code == 130
    assert "the same command continues" in result.stderr
    monkeypatch.undo()
    assert call("clean", str(root.folder)).exit_code == 0
    assert root.there("orders") == root.there("a job/1") == {*KEPT, own(6)}


def test_list_shows_what_can_be_restored(root: Root) -> None:
    root.owners["orders"].end(JobResult(job_id="orders", status="finished", ended_ms=COMPLETED_MS))
    told = document(call("list", str(root.folder), "--json"))
    jobs = {each["job"]: each for each in told["jobs"]}
    assert jobs["orders"]["result"] == {"status": "finished", "ended_ms": COMPLETED_MS}
    assert jobs["a job/1"]["result"] is None
    (found,) = jobs["orders"]["checkpoints"]
    assert found | {"url": ""} == {
        "checkpoint": 5,
        "kind": "checkpoint",
        "trigger": "periodic",
        "triggered_ms": COMPLETED_MS - 5,
        "completed_ms": COMPLETED_MS,
        "size_bytes": 2000,
        "files": 2,
        "files_of_older": 1,
        "operators": [],
        "sources": [],
        "epoch": 1,
        "url": "",
    }
    assert found["url"].endswith(f"/orders/{names.checkpoint_folder(5)}")
    table = call("list", str(root.folder / "orders")).stdout
    assert "job 'orders' was finished at 2023-11-14 22:13:20 UTC" in table
    for part in ("periodic", "2023-11-14", "2.0 KiB"):
        assert part in table
    root.storage.write(f"orders/{names.metadata(5)}", b"damaged")
    told = document(call("list", str(root.folder / "orders"), "--json"))
    assert "error" in told["jobs"][0]["checkpoints"][0]


@pytest.mark.parametrize("command", ["list", "clean"])
def test_wrong_arguments_are_told(
    command: str, root: Root, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def fails(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["holdfast", "checkpoints", command, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
        return capsys.readouterr().err

    place = str(root.folder)
    assert "there are no checkpoints of any job" in fails(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()
    assert "option 'speed' is not known" in fails(place, "-Dspeed=9")
    assert "expected -Dkey=value" in fails(place, "-Dspeed")
    assert "is given twice" in fails(place, "-Dinline_limit_bytes=1", "-Dinline_limit_bytes=2")
    assert "cannot be this: expected int, found 'many'" in fails(place, "-Dinline_limit_bytes=many")
    assert "no checkpoint storage is registered as 'nosuch'" not in fails("nosuch")
    assert call(command, place, "-Dinline_limit_bytes=7").exit_code == 0
    assert call(command).exit_code == 2
    assert call(command, place, "--nonsense").exit_code == 2
    assert call(command, "--help").exit_code == 0


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).parent / "holdfast"
    told = subprocess.run(
        [command, "checkpoints", "clean", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for part in ("--dry-run", "--take-over", "Exit codes"):
        assert part in told


def clean_beside_a_writer(tmp_path: Path) -> None:
    """Clean while another process commits; fails when that one misses anything."""
    tests = Path(__file__).parents[2]
    place = tmp_path / "checkpoints"
    writer = subprocess.Popen(
        [sys.executable, busy_committer.__file__, str(tmp_path), "3"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    clock, deleted = SystemClock(), 0
    progress = tmp_path / "progress"
    end_s = clock.monotonic_s() + 120
    try:
        while not progress.exists() or int(progress.read_text()) < 300 or not deleted:
            assert writer.poll() is None, writer.stderr and writer.stderr.read()
            assert clock.monotonic_s() < end_s, f"{deleted} deleted"
            result = call("clean", str(place), "--json")
            if result.exit_code == 0:
                deleted += sum(each["deleted"] for each in json.loads(result.stdout)["jobs"])
    finally:
        writer.kill()
        writer.communicate()


@pytest.mark.slow
def test_beside_a_process_that_commits_at_full_speed_nothing_is_lost(tmp_path: Path) -> None:
    clean_beside_a_writer(tmp_path)
    place = tmp_path / "checkpoints"
    job = load_storage(str(place)).job(JOB)
    completed = job.completed()
    assert completed
    for number in completed:
        check_whole(job, number)
    document(call("clean", str(place), "--take-over", "--json"))
    for number in completed:
        check_whole(job, number)
    needed = set().union(*(job.load(number).files() for number in completed))
    found = (info.name.removeprefix(f"{JOB}/") for info in job.storage.list(f"{JOB}/"))
    assert {name for name in found if names.parse_owner(name) is None} == needed | {
        names.metadata(number) for number in completed
    }


@pytest.mark.slow
def test_the_race_test_detects_cleaning_of_files_begun_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ignoring(completed: Collection[int], *, has_ended: bool, begun_from: int | None) -> float:
        del begun_from
        return settled_below(completed, has_ended=has_ended)

    monkeypatch.setattr("holdfast.storage.jobs.cleaning.settled_below", ignoring)
    with pytest.raises(AssertionError, match="early_files"):
        clean_beside_a_writer(tmp_path)
