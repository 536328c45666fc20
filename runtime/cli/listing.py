"""`holdfast checkpoints list` and `holdfast savepoint list`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from holdfast.runtime.api.display import bytes_for_people, moment
from holdfast.runtime.cli.output import say, show, show_json, table
from holdfast.runtime.cli.parameters import JsonOption, StorageOptions, argument
from holdfast.runtime.cli.storages import FoundJobs, opener
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    HoldfastError,
    JobStorage,
    NotFound,
    SavepointFolder,
    names,
)
from holdfast.storage.jobs.damage import checkpoint_url, file_sizes, missing_files
from holdfast.storage.registry import whole_url

__all__ = ["list_checkpoints", "list_savepoints"]


def list_checkpoints(found: FoundJobs, *, as_json: bool) -> int:
    """Show the completed checkpoints of each job; returns the exit code."""
    jobs, failures = [], 0
    for job in found.jobs:
        try:
            jobs.append(_described(job))
        except HoldfastError as error:
            failures += 1
            jobs.append({"job": job.job_id, "url": job.url, "error": str(error)})
    if as_json:
        show_json({"path": found.url, "jobs": jobs})
    else:
        for each in jobs:
            _show(each)
    return 1 if failures else 0


def _described(job: JobStorage) -> dict[str, Any]:
    result = job.result()
    ended = None if result is None else {"status": result.status, "ended_ms": result.ended_ms}
    completed, sizes = job.completed(), file_sizes(job)
    found = [_checkpoint(job, number, sizes) for number in completed]
    return {
        "job": job.job_id,
        "url": job.url,
        "result": ended,
        "checkpoints": [each for each in found if each is not None],
    }


def _checkpoint(job: JobStorage, number: int, sizes: Mapping[str, int]) -> dict[str, Any] | None:
    """The row of a checkpoint; None if it has just been deleted."""
    url = checkpoint_url(job, number)
    try:
        metadata = job.read_metadata(number)
        lost = missing_files(metadata, sizes)
        if lost and missing_files(metadata, file_sizes(job)):
            job.load(number)  # raises if it was deleted meanwhile
            return {"checkpoint": number, "url": url, "error": f"checkpoint {number}: {lost}"}
    except NotFound:
        return None
    except Corrupt as error:
        return {"checkpoint": number, "url": url, "error": str(error)}
    own = {name for name in metadata.files() if names.writer_of(name) == number}
    return {
        "checkpoint": number,
        "kind": metadata.kind,
        "trigger": metadata.properties.get("trigger"),
        **_common(metadata),
        "files_of_older": len(metadata.files()) - len(own),
        "epoch": metadata.epoch,
        "url": url,
    }


def list_savepoints(
    directory: Annotated[
        str,
        argument(
            "DIR",
            "The folder that savepoints are in: a path, or a URL such as `s3://bucket/savepoints`.",
        ),
    ],
    *,
    options: StorageOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Show the savepoints in a directory, of all jobs, the oldest first.

    What was never completed, or lacks files, is marked; `holdfast savepoint validate` reads all of
    one. `holdfast run -s` takes the folder in the last column.

    For example:

        holdfast savepoint list s3://bucket/savepoints

        holdfast savepoint list DIR --json | jq -r '.savepoints[-1].url'

    Exit codes: 0 done; 1 there is none, or the storage did not answer; 2 wrong arguments.
    """
    url = whole_url(directory).rstrip("/")
    storage = opener(options, directory)(url)
    sizes: dict[str, dict[str, int]] = {}
    for info in storage.list(""):
        folder, slash, file = info.name.partition("/")
        if slash:
            sizes.setdefault(folder, {})[file] = info.size_bytes
    described = [_savepoint(SavepointFolder(storage, each), sizes[each]) for each in sizes]
    found = [each for each in described if each is not None]
    found.sort(key=lambda each: (each.get("completed_ms", 0), each["url"]))
    if not found:
        raise NotFound(
            "there is no savepoint in this directory",
            where=url,
            expected=f"folders with a file {names.METADATA_NAME}",
            fix="Check the path: it is the directory that contains savepoints",
        )
    if as_json:
        show_json({"path": url, "savepoints": found})
        return
    columns = ("job", "completed (UTC)", "#checkpoint", "#size", "#files", "folder")
    lines = table(f"savepoints in {url}", *columns)
    for each in found:
        if "error" in each:
            lines.add_row("", each["status"], "", "", "", each["url"])
            say(f"{each['status']}: {each['error']}")
            continue
        lines.add_row(
            each["job"],
            moment(each["completed_ms"]),
            str(each["checkpoint"]),
            bytes_for_people(each["size_bytes"]),
            str(each["files"]),
            each["url"],
        )
    show(lines)


def _savepoint(folder: SavepointFolder, sizes: Mapping[str, int]) -> dict[str, Any] | None:
    """The row of a savepoint; None for another folder, such as that of a checkpoint."""
    if names.writer_of(names.within(folder.folder, names.METADATA_NAME)) is not None:
        return None
    if names.METADATA_NAME not in sizes:
        if not folder.folder.startswith("savepoint-"):
            return None
        told = f"{folder.url} has no `_metadata`: it is being written, or was given up"
        return {"url": folder.url, "status": "not complete", "error": told}
    try:
        metadata = folder.read_metadata()
    except HoldfastError as error:
        return {"url": folder.url, "status": "damaged", "error": str(error)}
    lost = missing_files(metadata, sizes)
    if lost:
        return {"url": folder.url, "status": "damaged", "error": f"{folder.url}: {lost}"}
    return {
        "url": folder.url,
        "status": "complete",
        "job": metadata.job_id,
        "checkpoint": metadata.checkpoint_id,
        **_common(metadata),
    }


def _common(metadata: CheckpointMetadata) -> dict[str, Any]:
    """What rows of checkpoints and of savepoints tell."""
    return {
        "triggered_ms": metadata.triggered_ms,
        "completed_ms": metadata.completed_ms,
        "size_bytes": metadata.size_bytes,
        "files": len(metadata.files()),
        "operators": sorted(metadata.operators),
        "sources": sorted(metadata.sources),
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
            say(f"damaged: {each['error']}")
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
