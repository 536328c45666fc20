"""The parameter of tests that are run for each backend, and the servers that a run shares."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings

from holdfast.backends import StateBackend
from holdfast.runtime.control.folder import FOLDER_VARIABLE
from run_tests import ON_SPARK
from support import budgets, dealing, longest_first
from support.servers.guarded import ServerFailed
from support.servers.hadoop import hdfs_jars
from support.servers.hdfs import HdfsServer
from support.servers.java_archive import QUICK_JAVA, quick_java
from support.servers.s3 import S3Server
from support.states.tried_backends import PARAMETERS, backend_named
from support.storages.quick_places import quick_place

TESTS = Path(__file__).resolve().parent
# Whatever a test starts finds what tests share, and classes that golden files name.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [
        *(str(TESTS / each) for each in (".", "support/golden", "sqlite_plugin")),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in the background of a shell, and so processes of tests would have it from us: those
    # that are to be interrupted would never hear of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

for variable in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    # Of every Spark that a test starts, by whatever program: it lives too short to be optimized.
    os.environ.setdefault(variable, QUICK_JAVA)

settings.register_profile("check", settings.get_profile("ci"), max_examples=10)
"""A tenth of the examples; `make soak` looks at all."""

# Thousands of collected tests are a large heap. By its usual threshold Python's collector looks
# through it so often that it took a fifth of the processor time of all quick tests.
gc.set_threshold(50_000, 20, 100)

BIG = {"spark", "running_hdfs", "running_s3"}
"""Fixtures that take seconds."""


@pytest.fixture(scope="session", autouse=True)
def _running_jobs() -> Iterator[None]:
    """Jobs of tests register where no job of the user's does."""
    with TemporaryDirectory(prefix="holdfast-runs-", dir=quick_place()) as folder:
        os.environ[FOLDER_VARIABLE] = folder
        yield
        del os.environ[FOLDER_VARIABLE]


@pytest.fixture(params=PARAMETERS)
def backend_name(request: pytest.FixtureRequest) -> str:
    """The name of each backend that is tried, for a test that passes it on."""
    name: str = request.param
    return name


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A folder as `tmp_path`, where files are synced soon."""
    with TemporaryDirectory(prefix="holdfast-test-", dir=quick_place()) as folder:
        yield Path(folder)


@pytest.fixture
def backend(backend_name: str, quick_path: Path) -> Iterator[StateBackend]:
    """Each backend that is tried; a test that has passed has closed what it opened of it."""
    folder = quick_path / "state"
    yield backend_named(backend_name, folder)
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of `make test`, which has the cores for itself."""
    parser.addoption(
        budgets.OPTION, choices=sorted(budgets.BUDGETS), help="fail if folders exceed their budget"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Where a part of `make test` is run, its time is looked at."""
    budgets.keep_account(config)


@pytest.hookimpl(tryfirst=True)  # before any are left out by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts something big is slow; what is dealt to no run is left to `make soak`.

    Files that take long come first.
    """
    for item in items:
        if not BIG.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    dealing.deal(items)
    longest_first.order(items)


def _starts_spark(item: pytest.Item) -> bool:
    return item.nodeid.startswith(ON_SPARK) and any(map(item.get_closest_marker, ("slow", "soak")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of the parts of `make test`, which give each worker whole files."""
    is_by_file = config.getoption("dist") == "loadfile"
    return longest_first.WholeFiles(config, log) if is_by_file else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make ready what all tests have in common, before the time of any test runs."""
    gc.freeze()  # the collected tests and modules stay to the end: no need to look through them
    # Tests that need a server report by themselves that its programs cannot be downloaded.
    if any("hdfs_server" in getattr(item, "fixturenames", ()) for item in session.items):
        with suppress(ServerFailed):
            hdfs_jars()
    if os.environ["SPARK_SUBMIT_OPTS"] == QUICK_JAVA and any(map(_starts_spark, session.items)):
        os.environ["SPARK_SUBMIT_OPTS"] = quick_java()


@pytest.fixture(scope="session")
def running_s3() -> Iterator[S3Server]:
    """The S3 server of this run, maybe killed by the last test; take `s3_server`."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_server(running_s3: S3Server) -> S3Server:
    """The S3 server of this run, which runs; a test may kill it."""
    return running_s3.start()


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """A bucket for one test."""
    return s3_server.new_bucket()


@pytest.fixture(scope="session")
def running_hdfs() -> Iterator[HdfsServer]:
    """The HDFS of this run, maybe killed by the last test; take `hdfs_server`."""
    with HdfsServer(permissions=True) as server:  # the user that started it is the superuser
        yield server


@pytest.fixture
def hdfs_server(running_hdfs: HdfsServer) -> HdfsServer:
    """The HDFS of this run, which takes changes; a test may kill it, or one half of it."""
    return running_hdfs.start()


_FOLDERS = itertools.count(1)


@pytest.fixture
def hdfs_url(hdfs_server: HdfsServer) -> str:
    """The URL of a folder for one test; it is not there yet."""
    return hdfs_server.url(f"test-folder-{next(_FOLDERS)}")
