"""Whether a job runs already when it is started anew."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

from holdfast.runtime.control.registry import find_runs
from holdfast.storage import Clock, Invalid

__all__ = ["check_not_running"]


def check_not_running(job: str, storage: str, folders: Iterable[Path], clock: Clock) -> None:
    """Refuse to begin a job anew that a driver of this user on this machine runs.

    Other drivers are found out by their checkpoints. `storage` is where the job keeps its own.

    Raises:
        Invalid: it runs; says where, and how it is stopped.
    """
    if storage.startswith("memory:"):  # another process has another place of this name
        return
    host = socket.gethostname()
    for run in find_runs(folders, host=host, clock=clock).found:
        found = run.registration
        if (found.job, found.storage) == (job, storage):
            raise Invalid(
                f"job {job!r} runs already",
                where=storage,
                expected="a job that does not run",
                found=f"run {found.run[:8]} in process {found.pid} on {found.host}",
                fix=f"Leave it running, or end it first: holdfast stop {job}, or holdfast cancel "
                f"{job}; or begin this one under another name",
            )
