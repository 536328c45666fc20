"""A job, and another one whose checkpoints it may claim: in the same storage, or elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage import CheckpointStorage, JobStorage, load_storage
from support.jobs.claimed_checkpoints import Other


@pytest.fixture(params=["same storage", "another storage"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Other:
    folder = "mine" if request.param == "same storage" else "theirs"
    return Other(load_storage(str(tmp_path / folder)))


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path / "mine")).job("job")


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return load_storage(str(tmp_path / "storage"))
