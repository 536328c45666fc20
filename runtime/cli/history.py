"""`holdfast checkpoints` for a running job: show its checkpoints, and trigger one."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.runtime.api.display import bytes_for_people, moment
from holdfast.runtime.cli.output import show, show_json, table
from holdfast.runtime.cli.running import one_run
from holdfast.runtime.control import CheckpointReport, JobClient, JobReport
from holdfast.storage import Clock, SystemClock, Unavailable

__all__ = ["show_history", "take_checkpoint"]

_LOOK_EVERY_S = 0.1
_HAVE_ENDED = ("completed", "aborted")


def show_history(job: str, *, as_json: bool) -> None:
    """Show the checkpoints of a running job, as its driver reports them.

    Raises:
        HoldfastError: there is not one such job, or its driver does not answer.
    """
    report = JobClient(one_run(job)).describe()
    if as_json:
        show_json(_document(report))
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


def take_checkpoint(
    job: str, *, timeout_s: float, as_json: bool, clock: Clock | None = None
) -> None:
    """Trigger a checkpoint of a running job, wait until it is complete, and show it.

    Raises:
        HoldfastError: there is not one such job, it does not run at the moment, or its driver does
            not answer.
        Unavailable: the checkpoint was given up, or is not complete in time.
    """
    clock = clock or SystemClock()
    client = JobClient(one_run(job))
    deadline_s = clock.monotonic_s() + timeout_s
    before = client.trigger_checkpoint()
    where = f"job {before.job!r}"
    last = max((each.checkpoint for each in before.checkpoints), default=0)
    while True:
        taken = _ended_since(client.describe(), last)
        if taken is not None:
            break
        if clock.monotonic_s() > deadline_s:
            raise Unavailable(
                "no checkpoint is complete yet",
                where=where,
                expected=f"one within {timeout_s:g} s",
                fix="It may still be completed: `holdfast checkpoints` shows it then",
            )
        clock.sleep_s(_LOOK_EVERY_S)
    if taken.status != "completed":
        raise Unavailable(
            f"checkpoint {taken.checkpoint} was given up", where=where, found=taken.reason
        )
    if as_json:
        show_json({"job": before.job, "run": before.run, "checkpoint": msgspec.to_builtins(taken)})
    else:
        show(f"checkpoint {taken.checkpoint} is complete: {taken.folder}")


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


def _document(report: JobReport) -> dict[str, Any]:
    plain = msgspec.to_builtins(report)
    kept = ["job", "run", "status", "storage", "counts", "checkpoints"]
    kept += ["last_completed", "last_savepoint"]
    return {name: plain[name] for name in kept}


def _lines(report: JobReport) -> Any:
    columns = ("#checkpoint", "triggered (UTC)", "trigger", "status", "#took", "#size", "#written")
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
            bytes_for_people(each.size_bytes),
            bytes_for_people(each.written_bytes),
            each.reason.partition("\n")[0],
        )
    return lines
