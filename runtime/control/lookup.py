"""Finds the run that a name stands for, and refuses to start a job that runs already."""

from __future__ import annotations

import logging
import socket
from collections.abc import Container, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from holdfast.runtime.control.registry import FoundRun, find_runs
from holdfast.storage import Clock, Invalid, NotFound

__all__ = ["check_not_running", "chosen_run", "runs_named"]

_logger = logging.getLogger(__name__)
# A job's name that is shorter may be mistyped, and begin the id of another job's run by chance.
_SHORTEST_PREFIX = 4


def runs_named(name: str, runs: Sequence[FoundRun]) -> list[FoundRun]:
    """The runs of a job of this name; if there is none, those whose run id begins with the name."""
    named = [each for each in runs if each.registration.job == name]
    if not named and len(name) >= _SHORTEST_PREFIX:
        named = [each for each in runs if each.registration.run.startswith(name)]
    return named


def chosen_run(name: str, runs: Sequence[FoundRun]) -> FoundRun:
    """The one run that a name, or the beginning of a run id, stands for.

    Raises:
        NotFound: it stands for none.
        Invalid: it stands for several; the error lists them.
    """
    named = runs_named(name, runs)
    if len(named) == 1:
        return named[0]
    if named:
        raise Invalid(
            f"{len(named)} running jobs match {name!r}",
            expected="one",
            found="; ".join(
                f"run {each.registration.run}, process {each.registration.pid}, "
                f"checkpoints in {each.registration.storage}"
                for each in named
            ),
            fix="Name the run, by as many characters as make it unique",
        )
    jobs = sorted({each.registration.job for each in runs})
    near = get_close_matches(name, jobs) or jobs
    raise NotFound(
        f"no job {name!r} of yours runs on this machine",
        found=f"running: {', '.join(map(repr, near))}" if near else "no running job",
        fix="`holdfast list` shows running jobs, but not those that were started with their "
        "endpoint off, by another user, or on another machine",
    )


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
                _logger.warning(
                    "job %r runs already [%s], in process %d on %s: this start takes it over, and "
                    "that run ends at its next checkpoint",
                    found.job,
                    found.storage,
                    found.pid,
                    found.host,
                )
                return
            raise Invalid(
                f"job {job!r} runs already",
                where=storage,
                expected="a job that does not run",
                found=f"run {found.run[:8]} in process {found.pid} on {found.host}",
                fix=f"Leave it running, or end it first: holdfast stop {found.run[:8]}, or "
                f"holdfast cancel {found.run[:8]}; or begin this one under another name",
            )
