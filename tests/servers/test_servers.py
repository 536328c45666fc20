"""The servers of tests do what tests take for granted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import hdfs_native
import pytest
from botocore.exceptions import ClientError

from holdfast.storage import SystemClock
from support import servers
from support.servers.guarded import Guarded, ServerFailed
from support.servers.hdfs import HdfsServer
from support.servers.ports import Ports, is_answering, is_free
from support.servers.s3 import ADMIN, KEEPER, READER, STRANGER, Identity, S3Server

TESTS = Path(servers.__file__).resolve().parents[2]
SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
LOOPBACK_HEX = "0100007F"
_LISTENS = "0A"
CHILD = """
import os, signal, sys
from support.servers.guarded import Guarded
guarded = Guarded("child")
program = guarded.start("sleeper", sys.argv[1:])
program.await_that("word", lambda: "up" in program.log(), within_s=20)
print(program.pid, guarded.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def listening(pid: int) -> list[str]:
    """The addresses at which a process listens, as the kernel writes them."""
    own = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return [
        row[1].partition(":")[0]
        for row in rows
        if row[3] == _LISTENS and f"socket:[{row[9]}]" in own
    ]


def code_of(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def test_programs_end_and_folders_go_with_a_process_that_is_killed() -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD, *SLEEPER],
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS / 'sqlite_plugin'}"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    pid, folder = child.stdout.split()
    clock = SystemClock()
    end_s = clock.monotonic_s() + 20
    while is_alive(int(pid)) or Path(folder).exists():
        assert clock.monotonic_s() < end_s
        clock.sleep_s(0.02)


def test_closing_ends_programs_and_removes_the_folder() -> None:
    with Guarded("closed") as guarded:
        program = guarded.start("sleeper", SLEEPER)
        assert program.is_running
    assert not is_alive(program.pid)
    assert not guarded.folder.exists()


def test_a_program_that_ends_too_early_shows_its_log() -> None:
    with Guarded("early") as guarded:
        program = guarded.start("early", [sys.executable, "-c", "raise SystemExit('no good')"])
        with pytest.raises(ServerFailed, match=r"(?s)ended with 1 before answer.*no good"):
            program.await_that("answer", lambda: False, within_s=20)
        with pytest.raises(ServerFailed, match="No such file"):
            guarded.start("missing", ["/no/such/program"])


def test_two_hold_different_ports() -> None:
    one, other = Ports(), Ports()
    taken = [each.take() for each in (one, other) for _ in range(16)]
    one.close()
    other.close()
    assert len({*taken}) == 32
    assert all(map(is_free, taken))


@pytest.mark.slow
def test_s3_keeps_what_it_has_through_a_kill(s3_server: S3Server, s3_bucket: str) -> None:
    endpoint = s3_server.endpoint
    client = s3_server.client()
    client.put_object(Bucket=s3_bucket, Key="a key/ü", Body=b"data")
    s3_server.kill()
    assert not s3_server.is_running
    assert not is_answering(s3_server.port)
    s3_server.start()
    assert s3_server.endpoint == endpoint
    assert client.get_object(Bucket=s3_bucket, Key="a key/ü")["Body"].read() == b"data"


@pytest.mark.slow
def test_s3_lets_each_do_what_they_may(s3_server: S3Server, s3_bucket: str) -> None:
    def outcome(identity: Identity, call: str) -> str:
        method = getattr(s3_server.client(identity), call)
        try:
            method(Bucket=s3_bucket, Key="key", **({"Body": b""} if call == "put_object" else {}))
        except ClientError as error:
            return code_of(error)
        return "done"

    denied = "AccessDenied"
    assert [outcome(ADMIN, call) for call in ("put_object", "get_object")] == ["done", "done"]
    assert outcome(READER, "get_object") == "done"
    assert [outcome(READER, call) for call in ("put_object", "delete_object")] == [denied, denied]
    assert [outcome(KEEPER, call) for call in ("put_object", "delete_object")] == ["done", denied]
    assert outcome(STRANGER, "get_object") == "InvalidAccessKeyId"
    assert outcome(ADMIN, "delete_object") == "done"


@pytest.mark.slow
@pytest.mark.parametrize("versioning", [False, True])
def test_s3_honours_conditions(s3_server: S3Server, *, versioning: bool) -> None:
    bucket = s3_server.new_bucket(versioning=versioning)
    client = s3_server.client()
    client.put_object(Bucket=bucket, Key="key", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket=bucket, Key="key", Body=b"second", IfNoneMatch="*")
    assert code_of(caught.value) == "PreconditionFailed"
    client.delete_object(Bucket=bucket, Key="key")
    client.put_object(Bucket=bucket, Key="key", Body=b"third", IfNoneMatch="*")
    assert client.get_object(Bucket=bucket, Key="key")["Body"].read() == b"third"
    versions = client.list_object_versions(Bucket=bucket).get("Versions", [])
    assert len(versions) == (2 if versioning else 1)


@pytest.mark.slow
def test_the_s3_server_reports_no_statistics(s3_server: S3Server) -> None:
    (program,) = s3_server.programs
    assert "Reporting anonymous cluster statistics" not in program.log()


@pytest.mark.slow
def test_hdfs_keeps_what_it_has_through_a_kill(hdfs_server: HdfsServer, hdfs_url: str) -> None:
    folder = hdfs_url.removeprefix(hdfs_server.url().rstrip("/"))

    def client() -> hdfs_native.Client:
        return hdfs_native.Client(hdfs_server.url())

    client().mkdirs(folder)
    with client().create(f"{folder}/a key ü") as file:
        file.write(b"data")
    ports = hdfs_server.port, hdfs_server.data_port
    hdfs_server.kill()
    assert not hdfs_server.is_running
    hdfs_server.start()
    assert client().read(f"{folder}/a key ü").read() == b"data"
    assert ports == (hdfs_server.port, hdfs_server.data_port)


@pytest.mark.slow
def test_servers_listen_on_loopback_only(s3_server: S3Server, hdfs_server: HdfsServer) -> None:
    for program in (*s3_server.programs, *hdfs_server.programs):
        found = listening(program.pid)
        assert found
        assert all(address.endswith(LOOPBACK_HEX) for address in found), found
