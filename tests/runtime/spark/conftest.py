"""What tests on Spark have in common: a session, which takes seconds to start, and backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import StateBackend
from support.jobs.spark_sessions import start_session
from support.states.tried_backends import REGISTERED, backend_named


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session()
    yield session
    session.stop()


DEALT = [pytest.param(name, marks=pytest.mark.dealt("backend_name")) for name in REGISTERED]


@pytest.fixture(params=DEALT)
def backend_name(request: pytest.FixtureRequest) -> str:
    """One of the registered backends: jobs on Spark take too long for plug-ins too."""
    name: str = request.param
    return name


@pytest.fixture
def backend(backend_name: str, quick_path: Path) -> StateBackend:
    """Each of them. A slot may be killed, and leave files until another one comes."""
    return backend_named(backend_name, quick_path / "state")
