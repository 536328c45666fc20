"""The command `holdfast`: its commands, and groups of them."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.runtime.cli.checkpoints import commands
from holdfast.runtime.cli.jobs import cancel_job, list_jobs
from holdfast.runtime.cli.output import show
from holdfast.runtime.cli.registered import list_registered
from holdfast.runtime.cli.run import RunCommand, run_app
from holdfast.runtime.cli.savepoints import commands as savepoint_commands
from holdfast.runtime.cli.savepoints import stop_job
from holdfast.storage.distribution import holdfast_version

__all__ = ["application"]

application = typer.Typer(
    name="holdfast",
    help="State that holds fast in a stream: run and manage jobs and their checkpoints.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
application.command("run", cls=RunCommand, context_settings={"allow_interspersed_args": False})(
    run_app
)
application.command("list")(list_jobs)
application.command("cancel")(cancel_job)
application.command("stop")(stop_job)
application.add_typer(savepoint_commands, name="savepoint")
application.add_typer(commands, name="checkpoints")
application.command("backends")(list_registered)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        show(f"holdfast {holdfast_version()}")
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option(
        "--version", help="Show the version of Holdfast.", is_eager=True, callback=_show_version
    ),
]


@application.callback()
def _root(*, version: _Version = False) -> None:
    """Run and manage jobs and their checkpoints. Each command has its own --help.

    Commands that name a JOB talk to its driver, which must run on this machine and as the same
    user. Results go to stdout, all else to stderr; with --json the output is one document, also of
    an error.

    Exit codes of all: 0 done; 1 not done, and why; 2 wrong arguments; 130 stopped by Ctrl-C, 143
    by SIGTERM.
    """
