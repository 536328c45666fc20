"""Whether a job runs already when it is started again."""

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

    Other drivers are found out by their checkpoints. `storage` is where the job keeps its own. Who
    restores takes the job over, as after a driver that hangs: that is only said. Of runs that have
    `ended` the endpoint is about to close.

    Raises:
        Invalid: it runs; says where, and how it is stopped.
    """
    if storage.startswith("memory:"):  # another process has another place of this name
        return
    host = socket.gethostname()
    for run in find_runs(folders, host=host, clock=clock).found:
        found = run.registration
        if (found.job, found.storage) == (job, storage) and found.run not in ended:
            if takes_over:
                _tell(found)
                return
            raise Invalid(
                f"job {job!r} runs already",
                where=storage,
                expected="a job that does not run",
                found=f"run {found.run[:8]} in process {found.pid} on {found.host}",
                fix=f"Leave it running, or end it first: holdfast stop {found.run[:8]}, or "
                f"holdfast cancel {found.run[:8]}; or begin this one under another name",
            )


def _tell(found: Registration) -> None:
    _logger.warning(
        "job %r runs already [%s], in process %d on %s: this start takes it over, and that "
        "run ends at its next checkpoint",
        found.job,
        found.storage,
        found.pid,
        found.host,
    )
