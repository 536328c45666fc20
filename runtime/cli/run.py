"""`holdfast run`: run a program that starts a job, with options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from holdfast.runtime.cli.parameters import argument, option
from holdfast.runtime.cli.program import run_program
from holdfast.storage import Invalid
from holdfast.storage.options.table import COMMAND_LINE, key_value_pairs
from holdfast.storage.registry import whole_url

if TYPE_CHECKING:
    from holdfast.runtime.options.command_line import CommandLine

__all__ = ["RunCommand", "run_app"]

_LATEST = "latest"
_PATH = "execution.state-recovery.path"
_CLAIM_MODE = "execution.state-recovery.claim-mode"
_IGNORE = "execution.state-recovery.ignore-unclaimed-state"

_App = Annotated[
    Path, argument("APP", "A Python program that makes a StreamEnvironment and executes a job.")
]
_Arguments = Annotated[list[str] | None, argument("ARG", "The program's own arguments.")]
_Restore = Annotated[
    str | None,
    option(
        "-s",
        "--from-savepoint",
        metavar="PATH",
        about="The folder of a checkpoint or savepoint to restore the job from, or `latest`. It "
        "precedes restore=... of the program.",
    ),
]
_ClaimMode = Annotated[
    str | None,
    option(
        "--claim-mode",
        metavar="NO_CLAIM|CLAIM",
        about="Who owns the checkpoint of another job that is restored.",
    ),
]
_AllowNonRestored = Annotated[
    bool,
    typer.Option(
        "-n",
        "--allow-non-restored-state",
        help="Drop the state of operators that the job does not have any more.",
    ),
]
_Options = Annotated[
    list[str] | None,
    option(
        "-D",
        metavar="KEY=VALUE",
        about="An option of the job, under Flink's name; repeatable. Other users can see it in the "
        "list of processes: pass keys and passwords by the environment.",
    ),
]
_Config = Annotated[
    str | None,
    option(
        "--config",
        metavar="FILE",
        about="A file of options: YAML, as Flink's config.yaml. Without it the one that the "
        "environment variable HOLDFAST_CONF names, if it is set.",
    ),
]


class RunCommand(TyperCommand):
    """The command, whose help lists the options of -D."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from holdfast.runtime.options.table import OPTIONS  # noqa: PLC0415 - as in run_app

        rows = (f"- `{each.key}`: {each.codec.expected}" for each in OPTIONS.options)
        self.epilog = "\n\n".join(("Options of -D; docs/options.md says what they do:", "", *rows))
        super().format_help(ctx, formatter)


def run_app(
    app: _App,
    arguments: _Arguments = None,
    *,
    restore: _Restore = None,
    claim_mode: _ClaimMode = None,
    allow_non_restored: _AllowNonRestored = False,
    config: _Config = None,
    options: _Options = None,
) -> None:
    """Run a Python program that starts a job, as python APP.py would, with options.

    Options set arguments that the program leaves out of its StreamEnvironment and CheckpointConfig.
    Those of -D precede those of --config, and they those of the session (spark.holdfast.*). One
    that does not exist is refused, and so is a -D that contradicts the program. All are listed
    below.

    -s is about this one start and precedes what the program passes, such as restore="latest".

    For example:

        holdfast run orders.py

        holdfast run -Dstate.backend.type=rocksdb -Dparallelism.default=8 orders.py --day 5

        holdfast run --config production.yaml -Dparallelism.default=8 orders.py

        holdfast run -s s3://bucket/checkpoints/orders/chk-00000000000000000042 orders.py

    Exit codes: those of the program; 1 if it raised, if an option is refused, or if none was used,
    since it made no environment; 2 wrong arguments; 130 stopped by Ctrl-C.
    """
    # Options import backends, without which other commands start a second faster.
    from holdfast.runtime.options.command_line import CommandLine, running_with  # noqa: PLC0415
    from holdfast.runtime.options.config_file import config_settings  # noqa: PLC0415

    given = key_value_pairs(options or ())
    named = {
        _PATH: restore if restore in (None, _LATEST) else whole_url(restore),
        _CLAIM_MODE: claim_mode,
        _IGNORE: "true" if allow_non_restored else None,
    }
    for key, text in named.items():
        if text is not None and key in given:
            raise Invalid(
                f"option {key!r} is given twice", where=COMMAND_LINE, found=f"-D{key}={given[key]}"
            )
    given |= {key: text for key, text in named.items() if text is not None}
    with running_with(CommandLine(given, config_settings(config))) as line:
        run_program(app, arguments or ())
        _check_used(line, given, config, app)


def _check_used(line: CommandLine, given: dict[str, str], config: str | None, app: Path) -> None:
    """Refuse options that had no effect."""
    named = [f"{key}={text}" for key, text in given.items()]
    named += [f"--config {config}"] if config else []
    if named and not line.has_environment:
        raise Invalid(
            "the program has ended, and made no StreamEnvironment: the options had no effect",
            where=str(app),
            found=", ".join(named),
        )
    if line.restore is not None and not line.has_job:
        raise Invalid(
            "the program has ended, and started no job: nothing was restored",
            where=str(app),
            found=line.restore,
        )
