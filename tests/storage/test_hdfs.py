"""Checkpoints in a real HDFS."""

from __future__ import annotations

import pytest

from holdfast.storage.hdfs import HdfsCheckpointStorage
from holdfast.storage.testing import CheckpointStorageConformance, Place
from servers.hdfs import HdfsServer


@pytest.mark.slow
class TestHdfs(CheckpointStorageConformance):
    @pytest.fixture
    def place(self, hdfs_server: HdfsServer, hdfs_url: str) -> Place:
        root = f"{hdfs_url}/übung der kontrollpunkte 部/100% #1?"
        return Place(open=lambda: HdfsCheckpointStorage(root))
