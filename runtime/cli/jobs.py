"""`holdfast list` and `holdfast cancel`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from holdfast.runtime.api.display import moment
from holdfast.runtime.cli.output import say, show, show_json, table
from holdfast.runtime.cli.parameters import FormatOption, JsonOption, argument
from holdfast.runtime.cli.running import going_on, look, one_run
from holdfast.runtime.control.client import JobClient
from holdfast.runtime.control.registry import FoundRun
from holdfast.storage import HoldfastError, NotFound
from holdfast.storage.registry import whole_url

__all__ = ["cancel_job", "list_jobs"]

_LIST_TIMEOUT_S = 3.0
"""Timeout of each driver, so that one that is stuck does not hold up the list."""


def list_jobs(*, as_json: JsonOption = False) -> None:
    """Show your jobs that run on this machine, and their state.

    Each driver is asked. RUN distinguishes jobs of one name; other commands accept it in place of
    the name.

    For example:

        holdfast list

        holdfast list --json | jq '.jobs[] | select(.status != "running")'

    Exit codes: 0 done, also if no job runs; 1 a driver does not answer, or a folder of running jobs
    cannot be trusted; 2 wrong arguments.
    """
    runs = look()
    jobs = [job for job in map(_described, runs.found) if job is not None]
    troubles = [str(trouble) for trouble in runs.troubles]
    if as_json:
        show_json({"jobs": jobs, "troubles": troubles})
    else:
        _show(jobs)
        for trouble in troubles:
            say(trouble)
    if troubles or any("error" in job for job in jobs):
        raise typer.Exit(1)


def cancel_job(
    names: Annotated[
        list[str],
        argument(
            "[DIR] JOB",
            "The job, as `holdfast list` shows it. With -s before it the directory for the "
            "savepoint, unless it goes where the job's savepoints go by default.",
        ),
    ],
    *,
    with_savepoint: Annotated[
        bool, typer.Option("-s", "--with-savepoint", help="Take a savepoint first, in DIR.")
    ] = False,
    form: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a running job, and wait until it has ended.

    It stops without a last checkpoint. By default its checkpoints are deleted then, as Flink does;
    CheckpointConfig(on_cancel="retain") in the program keeps them, to go on from.

    With -s a savepoint is taken first, to go on from; if that fails, the job runs on. What sinks
    wrote since the last checkpoint is not committed before the savepoint is restored: `holdfast
    stop` does all at once.

    Ctrl-C stops the waiting and not the cancelling.

    For example:

        holdfast cancel orders

        holdfast cancel -s s3://bucket/savepoints orders

        holdfast cancel 3f9c

    Exit codes: 0 it was cancelled; 1 there is no such job, or several, or it ended in another way
    first, or the savepoint failed, or its driver does not answer; 2 wrong arguments; 130 you did
    not wait for the end.
    """
    *directories, job = names
    if len(directories) > with_savepoint:
        raise typer.BadParameter("a directory needs -s, and there is one job at most")
    if form is not None and not with_savepoint:
        raise typer.BadParameter("--format is for a savepoint: it needs -s")
    run = one_run(job)
    client, name = JobClient(run), run.registration.job
    document = {"job": name, "run": run.registration.run}
    with going_on(f"job {name!r} is being cancelled"):
        if with_savepoint:
            directory = whole_url(directories[0]) if directories else None
            taken = client.cancel_with_savepoint(directory, form)
            status, document["savepoint"] = taken.status, taken.path
        else:
            status = client.cancel().status
    if as_json:
        show_json(document | {"status": status})
    else:
        how = "was cancelled" if status == "cancelled" else f"had {status} before"
        show(f"job {name!r} {how}")
        if with_savepoint:
            show(f"its savepoint: {document['savepoint']}")
    if status != "cancelled":
        raise typer.Exit(1)


def _described(run: FoundRun) -> dict[str, Any] | None:
    """The driver's report; None if it has just ended."""
    try:
        report = JobClient(run, silence_s=_LIST_TIMEOUT_S).describe()
    except NotFound:
        return None
    except HoldfastError as error:
        known: dict[str, Any] = msgspec.to_builtins(run.registration)
        del known["token"], known["version"]
        return known | {"status": None, "error": str(error)}
    return dict(msgspec.to_builtins(report))


def _show(jobs: list[dict[str, Any]]) -> None:
    if not jobs:
        show("no job of yours runs on this machine")
        return
    columns = ("run", "job", "status", "started (UTC)", "#attempt", "#checkpoints", "#process")
    lines = table("", *columns, "checkpoints in")
    for job in jobs:
        is_known = "error" not in job
        lines.add_row(
            job["run"][:8],
            job["job"],
            job["status"] or "no answer",
            moment(job["started_ms"]),
            str(job["attempts"]) if is_known else "",
            str(job["counts"]["completed"]) if is_known else "",
            str(job["pid"]),
            job["storage"],
        )
    show(lines)
    for job in jobs:
        trouble = job.get("error") or job.get("trouble")
        if trouble:
            say(f"job {job['job']!r}: {trouble}")
