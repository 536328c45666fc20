"""The S3 storage passes the suite on a real server; what is kept by one scheme is there by both."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage.testing import Place
from holdfast.storage.testing.clauses.creates import CreateClauses
from holdfast.storage.testing.conformance import ObjectClauses
from support.servers.s3 import S3Server
from support.storages.server_places import s3_place


@pytest.fixture(scope="module")
def bucket(running_s3: S3Server) -> str:
    """One for all tests here: each has a path of its own."""
    return running_s3.start().new_bucket()


@pytest.mark.slow
class TestS3(ObjectClauses):
    """Below a path with spaces and letters of all kinds, in a bucket that all tests share.

    SeaweedFS lets those who create one object at once wait for seconds, so that there are few
    rounds of them. Clauses about jobs: `tests/storage/places/test_jobs_on_servers.py`.
    """

    @pytest.fixture
    def place(self, s3_server: S3Server, bucket: str, tmp_path: Path) -> Place:
        path = f"übung der 部/{tmp_path.name} 100% + #1"
        return s3_place(s3_server, bucket, path, rounds=3)


@pytest.mark.soak
class TestManyRoundsOnS3(CreateClauses):
    @pytest.fixture
    def place(self, s3_server: S3Server, bucket: str, tmp_path: Path) -> Place:
        return s3_place(s3_server, bucket, tmp_path.name)


@pytest.mark.slow
def test_both_names_of_the_scheme_are_one_place(s3_server: S3Server, bucket: str) -> None:
    one, other = (
        s3_place(s3_server, bucket, "both", scheme=scheme).open() for scheme in ("s3", "s3a")
    )
    one.write("a/b", b"x")
    assert other.create("a/b", b"y") == b"x"
    assert [found.name for found in other.list("")] == ["a/b"]
    assert (one.url, other.url) == (f"s3://{bucket}/both", f"s3a://{bucket}/both")
