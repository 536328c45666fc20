"""Places on real servers for storage's suite, whose files a plain client counts."""

from __future__ import annotations

import hdfs_native

from holdfast.storage import CheckpointStorage
from holdfast.storage.places.hdfs.storage import HdfsCheckpointStorage
from holdfast.storage.places.s3.storage import S3CheckpointStorage
from holdfast.storage.testing import Place
from support.servers.hdfs import HdfsServer
from support.servers.s3 import S3Server

_NOTHING_LISTENS = "http://127.0.0.1:9"


def s3_place(
    server: S3Server, bucket: str, path: str, *, scheme: str = "s3", rounds: int = 20
) -> Place:
    """A place below a path of a bucket."""
    url = f"{scheme}://{bucket}/{path}"

    def unusable() -> CheckpointStorage:
        return S3CheckpointStorage(url, endpoint=_NOTHING_LISTENS, anon=True, max_attempts=1)

    return Place(
        open=lambda: S3CheckpointStorage(url, **server.options()),
        count=lambda: _kept_below(server, bucket, f"{path}/" if path else ""),
        unusable=unusable,
        rounds=rounds,
    )


def _kept_below(server: S3Server, bucket: str, prefix: str) -> int:
    """Objects and uploads."""
    client = server.client()
    objects = client.list_objects_v2(Bucket=bucket, Prefix=prefix)
    uploads = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix)
    assert not objects["IsTruncated"]
    assert not uploads["IsTruncated"]
    return len(objects.get("Contents", ())) + len(uploads.get("Uploads", ()))


def hdfs_place(server: HdfsServer, url: str) -> Place:
    """A place below a folder with spaces and letters of all kinds."""
    client = hdfs_client(server)
    root = f"{url}/übung der kontrollpunkte 部/100% #1?"

    def unusable() -> HdfsCheckpointStorage:
        client.inner.create(f"{hdfs_path(url)}/file", hdfs_native.WriteOptions()).close()
        return HdfsCheckpointStorage(f"{url}/file/checkpoints")

    return Place(
        open=lambda: HdfsCheckpointStorage(root),
        count=lambda: len(hdfs_files_below(client, root)),
        unusable=unusable,
    )


def hdfs_client(server: HdfsServer) -> hdfs_native.Client:
    """The library, without the house."""
    return hdfs_native.Client(server.url().rstrip("/"))


def hdfs_path(url: str) -> str:
    """The path that an HDFS has for a URL of it."""
    return "/" + url.split("/", 3)[3]


def hdfs_files_below(client: hdfs_native.Client, url: str) -> list[str]:
    """The files below a folder of it, by their names in the folder."""
    path = hdfs_path(url)
    try:
        found = [each.path for each in client.list_status(path, True) if not each.isdir]
    except FileNotFoundError:
        return []
    return [each.removeprefix(f"{path}/") for each in found]
