"""State ten times larger than memory: written and restored without being held in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.states import larger_than_memory
from support.states.larger_than_memory import MEMORY_BYTES, STATE_BYTES, Content

MOST_GROWN_BYTES = MEMORY_BYTES + (112 << 20)
"""What a process may take beyond what it had with little state: its budget, and what Python has at
hand of keys and values that are on their way."""


def told(folder: Path, task: str, value_bytes: int) -> dict[str, Any]:
    command = [sys.executable, larger_than_memory.__file__, str(folder), task, str(value_bytes)]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=path)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see memory")
@pytest.mark.dealt("value_bytes")
@pytest.mark.parametrize("value_bytes", [1 << 10, 512 << 10])
def test_state_ten_times_larger_than_its_memory(tmp_path: Path, value_bytes: int) -> None:
    assert STATE_BYTES >= 10 * MEMORY_BYTES
    written = told(tmp_path, "write", value_bytes)
    assert written["is_read_back"]
    assert written["size_bytes"] > STATE_BYTES
    assert written["grown_bytes"] < MOST_GROWN_BYTES
    found = told(tmp_path, "read", value_bytes)
    assert found["count"] == Content(value_bytes).count
    assert found["neutral_bytes"] > STATE_BYTES
    assert found["checksum"] == found["united"] == written["checksum"]
    assert found["grown_bytes"] < MOST_GROWN_BYTES
    assert not [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
