"""A job on executors of their own, of which one is killed.

In `make soak` only: `test_standalone.py` kills executors in each run, `test_campaign.py` slots with
state on disk.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.jobs.spark_jobs import check_complete, check_no_state_is_left, expected
from support.jobs.spark_sessions import prepare_environment
from support.kills import lost_executor

pytestmark = pytest.mark.soak


def test_an_executor_is_killed_and_the_job_goes_on(tmp_path: Path) -> None:
    prepare_environment()
    lost_executor.prepare(tmp_path)
    log = tmp_path / "said"
    command = [sys.executable, lost_executor.__file__, str(tmp_path)]
    with (
        log.open("wb") as said,
        subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True) as child,
    ):
        try:
            code = child.wait(280)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
    told = log.read_text(errors="replace")
    assert code == 0, told[-6000:]
    assert "killed an executor" in told
    check_complete(tmp_path, expected(lost_executor.ORDERS))
    check_no_state_is_left(tmp_path / "state")
