"""Finds the run that a name stands for."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from holdfast.runtime.control.registry import FoundRun
from holdfast.storage import Invalid, NotFound

__all__ = ["chosen_run", "runs_named"]

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
