"""`holdfast savepoint` and `holdfast stop`: savepoints of running jobs, and stored ones."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.runtime.cli.convert import convert_snapshot
from holdfast.runtime.cli.groups import TakesByDefault
from holdfast.runtime.cli.listing import list_savepoints
from holdfast.runtime.cli.output import show, show_json
from holdfast.runtime.cli.parameters import (
    FormatOption,
    JobArgument,
    JsonOption,
    argument,
    option,
)
from holdfast.runtime.cli.running import going_on, one_run
from holdfast.runtime.cli.stored import (
    diff_snapshots,
    inspect_snapshot,
    show_state,
    validate_snapshot,
)
from holdfast.runtime.control.client import JobClient
from holdfast.storage.registry import whole_url

__all__ = ["commands", "stop_job"]

commands = typer.Typer(
    help="Take a savepoint of a running job; inspect stored ones, and convert them. With a "
    "JOB and nothing else it is `take`.",
    no_args_is_help=True,
    cls=TakesByDefault,
)

_DEFAULT = "execution.checkpointing.savepoint-dir of the job"


@commands.callback()
def _group() -> None:
    """Take a savepoint of a running job; inspect stored ones, and convert them.

    With a JOB and nothing else it is `take`. For a job that has the name of a command write
    `holdfast savepoint take diff`.
    """


@commands.command("take")
def _take(
    job: JobArgument,
    directory: Annotated[
        str | None,
        argument("DIR", f"Where: a path or a URL. By default {_DEFAULT}."),
    ] = None,
    *,
    form: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a savepoint of a running job, which continues, and show its folder.

    The folder is self-contained: it may be moved, and is never deleted. The job is restored
    from it by `holdfast run -s`. If it fails, nothing is left of it.

    For example:

        holdfast savepoint orders s3://bucket/savepoints

        holdfast savepoint orders --json | jq -r .savepoint

    Exit codes: 0 it is complete; 1 it failed, or there is no such job, or several, or its driver
    does not answer; 2 wrong arguments; 130 you did not wait for it, and it is taken all the same.
    """
    run = one_run(job)
    name = run.registration.job
    with going_on(f"the savepoint of job {name!r} is being taken"):
        taken = JobClient(run).take_savepoint(_whole(directory), form)
    if as_json:
        show_json({"job": name, "run": run.registration.run, "savepoint": taken.path})
    else:
        show(f"a savepoint of job {name!r} is complete: {taken.path}")


commands.command("list")(list_savepoints)
commands.command("inspect")(inspect_snapshot)
commands.command("show")(show_state)
commands.command("diff")(diff_snapshots)
commands.command("validate")(validate_snapshot)
commands.command("convert")(convert_snapshot)


def stop_job(
    job: JobArgument,
    *,
    directory: Annotated[
        str | None,
        option(
            "-p",
            "--savepoint-path",
            metavar="DIR",
            about=f"Where the savepoint goes: a path or a URL. By default {_DEFAULT}.",
        ),
    ] = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain",
            help="Bring event time to its end first, so that all timers fire: "
            "only if the job is not to be continued from the savepoint.",
        ),
    ] = False,
    form: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a running job with a savepoint, and wait until it has ended.

    Sources stop where they are, and sinks commit all that they wrote before. `holdfast run -s` goes
    on from the savepoint. If it cannot be completed, the job runs on.

    For example:

        holdfast stop --savepoint-path s3://bucket/savepoints orders

        holdfast stop --drain -p /var/savepoints orders

    Exit codes: 0 the job has finished; 1 it has not, or there is no such job, or several, or its
    driver does not answer; 2 wrong arguments; 130 you did not wait for it, and it stops all the
    same.
    """
    run = one_run(job)
    name = run.registration.job
    with going_on(f"job {name!r} is being stopped"):
        taken = JobClient(run).stop_with_savepoint(_whole(directory), form, drain=drain)
    if as_json:
        document = {"job": name, "run": run.registration.run, "status": taken.status}
        show_json(document | {"savepoint": taken.path})
    else:
        show(f"job {name!r} has {taken.status}, with a savepoint: {taken.path}")


def _whole(directory: str | None) -> str | None:
    return None if directory is None else whole_url(directory)
