"""The storages that jobs of tests keep their checkpoints in: one list of names, turns for seeds.

A child process of a test has them too, by a `CheckpointPlace`, which is what a user would write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage import CheckpointStorage, load_storage
from support.servers.s3 import S3Server

LOCAL = "file"
REMOTE = ("s3", "hdfs")
TRIED_STORAGES = (LOCAL, *REMOTE)


@dataclass(frozen=True)
class CheckpointPlace:
    """Where the checkpoints of a test are, as a URL, and the options that go with it."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def storage(self, **options: Any) -> CheckpointStorage:
        """Such a storage."""
        return load_storage(self.url, **self.options, **options)

    def open(self, url: str) -> CheckpointStorage:
        """The storage of a URL on the same server."""
        return load_storage(url, **self.options)


def place_named(name: str, folder: Path, request: pytest.FixtureRequest) -> CheckpointPlace:
    """A fresh place in one of these; starts its server, unless it runs."""
    if name == LOCAL:
        return CheckpointPlace(f"file://{folder / 'checkpoints'}")
    if name == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = request.getfixturevalue("s3_bucket")
        return CheckpointPlace(server.url(bucket, "checkpoints"), server.options())
    return CheckpointPlace(request.getfixturevalue("hdfs_url"))


def turn(number: int) -> str:
    """The storage whose turn it is, for tests that are dealt over the storages by seed."""
    return TRIED_STORAGES[number % len(TRIED_STORAGES)]
