"""Which run somebody means who names a job."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from holdfast.runtime.control.registry import FoundRun
from holdfast.storage import Invalid, NotFound

__all__ = ["chosen_run", "runs_named"]

_SHORTEST_PREFIX = 4


def runs_named(name: str, runs: Sequence[FoundRun]) -> list[FoundRun]:
    """Those of a job of this name; if there is none, the one whose run id begins so."""
    named = [each for each in runs if each.registration.job == name]
    if not named and len(name) >= _SHORTEST_PREFIX:
        named = [each for each in runs if each.registration.run.startswith(name)]
    return named


def chosen_run(name: str, runs: Sequence[FoundRun]) -> FoundRun:
    """The one run that a name, or the beginning of a run id, stands for.

    Raises:
        NotFound: none.
        Invalid: several; lists them.
    """
    named = runs_named(name, runs)
    if len(named) == 1:
        return named[0]
    if named:
        raise Invalid(
            f"{len(named)} running jobs answer to {name!r}",
            expected="one",
            found="; ".join(
                f"run {each.registration.run}, process {each.registration.pid}, "
                f"checkpoints in {each.registration.storage}"
                for each in named
            ),
            fix="Name the run, or as much of it as tells it from the others",
        )
    jobs = sorted({each.registration.job for each in runs})
    near = get_close_matches(name, jobs) or jobs
    raise NotFound(
        f"no job {name!r} of yours runs on this machine",
        found=f"running: {', '.join(map(repr, near))}" if near else "no running job",
        fix="`holdfast list` shows those that do; a job that was started with its endpoint off, "
        "by another user, or on another machine is not among them",
    )
