"""`holdfast checkpoints`: list checkpoints, trigger one, and delete unneeded objects."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from holdfast.runtime.cli.cleaning import Cleaning
from holdfast.runtime.cli.groups import ListsByDefault
from holdfast.runtime.cli.history import show_history, take_checkpoint
from holdfast.runtime.cli.jobs import JobArgument, JsonOption
from holdfast.runtime.cli.listing import list_checkpoints
from holdfast.runtime.cli.places import find_jobs
from holdfast.runtime.cli.running import look
from holdfast.runtime.cli.stored import OptionsOption
from holdfast.runtime.control import runs_named
from holdfast.storage import Invalid, NotFound
from holdfast.storage.options.durations import duration_ms

__all__ = ["commands"]


commands = typer.Typer(
    help="List the checkpoints of jobs, trigger one, and clean up after them. With a JOB or PATH "
    "and nothing else it is `list`.",
    no_args_is_help=True,
    cls=ListsByDefault,
)

_ABOUT_PATHS = (
    "The root of a storage, with a folder for each job, or the folder of one job: "
    "a path, or a URL such as `s3://bucket/checkpoints/orders`."
)
_Path = Annotated[str, typer.Argument(metavar="PATH", help=_ABOUT_PATHS, show_default=False)]
_Target = Annotated[
    str,
    typer.Argument(
        metavar="JOB|PATH",
        help=f"The name or the run id of a running job; or a place: {_ABOUT_PATHS[0].lower()}"
        f"{_ABOUT_PATHS[1:]} `./orders` is a folder that has the name of a job.",
        show_default=False,
    ),
]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be deleted, and change nothing.")
]
_TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take the jobs over first, and delete all that no completed checkpoint needs. "
        "**Only for jobs that are stopped**: a run that still lives is fenced by this, and ends.",
    ),
]
_Timeout = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="How long to wait for it.")
]


@commands.command("list")
def _list(target: _Target, *, options: OptionsOption = None, as_json: JsonOption = False) -> None:
    """Show the checkpoints of a running job, or those that are completed at a place.

    A running job reports those under way, the last ones that have ended, and why some failed. In a
    place the completed ones are read: a run can be restored from what, by `holdfast run -s` or
    execute(restore=...), is the folder in the last column. What cannot be restored is marked as
    damaged, as far as its `_metadata` and the names and lengths of files tell; `holdfast savepoint
    validate` reads all of one.

    For example:

        holdfast checkpoints orders

        holdfast checkpoints s3://bucket/checkpoints --json

    Exit codes: 0 done; 1 a job could not be read, or there is none; 2 wrong arguments.
    """
    if _is_job(target):
        if options:
            raise Invalid(
                "options are for a storage, and this is a running job",
                where=f"job {target!r}",
                found=" ".join(f"-D{option}" for option in options),
                fix="Leave them out, or name the place of its checkpoints",
            )
        show_history(target, as_json=as_json)
        return
    raise typer.Exit(list_checkpoints(find_jobs(target, options or ()), as_json=as_json))


@commands.command("trigger")
def _trigger(job: JobArgument, *, timeout: _Timeout = "10min", as_json: JsonOption = False) -> None:
    """Have a running job take a checkpoint now, and wait until it is complete.

    It is the job's own, as those that it takes by itself: `retained` says how long it stays.

    For example:

        holdfast checkpoints trigger orders --timeout 2min

    Exit codes: 0 it is complete; 1 it was given up, or not complete in time, or there is no such
    job, or several; 2 wrong arguments.
    """
    timeout_s = duration_ms(timeout, name="--timeout", least_ms=1) / 1000
    take_checkpoint(job, timeout_s=timeout_s, as_json=as_json)


@commands.command("clean")
def _clean(
    path: _Path,
    *,
    options: OptionsOption = None,
    dry_run: _DryRun = False,
    take_over: _TakeOver = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the unneeded objects that killed runs and given-up checkpoints have left.

    It may run beside jobs that run: without --take-over it deletes only files, and unfinished
    writes, of checkpoints older than the newest completed one, to which no completed checkpoint
    refers; nothing that a live run, a checkpoint that is retained, or another job uses. What is
    younger, the run itself cleans up, or its next one, or --take-over.

    Completed checkpoints are never deleted. Stopping it (Ctrl-C) and running it again is safe.

    Exit codes: 0 done, also if there was nothing to do; 1 a job could not be cleaned, or not
    wholly; 2 wrong arguments; 130 stopped by Ctrl-C.
    """
    place = find_jobs(path, options or ())
    cleaning = Cleaning(place, dry_run=dry_run, take_over=take_over, as_json=as_json)
    raise typer.Exit(cleaning.run())


def _is_job(target: str) -> bool:
    """Whether the argument names a running job, and not a place.

    Raises:
        NotFound: it names neither.
    """
    if "://" in target or target.startswith((".", "~", "/")):
        return False
    if runs_named(target, look().found):  # a job's name may contain slashes
        return True
    if "/" in target or os.path.exists(target):  # a name too long is none
        return False
    raise NotFound(
        f"{target!r} is neither a running job of yours nor a folder",
        expected="JOB, as `holdfast list` shows it, or PATH, the root of a storage or the folder "
        "of a job",
    )
