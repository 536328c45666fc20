"""What `holdfast checkpoints list` shows."""

from __future__ import annotations

from typing import Any

from holdfast.runtime.cli.output import say, show, show_json, table
from holdfast.runtime.cli.places import Place
from holdfast.runtime.readable import bytes_for_people, moment
from holdfast.storage import Corrupt, HoldfastError, JobStorage, NotFound, names

__all__ = ["list_checkpoints"]


def list_checkpoints(place: Place, *, as_json: bool) -> int:
    """Show what each job has completed; answers the exit code."""
    jobs, failures = [], 0
    for job in place.jobs:
        try:
            jobs.append(_described(job))
        except HoldfastError as error:
            failures += 1
            jobs.append({"job": job.job_id, "url": job.url, "error": str(error)})
    if as_json:
        show_json({"path": place.url, "jobs": jobs})
    else:
        for each in jobs:
            _show(each)
    return 1 if failures else 0


def _described(job: JobStorage) -> dict[str, Any]:
    result = job.result()
    ended = None if result is None else {"status": result.status, "ended_ms": result.ended_ms}
    found = [_checkpoint(job, number) for number in job.completed()]
    return {
        "job": job.job_id,
        "url": job.url,
        "result": ended,
        "checkpoints": [each for each in found if each is not None],
    }


def _checkpoint(job: JobStorage, number: int) -> dict[str, Any] | None:
    """One line; None when it has just been deleted."""
    url = f"{job.url}/{names.checkpoint_folder(number)}"
    try:
        metadata = job.read_metadata(number)
    except NotFound:
        return None
    except Corrupt as error:
        return {"checkpoint": number, "url": url, "error": str(error)}
    own = {name for name in metadata.files() if names.writer_of(name) == number}
    return {
        "checkpoint": number,
        "kind": metadata.kind,
        "trigger": metadata.properties.get("trigger"),
        "triggered_ms": metadata.triggered_ms,
        "completed_ms": metadata.completed_ms,
        "size_bytes": metadata.size_bytes,
        "files": len(metadata.files()),
        "files_of_older": len(metadata.files()) - len(own),
        "operators": sorted(metadata.operators),
        "sources": sorted(metadata.sources),
        "epoch": metadata.epoch,
        "url": url,
    }


def _show(job: dict[str, Any]) -> None:
    if "error" in job:
        say(f"job {job['job']!r} cannot be read: {job['error']}")
        return
    if job["result"] is not None:
        ended = job["result"]
        show(f"job {job['job']!r} was {ended['status']} at {moment(ended['ended_ms'])} UTC")
    if not job["checkpoints"]:
        show(f"job {job['job']!r} has no completed checkpoint")
        return
    columns = ("#checkpoint", "completed (UTC)", "trigger", "#size", "#files", "folder")
    lines = table(f"job {job['job']!r}", *columns)
    for each in job["checkpoints"]:
        if "error" in each:
            lines.add_row(str(each["checkpoint"]), "damaged", "", "", "", each["url"])
            say(each["error"])
            continue
        lines.add_row(
            str(each["checkpoint"]),
            moment(each["completed_ms"]),
            each["trigger"] or each["kind"],
            bytes_for_people(each["size_bytes"]),
            str(each["files"]),
            each["url"],
        )
    show(lines)
