"""A file sink uses the server and the user of its URL, and shows no password."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest

from holdfast.runtime.sinks import FileSink
from holdfast.runtime.sinks.files.committables import FileCommittable
from holdfast.runtime.sinks.testing.sink_jobs import SCHEMA
from holdfast.storage import Invalid, Unavailable
from support.jobs.sink_files import context, prepared
from support.servers.fsspec_stand_ins import FakeFtp, stand_in_azure, stand_in_ftp, stand_in_sftp

PASSWORD = "p@ssw0rd"
HIDDEN, FINAL = "_holdfast/job/out/0.1-00003-00000-ab.unfinished", "part-out-1.parquet"


@pytest.fixture
def ftp(monkeypatch: pytest.MonkeyPatch) -> type[FakeFtp]:
    return stand_in_ftp(monkeypatch)


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("ftp://u:p@ssw0rd@127.0.0.1/out", {}, ("127.0.0.1", 21, "u", PASSWORD, "")),
        ("ftp://127.0.0.1:2121/out", {}, ("127.0.0.1", 2121, "", "", "")),
        ("ftp://u@127.0.0.1/out", {"password": PASSWORD}, ("127.0.0.1", 21, "u", PASSWORD, "")),
        ("ftp://u@127.0.0.1:7/out", {"port": 99}, ("127.0.0.1", 99, "u", "", "")),
    ],
)
def test_the_host_of_a_url_is_gone_to(
    url: str, options: dict[str, Any], told: tuple[Any, ...], ftp: type[FakeFtp]
) -> None:
    """Also by a slot, to which the sink travels. Options count before the URL."""
    pickle.loads(pickle.dumps(FileSink(url, storage_options=options))).clean([], context())
    assert ftp.told == told


def test_where_an_earlier_version_wrote_the_login_is_the_same(ftp: type[FakeFtp]) -> None:
    """What a checkpoint says of it has no password. Another server is not told it."""
    sink = FileSink(f"ftp://u:{PASSWORD}@127.0.0.1/v2")

    def clean(root: str) -> tuple[Any, ...]:
        sink.clean([FileCommittable(root, HIDDEN, FINAL, 1, 1)], context())
        return ftp.told

    for other in ("u@127.0.0.9", "v@127.0.0.1"):
        assert PASSWORD not in clean(f"ftp://{other}/v3")
    assert clean("ftp://u@127.0.0.1/v1") == ("127.0.0.1", 21, "u", PASSWORD, "")
    sink = FileSink("ftp://u@127.0.0.1/v2", storage_options={"password": PASSWORD})
    assert PASSWORD not in clean("ftp://u@127.0.0.9/v3")
    assert clean("ftp://u@127.0.0.1/v1") == ("127.0.0.1", 21, "u", PASSWORD, "")


@pytest.mark.parametrize("verb", ["check", "clean", "commit"])
def test_a_login_that_is_refused_shows_no_password(verb: str, ftp: type[FakeFtp]) -> None:
    ftp.refusal = f"530 no user u with {PASSWORD} at ftp://u:{PASSWORD}@host"
    sink = FileSink(f"ftp://u:{PASSWORD}@refusing/out")
    committable = FileCommittable("ftp://u@refusing/out", HIDDEN, FINAL, 1, 1)
    verbs = {
        "check": lambda: sink.check(SCHEMA),
        "clean": lambda: sink.clean([], context()),
        "commit": lambda: sink.commit([committable], context()),
    }
    with pytest.raises(Unavailable, match="530 no user u with") as caught:
        verbs[verb]()
    assert caught.value.where == "ftp://u@refusing/out"
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "found"),
    [
        ("ftp:///out", {}, "'host'"),
        ("ftp://u:secr/etive@host/out", {}, ""),
    ],
)
def test_a_url_that_says_too_little_is_refused(
    url: str, options: dict[str, Any], found: str
) -> None:
    with pytest.raises(Invalid, match=r"cannot be (set up|read)") as caught:
        FileSink(url, storage_options=options).check(SCHEMA)
    assert found in caught.value.found
    assert "etive" not in str(caught.value)


def test_an_sftp_server_is_told_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    told = stand_in_sftp(monkeypatch)
    with pytest.raises(Unavailable, match="no way to host for") as caught:
        FileSink("sftp://user:p@ssw0rd@host:2222/out").check(SCHEMA)
    assert PASSWORD not in str(caught.value)
    assert told == {"hostname": "host", "port": 2222, "username": "user", "password": PASSWORD}


def test_an_account_is_gone_to(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_azure(monkeypatch)
    sink = FileSink("abfs://container@account/out")
    (committable,) = prepared(sink)
    assert committable.root == "abfs://container@account/out"
    sink.commit([committable], context())
    place: Any = sink._place()
    assert place.address.files.account_name == "account"
    assert place.size_bytes(committable.final) == committable.size_bytes


def test_that_a_password_travels_is_said_once(
    ftp: type[FakeFtp], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with pytest.raises(Unavailable, match=f"'{ftp.__name__}' object has no"):
            FileSink(f"ftp://told:{PASSWORD}@host/out").check(SCHEMA)
    assert caplog.text.count("as text") == 1
    assert PASSWORD not in caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("hdfs_server")
def test_files_go_to_the_hdfs_of_the_url(hdfs_url: str) -> None:
    """And not to that of the process's configuration, if it has one."""
    sink = FileSink(f"{hdfs_url}/out")
    sink.check(SCHEMA)
    committables = prepared(sink, 3)
    sink.commit(committables, context())
    place = sink._place()
    for each in committables:
        assert place.size_bytes(each.final) == each.size_bytes
        assert place.size_bytes(each.hidden) is None


@pytest.mark.slow
@pytest.mark.usefixtures("hdfs_server")
def test_a_process_that_has_written_to_an_hdfs_can_be_forked(hdfs_url: str) -> None:
    """The child drops what fsspec keeps, and the library would wait there for the parent's threads.

    In a process of its own: one of the threads of a test run may hold a lock.
    """
    program = """
        import os, sys
        from holdfast.runtime.sinks import FileSink
        from support.jobs.sink_files import context, prepared
        sink = FileSink(sys.argv[1])
        sink.commit(prepared(sink, 3), context())
        child = os.fork()
        if not child:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", dedent(program)]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [*command, f"{hdfs_url}/out"], env={**os.environ, **paths}, check=True, timeout=60
    )
