"""`holdfast checkpoints`: see what is there, and clean up what nobody needs."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.runtime.cli.cleaning import Cleaning
from holdfast.runtime.cli.listing import list_checkpoints
from holdfast.runtime.cli.places import find_jobs

__all__ = ["commands"]

commands = typer.Typer(
    help="See the checkpoints of jobs, and clean up after them.", no_args_is_help=True
)

_Path = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="The root of a storage, with a folder for each job, or the folder of one job: "
        "a path, or a URL such as `s3://bucket/checkpoints/orders`.",
        show_default=False,
    ),
]
_Options = Annotated[
    list[str] | None,
    typer.Option(
        "-D",
        metavar="KEY=VALUE",
        help="An option of the storage, such as `-Dendpoint=http://host:9000`; again for more. Who "
        "lists processes sees it: leave keys and passwords to the environment.",
        show_default=False,
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Write one JSON document and no table.")]
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


@commands.command("list")
def _list(path: _Path, *, options: _Options = None, as_json: _Json = False) -> None:
    """Show the completed checkpoints of each job.

    What a run can be restored from, by execute(restore=...), is the folder in the last column.

    Exit codes: 0 done; 1 a job could not be read, or there is none; 2 wrong arguments.
    """
    raise typer.Exit(list_checkpoints(find_jobs(path, options or ()), as_json=as_json))


@commands.command("clean")
def _clean(
    path: _Path,
    *,
    options: _Options = None,
    dry_run: _DryRun = False,
    take_over: _TakeOver = False,
    as_json: _Json = False,
) -> None:
    """Delete what killed runs and given-up checkpoints have left, and nobody needs.

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
