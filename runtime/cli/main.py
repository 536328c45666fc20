"""Where the command `holdfast` begins: its groups of commands."""

from __future__ import annotations

import sys

import typer

from holdfast.runtime.cli.checkpoints import commands
from holdfast.runtime.cli.output import INTERRUPTED, say
from holdfast.storage import HoldfastError

__all__ = ["application", "main"]

application = typer.Typer(
    name="holdfast",
    help="State that holds fast in a stream: look after the checkpoints of jobs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
application.add_typer(commands, name="checkpoints")


@application.callback()
def _root() -> None:
    """Commands are in groups; each says more of itself with --help."""


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its code."""
    try:
        application()
    except HoldfastError as error:
        say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(INTERRUPTED)
