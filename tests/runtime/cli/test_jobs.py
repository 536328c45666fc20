"""`holdfast list`, `cancel`, `checkpoints JOB` and `checkpoints trigger`, with a job that runs."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from holdfast.runtime.cli import jobs
from holdfast.runtime.cli.application import application
from holdfast.runtime.cli.main import main
from holdfast.runtime.control.client import JobClient
from holdfast.runtime.control.registry import register, socket_path
from holdfast.runtime.driver.run import JobStatus
from holdfast.storage import SavepointFolder, Unavailable, load_storage
from support.jobs.job_with_endpoint import Live, live_job, saves
from support.jobs.run_of_played_attempts import play_attempts

Fails = Callable[..., str]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(application, list(arguments), catch_exceptions=False)


def document(*arguments: str, code: int = 0) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Fails:
    """What the whole command says when it exits with 1."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
        return capsys.readouterr().err

    return run


def test_a_running_job_is_listed(live: Live) -> None:
    told = document("list")
    assert told["troubles"] == []
    (job,) = told["jobs"]
    assert (job["job"], job["status"], job["attempts"]) == ("job", "running", 2)
    assert job["storage"] == live.stage.job.url
    assert "token" not in job
    result = call("list")
    assert result.exit_code == 0
    head, row = (line.split("│") for line in result.stdout.splitlines() if "job" in line)
    assert len(head) == 1, "a head of other lines"
    cells = [cell.strip() for cell in row[1:-1]]
    assert cells[0] == job["run"][:8]
    assert cells[1:3] == ["job", "running"]
    assert cells[4:6] == ["2", "0"]
    assert cells[7] == live.stage.job.url


@pytest.mark.usefixtures("runs")
def test_list_without_running_jobs_is_empty() -> None:
    assert document("list") == {"jobs": [], "troubles": []}
    assert "no job of yours runs" in call("list").stdout


def test_a_driver_that_does_not_answer_is_listed(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_LIST_TIMEOUT_S", 0.2)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as stuck:
        stuck.bind(str(socket_path(live.folder, "0000000057ca0c01")))
        stuck.listen(8)
        known = msgspec.structs.replace(
            live.found.registration, job="stuck", run="0000000057ca0c01"
        )
        register(live.folder, known)
        told = document("list", code=1)
        assert [job["status"] for job in told["jobs"]] == ["running", None]
        assert "does not answer" in told["jobs"][1]["error"]
        assert "token" not in told["jobs"][1]
        result = call("list")
    assert result.exit_code == 1
    assert "no answer" in result.stdout
    assert "job 'stuck': the driver of the job does not answer" in result.stderr


def test_a_folder_that_is_open_to_others_is_told(live: Live) -> None:
    live.folder.chmod(0o755)
    told = document("list", code=1)
    assert told["jobs"] == []
    assert "cannot be trusted" in told["troubles"][0]
    live.folder.chmod(0o700)


def test_a_job_is_cancelled(live: Live) -> None:
    run = live.found.registration.run
    assert document("cancel", "job") == {"job": "job", "run": run, "status": "cancelled"}
    assert live.handle.status is JobStatus.CANCELLED


def test_a_job_is_cancelled_by_its_run(live: Live, runs: Path, fails: Fails) -> None:
    with live_job(runs) as other:
        told = fails("cancel", "job")
        assert "2 running jobs match 'job'" in told
        for each in (live, other):
            assert each.found.registration.run in told
        result = call("cancel", other.found.registration.run[:12])
        assert (result.exit_code, result.stdout) == (0, "job 'job' was cancelled\n")
        assert other.handle.status is JobStatus.CANCELLED
        assert live.handle.status is JobStatus.RUNNING


def test_a_job_that_ends_in_another_way_was_not_cancelled(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish() -> None:
        monkeypatch.setattr(live.stage.run, "status", JobStatus.FINISHED)

    monkeypatch.setattr(live.handle, "cancel", finish)
    result = call("cancel", "job")
    assert (result.exit_code, result.stdout) == (1, "job 'job' had finished before\n")
    monkeypatch.undo()


@pytest.mark.usefixtures("live")
def test_ctrl_c_while_waiting_says_that_the_cancellation_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(JobClient, "cancel", interrupted)
    monkeypatch.setattr(sys, "argv", ["holdfast", "cancel", "job"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert "is being cancelled all the same" in capsys.readouterr().err


@pytest.mark.usefixtures("live")
def test_an_unknown_job_is_refused(fails: Fails) -> None:
    assert "running: 'job'" in fails("cancel", "jobs")
    assert "is neither a running job of yours nor a folder" in fails("checkpoints", "jobs")
    assert "no job 'jobs'" in fails("checkpoints", "trigger", "jobs")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("checkpoints", "lst", "somewhere"), "`holdfast checkpoints list`"),
        (("savepoint", "inspct", "somewhere", "more"), "`holdfast savepoint inspect`"),
    ],
)
def test_a_command_that_is_misspelled_is_told_whatever_follows_it(
    typed: tuple[str, ...],
    meant: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast", *typed])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"Did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["orders/eu", "a b/../c", "x" * 5_000 + "/y", "数 '\""])
def test_a_job_of_an_odd_name_is_a_job(
    name: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_attempts(monkeypatch)
    with live_job(runs, name=name):
        assert document("checkpoints", name)["status"] == "running"
        assert document("checkpoints", "trigger", name)["checkpoint"]["status"] == "completed"
        assert document("cancel", name)["job"] == name


def test_a_checkpoint_is_taken_and_shown(live: Live, fails: Fails) -> None:
    assert "has begun no checkpoint in this run" in call("checkpoints", "job").stdout
    first = document("checkpoints", "trigger", "job")
    assert first["checkpoint"]["checkpoint"] == 1
    assert first["checkpoint"]["status"] == "completed"
    folder = f"{live.stage.job.url}/chk-00000000000000000002"
    result = call("checkpoints", "trigger", "job")
    assert (result.exit_code, result.stdout) == (0, f"checkpoint 2 is complete: {folder}\n")
    assert "checkpoint 3 was given up [job 'job']: found expired: too slow" in fails(
        "checkpoints", "trigger", "job"
    )
    told = document("checkpoints", "job")
    assert [each["status"] for each in told["checkpoints"]] == ["completed"] * 2 + ["aborted"]
    assert told["counts"] == {"begun": 3, "completed": 2, "failed": 1, "aborted": 0}
    assert told["last_completed"]["folder"] == folder
    assert told["last_completed"]["slots"]["1"]["start_delay_ms"] == 999
    assert told["last_completed"]["operators"]["sum"]["sync_ms"] == 21
    shown = call("checkpoints", "list", live.found.registration.run).stdout
    assert re.search(r"│ +3 │ [^│]*│ requested │ aborted +│ 0\.250 s │", shown)
    assert re.search(r"│ +2 │ .*│ 0\.250 s │ +1\.000 s │ +0\.000 s │ 0\.021 s │", shown)
    assert "expired: too slow" in shown
    assert f"the newest: {folder}" in shown
    assert "3 begun in this run, 2 completed, 1 failed, 0 given up" in shown


def test_a_checkpoint_that_does_not_come_is_not_waited_for(
    live: Live, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live.handle, "trigger_checkpoint", lambda: None)
    told = fails("checkpoints", "trigger", "job", "--timeout", "50ms")
    assert "no checkpoint is complete yet" in told
    assert "is not a duration" in fails("checkpoints", "trigger", "job", "--timeout", "soon")


def test_a_savepoint_that_comes_between_is_not_the_checkpoint_that_was_asked_for(
    live: Live, fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "job")
    monkeypatch.setattr(live.handle, "trigger_checkpoint", lambda: saves(live.stage, 7, folder))
    told = fails("checkpoints", "trigger", "job", "--timeout", "50ms")
    assert "no checkpoint is complete yet" in told
    assert f"the last savepoint: {folder.url}" in call("checkpoints", "job").stdout
    assert document("checkpoints", "job")["last_savepoint"]["folder"] == folder.url


@pytest.mark.usefixtures("live")
def test_a_name_stands_for_a_job_and_a_path_for_a_place(
    fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").mkdir()
    (tmp_path / "other").mkdir()
    assert document("checkpoints", "job")["status"] == "running"
    for place in ("./job", str(tmp_path / "job"), "other"):
        assert "there are no checkpoints of any job" in fails("checkpoints", place)
    assert "options are for a storage" in fails("checkpoints", "job", "-Dregion=x")


def test_a_table_is_as_wide_as_it_is_where_there_is_no_terminal(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = call("list").stdout
    monkeypatch.setenv("COLUMNS", "60")
    narrow = call("list").stdout
    assert live.stage.job.url in wide
    assert max(map(len, narrow.splitlines())) <= 60
    assert len(narrow.splitlines()) > len(wide.splitlines())


@pytest.mark.parametrize(
    "command",
    ["list", "cancel", "run", "stop", "savepoint take", "backends", "checkpoints trigger"],
)
def test_help_teaches(command: str) -> None:
    result = call(*command.split(), "--help")
    assert result.exit_code == 0
    assert "For example" in result.stdout
    assert "Exit codes" in result.stdout


@pytest.fixture
def asked(live: Live, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the job's handle was asked for; it takes savepoints at once, and ends by some."""
    calls: list[Any] = []

    def taking(name: str, ends_as: JobStatus | None) -> Callable[..., str]:
        def take(directory: str | None, **options: Any) -> str:
            calls.append((name, directory, options))
            if directory == "/full":
                raise Unavailable("the savepoint could not be completed", found="a full disk")
            if ends_as is not None:
                monkeypatch.setattr(live.stage.run, "status", ends_as)
            return f"{directory or '/default'}/savepoint-1"

        return take

    for name, ends_as in (
        ("trigger_savepoint", None),
        ("stop_with_savepoint", JobStatus.FINISHED),
        ("cancel_with_savepoint", JobStatus.CANCELLED),
    ):
        monkeypatch.setattr(live.handle, name, taking(name, ends_as))
    return calls


def test_a_savepoint_is_taken(asked: list[Any], live: Live, tmp_path: Path, fails: Fails) -> None:
    run = live.found.registration.run
    assert document("savepoint", "job") == {
        "job": "job",
        "run": run,
        "savepoint": "/default/savepoint-1",
    }
    shown = call("savepoint", "take", run, "s3://b/x", "--format", "native").stdout
    assert shown == "a savepoint of job 'job' is complete: s3://b/x/savepoint-1\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert document("savepoint", "job", "here")["savepoint"] == f"{tmp_path}/here/savepoint-1"
    assert "could not be completed: found a full disk" in fails("savepoint", "job", "/full")
    assert asked == [
        ("trigger_savepoint", None, {}),
        ("trigger_savepoint", "s3://b/x", {"format": "native"}),
        ("trigger_savepoint", f"{tmp_path}/here", {}),
        ("trigger_savepoint", "/full", {}),
    ]


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_is_stopped_with_a_savepoint(asked: list[Any], *, drain: bool) -> None:
    options = ["--drain"] if drain else []
    told = document("stop", "--savepoint-path", "/s", *options, "job")
    assert (told["status"], told["savepoint"]) == ("finished", "/s/savepoint-1")
    assert asked == [("stop_with_savepoint", "/s", {"drain": drain})]


def test_a_job_is_stopped_where_its_savepoints_go(asked: list[Any]) -> None:
    shown = call("stop", "job", "--format", "native").stdout
    assert shown == "job 'job' has finished, with a savepoint: /default/savepoint-1\n"
    assert asked == [("stop_with_savepoint", None, {"drain": False, "format": "native"})]


@pytest.mark.parametrize(
    ("arguments", "directory"),
    [(("-s", "/s", "job"), "/s"), (("-s", "job"), None), (("job", "-s"), None)],
)
def test_a_job_is_cancelled_with_a_savepoint(
    asked: list[Any], arguments: tuple[str, ...], directory: str | None
) -> None:
    told = document("cancel", *arguments)
    assert told["status"] == "cancelled"
    assert told["savepoint"] == f"{directory or '/default'}/savepoint-1"
    assert asked == [("cancel_with_savepoint", directory, {})]


def test_a_job_whose_savepoint_fails_is_not_cancelled(
    asked: list[Any], live: Live, fails: Fails
) -> None:
    assert "a full disk" in fails("cancel", "-s", "/full", "job")
    assert live.handle.status is JobStatus.RUNNING
    assert len(asked) == 1


@pytest.mark.parametrize(
    "arguments", [("/s", "job"), ("-s", "/s", "job", "more"), ("--format", "native", "job"), ()]
)
def test_a_directory_without_a_savepoint_is_a_wrong_argument(
    asked: list[Any], arguments: tuple[str, ...]
) -> None:
    assert call("cancel", *arguments).exit_code == 2
    assert asked == []
