"""Finds the running jobs of this user."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.runtime.cli.output import say
from holdfast.runtime.control.folder import run_folders
from holdfast.runtime.control.lookup import chosen_run
from holdfast.runtime.control.registry import FoundRun, Runs, find_runs
from holdfast.storage import SystemClock

__all__ = ["going_on", "look", "one_run"]


def look() -> Runs:
    """The running jobs, and errors of folders; removes the files of drivers that were killed."""
    return find_runs(run_folders(), host=socket.gethostname(), clock=SystemClock())


def one_run(job: str) -> FoundRun:
    """The run that a job's name, or the beginning of a run id, stands for.

    Raises:
        NotFound: it stands for none.
        Invalid: it stands for several.
    """
    runs = look()
    for trouble in runs.troubles:
        say(f"passed over: {trouble}")
    return chosen_run(job, runs.found)


@contextmanager
def going_on(what: str) -> Iterator[None]:
    """On Ctrl-C say that `what` goes on: to stop waiting does not undo it."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"{what} all the same; `holdfast list` and `holdfast checkpoints` show how it goes")
        raise
