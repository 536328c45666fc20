"""The one parameter of tests that are run for each backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.backends import StateBackend
from tried_backends import PARAMETERS, backend_named, quick_place


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
