"""A job on a cluster of two machines, with two networks between them that are listened to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.jobs.spark_jobs import check_complete, expected, write_orders
from support.jobs.spark_sessions import prepare_environment
from support.machines import job_on_two
from support.machines.joined_machines import alone

pytestmark = pytest.mark.slow


def test_slots_are_at_their_executors_hosts_and_nothing_shows_rows_or_secrets(
    tmp_path: Path,
) -> None:
    prepare_environment()
    write_orders(tmp_path / "in", job_on_two.ORDERS, 6)
    command = alone([sys.executable, job_on_two.__file__, str(tmp_path)])
    log = tmp_path / "said"
    with (
        log.open("wb") as said,
        subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True) as child,
    ):
        try:
            code = child.wait(600)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
    told = log.read_text(errors="replace")
    assert code == 0, told[-6000:]
    assert not [piece for piece in ("Traceback", job_on_two.CONFIDENTIAL) if piece in told]
    check_complete(tmp_path, expected(job_on_two.ORDERS))
