"""A savepoint that is converted in small pieces."""

from __future__ import annotations

import pytest

from holdfast.savepoints import StoredSnapshot
from support.jobs.conversion_on_small_disk import make_large


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> StoredSnapshot:
    """A savepoint that takes a while to convert in small pieces."""
    return make_large(tmp_path_factory.mktemp("large"))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are some of them."""
    monkeypatch.setattr("holdfast.savepoints.conversion.plan._PIECE_BYTES", 60_000)
