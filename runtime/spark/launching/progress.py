"""What a terminal shows while a job runs."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from holdfast.runtime.api.errors import NotEnded
from holdfast.runtime.driver.handle import JobHandle

__all__ = ["follow"]

_REFRESH_S = 0.5


def follow(job: JobHandle) -> None:
    """Wait for the end of a job. On a terminal, show how far it is; the log says the rest.

    Raises:
        JobFailed: the job has failed.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        job.result()
        return
    with Status("", console=console) as status:
        while True:
            status.update(_line(job))
            try:
                job.result(_REFRESH_S)
            except NotEnded:
                continue
            return


def _line(job: JobHandle) -> str:
    metrics: Any = job.metrics()
    rows = sum(source["rows"] for source in metrics["sources"].values())
    read = sum(int(slot.get("rows", 0)) for slot in metrics["slots"].values())
    completed = job.checkpoints().counts.completed
    line = f"{job.job_id} is {job.status.value}: {rows:,} rows in, {read:,} processed"
    line += f", {completed} checkpoints"
    if metrics["attempts"] > 1:
        line += f", attempt {metrics['attempts']}"
    return escape(f"{line}; {job.trouble}" if job.trouble else line)
