"""The S3 storage passes the suite on a real server; what is kept by one scheme is there by both."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage import CheckpointStorage
from holdfast.storage.places.s3.storage import S3CheckpointStorage
from holdfast.storage.testing import CheckpointStorageConformance, Place
from support.servers.s3 import S3Server

NOBODY = "http://127.0.0.1:9"
MIB = 1024 * 1024


def kept_below(server: S3Server, bucket: str, prefix: str) -> int:
    """Objects and uploads, as a plain client counts them."""
    client = server.client()
    objects = client.list_objects_v2(Bucket=bucket, Prefix=prefix)
    uploads = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix)
    assert not objects["IsTruncated"]
    assert not uploads["IsTruncated"]
    return len(objects.get("Contents", ())) + len(uploads.get("Uploads", ()))


def place_at(server: S3Server, bucket: str, scheme: str, path: str) -> Place:
    url = f"{scheme}://{bucket}/{path}"

    def unusable() -> CheckpointStorage:
        return S3CheckpointStorage(url, endpoint=NOBODY, anon=True, max_attempts=1)

    return Place(
        open=lambda: S3CheckpointStorage(url, **server.options()),
        count=lambda: kept_below(server, bucket, f"{path}/" if path else ""),
        unusable=unusable,
    )


@pytest.fixture(scope="module")
def bucket(running_s3: S3Server) -> str:
    """One for all tests here: each has a path of its own."""
    return running_s3.start().new_bucket()


@pytest.mark.slow
class TestS3(CheckpointStorageConformance):
    """Below a path with spaces and letters of all kinds, in a bucket that all tests share."""

    @pytest.fixture
    def place(self, s3_server: S3Server, bucket: str, tmp_path: Path) -> Place:
        return place_at(s3_server, bucket, "s3", f"übung der 部/{tmp_path.name} 100% + #1")


@pytest.mark.slow
def test_both_names_of_the_scheme_are_one_place(s3_server: S3Server, bucket: str) -> None:
    one, other = (place_at(s3_server, bucket, scheme, "both").open() for scheme in ("s3", "s3a"))
    one.write("a/b", b"x")
    assert other.create("a/b", b"y") == b"x"
    assert [found.name for found in other.list("")] == ["a/b"]
    assert (one.url, other.url) == (f"s3://{bucket}/both", f"s3a://{bucket}/both")
