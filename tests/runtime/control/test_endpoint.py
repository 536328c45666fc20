"""The driver's end of the command line: what it answers and refuses, and that it does no harm.

The job is played: see `job_with_endpoint.py`.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.runtime.control import call_handler as handler_module
from holdfast.runtime.control import client as client_module
from holdfast.runtime.control import endpoint as endpoint_module
from holdfast.runtime.control.client import JobClient
from holdfast.runtime.control.endpoint import open_endpoint
from holdfast.runtime.control.messages import Answer
from holdfast.runtime.control.registry import FoundRun, find_runs
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.run import JobStatus
from holdfast.runtime.protocol.checkpoints import OperatorStatistics
from holdfast.runtime.protocol.error_data import data_of_error
from holdfast.storage import (
    HoldfastError,
    NotFound,
    SavepointFolder,
    SystemClock,
    SystemEntropy,
    Unavailable,
    load_storage,
)
from support.jobs.job_with_endpoint import HOST, Live, live_job, saves
from support.jobs.run_of_played_attempts import Stage, play_attempts
from support.waiting import wait_until

CLOCK = SystemClock()


@pytest.fixture(autouse=True)
def _played(monkeypatch: pytest.MonkeyPatch) -> None:
    play_attempts(monkeypatch)


@pytest.fixture
def live(quick_path: Path) -> Iterator[Live]:
    with live_job(quick_path / "runs") as live:
        yield live


def connected(found: FoundRun) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(found.socket))
    return connection


def test_a_job_is_described(live: Live) -> None:
    live.client.trigger_checkpoint()
    while not live.handle.checkpoints().counts.completed:
        CLOCK.sleep_s(0.005)
    report = live.client.describe()
    assert (report.job, report.status, report.attempts) == ("job", "running", 2)
    assert (report.pid, report.host) == (os.getpid(), HOST)
    assert [each.summary for each in report.failures] == ["a slot died"]
    assert report.counts.completed == 1
    (checkpoint,) = report.checkpoints
    assert checkpoint == report.last_completed
    assert checkpoint.folder == f"{live.stage.job.url}/chk-00000000000000000001"
    assert (checkpoint.size_bytes, checkpoint.written_bytes) == (2048, 1024)
    assert {slot: each.start_delay_ms for slot, each in checkpoint.slots.items()} == {
        "0": 1_000,
        "1": 999,
    }
    assert not any(each.operators for each in checkpoint.slots.values()), "of one answer's size"
    assert checkpoint.operators == {"sum": OperatorStatistics(sync_ms=21, size_bytes=2048)}
    assert checkpoint.ended_ms == checkpoint.triggered_ms + 250
    assert report.metrics["attempts"] == 2


def test_a_savepoint_is_described_where_it_is_and_is_no_checkpoint(
    live: Live, tmp_path: Path
) -> None:
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "job")
    saves(live.stage, 7, folder)
    report = live.client.describe()
    (savepoint,) = report.checkpoints
    assert savepoint == report.last_savepoint
    assert savepoint.is_savepoint
    assert (savepoint.trigger, savepoint.folder) == ("savepoint", folder.url)
    assert report.last_completed is None


def test_a_checkpoint_is_not_asked_for_in_vain(live: Live) -> None:
    live.stage.run.status = JobStatus.RESTARTING
    with pytest.raises(Unavailable, match=r"expected a job that is running, found it is restart"):
        live.client.trigger_checkpoint()
    assert live.handle.checkpoints().counts.begun == 0


def test_a_job_is_cancelled_and_is_found_no_more(live: Live) -> None:
    client, path = live.client, live.found.socket
    assert client.cancel().status == "cancelled"
    assert live.handle.status is JobStatus.CANCELLED
    for thread in threading.enumerate():
        if thread.name == "holdfast-endpoint-job":
            thread.join(10)
    assert not path.exists()
    assert list(live.folder.iterdir()) == []
    with pytest.raises(NotFound, match="the job runs no more"):
        client.describe()


def test_a_call_that_takes_long_is_waited_for(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_module, "_PULSE_S", 0.02)
    may_end, pulses = threading.Event(), threading.Semaphore(0)
    cancel, pulse = live.handle.cancel, handler_module.CallHandler._pulse

    def counted(handler: Any) -> None:
        pulse(handler)
        pulses.release()

    monkeypatch.setattr(handler_module.CallHandler, "_pulse", counted)
    monkeypatch.setattr(live.handle, "cancel", lambda: (may_end.wait(60), cancel()))
    ended: list[str] = []
    patient = JobClient(live.found, silence_s=1.0)
    waiting = threading.Thread(target=lambda: ended.append(patient.cancel().status))
    waiting.start()
    for _ in range(100):  # twice as long as it would wait for a driver that is silent
        assert pulses.acquire(timeout=20)
    assert waiting.is_alive()
    assert live.client.describe().status == "running", "others are answered meanwhile"
    may_end.set()
    waiting.join(60)
    assert ended == ["cancelled"]


def test_connections_beyond_the_limit_are_refused(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_module, "_REQUEST_WITHIN_S", 600.0)  # the crowd does not give up
    found, crowd, told = live.found, list[socket.socket](), ""
    try:
        while "busy" not in told:  # some of the crowd may be turned away themselves
            crowd.append(connected(found))
            try:
                JobClient(found).describe()
            except HoldfastError as error:
                told = str(error)
        assert "at most 8 at once" in told
    finally:
        for connection in crowd:
            connection.close()
    while True:
        try:
            assert live.client.describe().status == "running"
            return
        except Unavailable:
            continue


def test_a_refusal_before_the_request_is_read_gives_its_reason(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, is_closed = data_of_error(Unavailable("the job is busy")), threading.Event()
    body = msgspec.json.encode(Answer(error=busy))

    def turns_away(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            connection.sendall(
                b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
        is_closed.set()

    connect_at_once = client_module._UnixConnection.connect

    def speaks_late(connection: Any) -> None:
        connect_at_once(connection)
        assert is_closed.wait(20)

    monkeypatch.setattr(client_module._UnixConnection, "connect", speaks_late)
    path = live.folder / "other.sock"
    with closing(quiet_socket(path)) as listener:
        threading.Thread(target=turns_away, args=(listener,), daemon=True).start()
        with pytest.raises(Unavailable, match="the job is busy"):
            JobClient(FoundRun(live.found.registration, path)).describe()


def test_two_jobs_of_one_name_have_an_endpoint_each(live: Live, quick_path: Path) -> None:
    with live_job(quick_path / "runs") as other:
        runs = {
            each.registration.run
            for each in find_runs([other.folder], host=HOST, clock=CLOCK).found
        }
        assert runs == {live.found.registration.run, other.found.registration.run}
        assert live.found.registration.token != other.found.registration.token
        other.client.cancel()
        assert other.handle.status is JobStatus.CANCELLED
        assert live.client.describe().status == "running"


def test_a_driver_that_is_stuck_is_told_from_one_that_is_gone(live: Live) -> None:
    found = live.found
    silent = quiet_socket(live.folder / "silent.sock")
    with closing(silent):
        stuck = msgspec.structs.replace(found.registration, job="stuck")
        client = JobClient(type(found)(stuck, live.folder / "silent.sock"), silence_s=0.2)
        with pytest.raises(Unavailable, match=r"job 'stuck', process"):
            client.describe()


def quiet_socket(path: Path) -> socket.socket:
    """Listened on by a process that never answers."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    return listener


def test_without_a_folder_the_job_runs_and_a_warning_says_why(
    quick_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = quick_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    with caplog.at_level(logging.WARNING), live_job(folder) as live:
        assert live.endpoint is None
        assert live.handle.status is JobStatus.RUNNING
    assert "no command can reach it" in caplog.text
    assert "mode 0755" in caplog.text
    assert list(folder.iterdir()) == []


def test_of_several_folders_the_first_that_will_do_is_taken(quick_path: Path) -> None:
    stage = Stage([])
    (quick_path / "file").touch()
    too_long = quick_path / ("x" * 120)
    folders = (quick_path / "file", quick_path / "no" / "where", too_long, quick_path / "runs")
    endpoint = open_endpoint(
        JobHandle(stage.run, stage.job, {}, ()),
        storage="memory://",
        folders=folders,
        clock=CLOCK,
        entropy=SystemEntropy(),
    )
    assert endpoint is not None
    endpoint.close()
    endpoint.close()
    assert list((quick_path / "runs").iterdir()) == []
    assert list(too_long.iterdir()) == []


DRIVER = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from holdfast.runtime.control.endpoint import open_endpoint
from holdfast.storage import SystemClock, SystemEntropy
handle = SimpleNamespace(job_id="orders")
open_endpoint(handle, storage="memory://", folders=(Path(sys.argv[1]),), clock=SystemClock(),
    entropy=SystemEntropy())
if os.fork() == 0:
    sys.exit(0)  # runs what is to be run at an exit
os.wait()
print(len(os.listdir(sys.argv[1])), flush=True)
"""


@pytest.mark.slow
def test_a_driver_that_exits_leaves_nothing_and_its_children_take_nothing(quick_path: Path) -> None:
    folder = quick_path / "runs"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER, str(folder)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert done.stdout == b"2\n", "the entry and the socket, after the child has gone"
    assert list(folder.iterdir()) == []


ENDS_AT_ONCE = """
import sys, threading, time
from pathlib import Path
from types import SimpleNamespace
from holdfast.runtime.control.endpoint import open_endpoint
from holdfast.storage import SystemClock, SystemEntropy
ended = threading.Event()
def cancel():
    ended.set()
    time.sleep(0.5)  # the main thread is at its end by then
handle = SimpleNamespace(job_id="orders", cancel=cancel, status=SimpleNamespace(value="cancelled"))
endpoint = open_endpoint(handle, storage="memory://", folders=(Path(sys.argv[1]),),
    clock=SystemClock(), entropy=SystemEntropy())
def run():
    ended.wait()
    endpoint.close()
threading.Thread(target=run, daemon=True).start()
print("ready", flush=True)
ended.wait()
"""


@pytest.mark.slow
def test_a_cancel_is_answered_though_the_program_ends_at_once(quick_path: Path) -> None:
    folder = quick_path / "runs"
    arguments = [sys.executable, "-c", ENDS_AT_ONCE, str(folder)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        (found,) = find_runs([folder], host=HOST, clock=CLOCK).found
        assert JobClient(found).cancel().status == "cancelled"
        assert driver.wait(20) == 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("gone", ["*", "*.json", "*.sock"])
def test_deleted_registrations_are_restored(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    """The folder of a login goes when its user logs out, and old temporary files go."""
    monkeypatch.setattr(endpoint_module, "_LOOK_S", 0.02)
    with live_job(quick_path / "runs") as live:
        run = live.found.registration.run
        for path in live.folder.glob(gone):
            path.unlink()
        if gone == "*":
            live.folder.rmdir()
        wait_until(lambda: "it is in" in caplog.text)
        assert live.found.registration.run == run
        assert live.client.describe().status == "running"
    assert list(live.folder.iterdir()) == []


def test_constant_connections_do_not_stop_the_repair_of_registrations(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint_module, "_LOOK_S", 0.05)
    with live_job(quick_path / "runs") as live:
        found = live.found
        (live.folder / f"{found.registration.run}.json").unlink()

        def knock() -> bool:
            with suppress(OSError):
                connected(found).close()
            return "it is in" in caplog.text

        wait_until(knock)
        assert live.client.describe().status == "running"


def test_a_registration_is_restored_when_its_folder_returns(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint_module, "_LOOK_S", 0.02)
    above = quick_path / "above"
    above.mkdir()
    with live_job(above / "runs") as live:
        shutil.rmtree(above)
        wait_until(lambda: "no command finds job 'job' any more" in caplog.text)
        above.mkdir()
        wait_until(lambda: "it is in" in caplog.text)
        assert live.client.describe().status == "running"
    assert caplog.text.count("no command finds") == 1


def test_a_driver_that_is_out_of_files_answers_when_it_has_some(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint_module, "_PAUSE_S", 0.01)
    assert live.endpoint is not None
    real, failures = live.endpoint._socket.socket, [OSError(24, "too many open files")] * 3

    class Failing:
        def accept(self) -> Any:
            if failures:
                raise failures.pop()
            return real.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    found = live.found
    monkeypatch.setattr(live.endpoint._socket, "socket", Failing())
    JobClient(found).describe()  # which the call to accept answers that has begun before
    assert JobClient(found).describe().status == "running"
    assert failures == []
    assert "too many open files" in caplog.text
