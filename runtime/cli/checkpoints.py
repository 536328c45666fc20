"""`holdfast checkpoints`: list checkpoints, trigger one, and delete unneeded objects."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec
import typer

from holdfast.runtime.api.display import bytes_for_people, moment
from holdfast.runtime.cli.cleaning import Cleaning
from holdfast.runtime.cli.groups import ListsByDefault
from holdfast.runtime.cli.listing import list_checkpoints
from holdfast.runtime.cli.output import show, show_json, table
from holdfast.runtime.cli.parameters import JobArgument, JsonOption, StorageOptions, argument
from holdfast.runtime.cli.running import look, one_run
from holdfast.runtime.cli.storages import find_jobs
from holdfast.runtime.control.client import JobClient
from holdfast.runtime.control.lookup import runs_named
from holdfast.runtime.control.messages import CheckpointReport, JobReport
from holdfast.storage import Invalid, NotFound, SystemClock, Unavailable
from holdfast.storage.options.durations import duration_ms

__all__ = ["commands"]

_LOOK_EVERY_S = 0.1
_HAVE_ENDED = ("completed", "aborted")
_PARTS = {
    "#start delay": "start_delay_ms",
    "#alignment": "alignment_ms",
    "#sync": "sync_ms",
    "#async": "async_ms",
}
"""Columns for what took time in slots."""

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
_Path = Annotated[str, argument("PATH", _ABOUT_PATHS)]
_Target = Annotated[
    str,
    argument(
        "JOB|PATH",
        f"The name or the run id of a running job; or a place: {_ABOUT_PATHS[0].lower()}"
        f"{_ABOUT_PATHS[1:]} `./orders` is a folder that has the name of a job.",
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
def _list(target: _Target, *, options: StorageOptions = None, as_json: JsonOption = False) -> None:
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
        _show_history(JobClient(one_run(target)).describe(), as_json=as_json)
        return
    raise typer.Exit(list_checkpoints(find_jobs(target, options), as_json=as_json))


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
    client = JobClient(one_run(job))
    before = client.trigger_checkpoint()
    taken = _next_ended(client, before, timeout_s)
    if taken.status != "completed":
        raise Unavailable(
            f"checkpoint {taken.checkpoint} was given up",
            where=f"job {before.job!r}",
            found=taken.reason,
        )
    if as_json:
        show_json({"job": before.job, "run": before.run, "checkpoint": msgspec.to_builtins(taken)})
    else:
        show(f"checkpoint {taken.checkpoint} is complete: {taken.folder}")


@commands.command("clean")
def _clean(
    path: _Path,
    *,
    options: StorageOptions = None,
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
    found = find_jobs(path, options)
    cleaning = Cleaning(found, dry_run=dry_run, take_over=take_over, as_json=as_json)
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


def _show_history(report: JobReport, *, as_json: bool) -> None:
    if as_json:
        plain = msgspec.to_builtins(report)
        kept = ["job", "run", "status", "storage", "counts", "checkpoints"]
        kept += ["last_completed", "last_savepoint"]
        show_json({name: plain[name] for name in kept})
        return
    name, counts = f"job {report.job!r}", report.counts
    if not report.checkpoints:
        show(f"{name} has begun no checkpoint in this run")
    else:
        show(_lines(report))
        others = f"{counts.failed} failed, {counts.aborted} given up"
        show(f"{counts.begun} begun in this run, {counts.completed} completed, {others}")
    if report.last_completed is not None:
        show(f"the newest: {report.last_completed.folder}")
    if report.last_savepoint is not None:
        show(f"the last savepoint: {report.last_savepoint.folder}")
    show(f"what is stored: holdfast checkpoints {report.storage}")


def _next_ended(client: JobClient, before: JobReport, timeout_s: float) -> CheckpointReport:
    """Wait for the checkpoint that was triggered after this report, or another one that does."""
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + timeout_s
    last = max((each.checkpoint for each in before.checkpoints), default=0)
    while (taken := _ended_since(client.describe(), last)) is None:
        if clock.monotonic_s() > deadline_s:
            raise Unavailable(
                "no checkpoint is complete yet",
                where=f"job {before.job!r}",
                expected=f"one within {timeout_s:g} s",
                fix="It may still be completed: `holdfast checkpoints` shows it then",
            )
        clock.sleep_s(_LOOK_EVERY_S)
    return taken


def _ended_since(report: JobReport, last: int) -> CheckpointReport | None:
    """The first checkpoint that has begun and ended since: a completed one, if there is one.

    Savepoints are passed over: they come from other requests.
    """
    ended = [
        each
        for each in report.checkpoints
        if each.checkpoint > last and each.status in _HAVE_ENDED and not each.is_savepoint
    ]
    ended.sort(key=lambda each: (each.status != "completed", each.checkpoint))
    return ended[0] if ended else None


def _lines(report: JobReport) -> Any:
    columns = ("#checkpoint", "triggered (UTC)", "trigger", "status", "#took", *_PARTS)
    columns += ("#size", "#written")
    lines = table(f"job {report.job!r}, {report.status}", *columns, "why")
    for each in report.checkpoints:
        took = (
            "" if each.ended_ms is None else f"{(each.ended_ms - each.triggered_ms) / 1000:.3f} s"
        )
        lines.add_row(
            str(each.checkpoint),
            moment(each.triggered_ms),
            each.trigger,
            each.status,
            took,
            *(_longest(each, part) for part in _PARTS.values()),
            bytes_for_people(each.size_bytes),
            bytes_for_people(each.written_bytes),
            each.reason.partition("\n")[0],
        )
    return lines


def _longest(report: CheckpointReport, part: str) -> str:
    """The longest of all slots, in seconds; empty if none has answered."""
    times = [getattr(each, part) for each in report.slots.values()]
    return f"{max(times) / 1000:.3f} s" if times else ""
