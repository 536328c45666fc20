"""An S3 storage whose store answers as a test tells it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.storage import ManualClock
from holdfast.storage.places.s3 import connection as s3_connection
from holdfast.storage.places.s3.storage import S3CheckpointStorage
from support.servers.s3_answerer import Answerer, answering, storage_of


@pytest.fixture(scope="module")
def answerer() -> Iterator[Answerer]:
    """One for all tests: a client for each place would take a while."""
    with answering() as server:
        yield server


@pytest.fixture
def store(answerer: Answerer) -> Iterator[Answerer]:
    """A store that was not tried yet."""
    answerer.begin()
    for made_before in s3_connection._connections.values():
        made_before.proven.clear()
    yield answerer
    answerer.end()


@pytest.fixture
def clock() -> ManualClock:
    """Pauses take no time."""
    return ManualClock()


@pytest.fixture
def storage(store: Answerer, clock: ManualClock) -> S3CheckpointStorage:
    return storage_of(store, clock)
