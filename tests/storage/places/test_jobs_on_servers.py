"""Jobs on real servers: each clause on one of them in a run, by turns, and on each in `make soak`.

What a server can do differently is what `ObjectClauses` ask, which each passes in each run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage.testing import Place
from holdfast.storage.testing.conformance import JobClauses
from support.servers.hdfs import HdfsServer
from support.servers.s3 import S3Server
from support.storages.server_places import hdfs_place, s3_place


@pytest.fixture(scope="module")
def bucket(running_s3: S3Server) -> str:
    """One for all tests here: each has a path of its own."""
    return running_s3.start().new_bucket()


@pytest.mark.slow
@pytest.mark.dealt("class")
class TestJobsOnS3(JobClauses):
    @pytest.fixture
    def place(self, s3_server: S3Server, bucket: str, tmp_path: Path) -> Place:
        return s3_place(s3_server, bucket, tmp_path.name)


@pytest.mark.slow
@pytest.mark.dealt("class")
class TestJobsOnHdfs(JobClauses):
    @pytest.fixture
    def place(self, hdfs_server: HdfsServer, hdfs_url: str) -> Place:
        return hdfs_place(hdfs_server, hdfs_url)
