"""Refuses to start a job that runs already."""

from __future__ import annotations

import logging
import socket
from collections.abc import Container, Iterable
from pathlib import Path

from holdfast.runtime.control.registry import Registration, find_runs
from holdfast.storage import Clock, Invalid

__all__ = ["check_not_running"]

_logger = logging.getLogger(__name__)


def check_not_running(
    job: str,
    storage: str,
    folders: Iterable[Path],
    clock: Clock,
    *,
    takes_over: bool = False,
    ended: Container[str] = (),
) -> None:
    """Refuse to begin a job anew that a driver of this user on this machine runs.

    Drivers elsewhere are detected by their checkpoints. `storage` is where the job keeps its own. A
    start that restores takes the job over, as after a driver that hangs: that is only logged. The
    endpoints of runs that have `ended` are about to close.

    Raises:
        Invalid: it runs; the error says where, and how to stop it.
    """
    if storage.startswith("memory:"):  # each process has its own storage of this name
        return
    host = socket.gethostname()
    for run in find_runs(folders, host=host, clock=clock).found:
        found = run.registration
        if (found.job, found.storage) == (job, storage) and found.run not in ended:
            if takes_over:
                _log_takeover(found)
                return
            raise Invalid(
                f"job {job!r} runs already",
                where=storage,
                expected="a job that does not run",
                found=f"run {found.run[:8]} in process {found.pid} on {found.host}",
                fix=f"Leave it running, or end it first: holdfast stop {found.run[:8]}, or "
                f"holdfast cancel {found.run[:8]}; or begin this one under another name",
            )


def _log_takeover(found: Registration) -> None:
    _logger.warning(
        "job %r runs already [%s], in process %d on %s: this start takes it over, and that "
        "run ends at its next checkpoint",
        found.job,
        found.storage,
        found.pid,
        found.host,
    )
