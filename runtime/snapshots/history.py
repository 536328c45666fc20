"""The checkpoints of jobs as a table: what a running job tells of them, or what is stored."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.runtime.control import (
    CheckpointReport,
    JobClient,
    JobReport,
    chosen_run,
    find_runs,
    run_folders,
    runs_named,
)
from holdfast.storage import (
    CheckpointMetadata,
    JobStorage,
    NotFound,
    SystemClock,
    load_storage,
    names,
)
from holdfast.storage.jobs.cleaning import jobs_at
from holdfast.storage.registry import OpenStorage, whole_url

__all__ = ["HISTORY", "checkpoint_history", "history_of"]

_MOMENT = pa.timestamp("ms", "UTC")
HISTORY = pa.schema(
    [
        ("job", pa.string()),
        ("checkpoint", pa.int64()),
        ("kind", pa.string()),
        ("status", pa.string()),
        ("trigger", pa.string()),
        ("triggered", _MOMENT),
        ("ended", _MOMENT),
        ("duration_ms", pa.int64()),
        ("size_bytes", pa.int64()),
        ("written_bytes", pa.int64()),
        ("operators", pa.map_(pa.string(), pa.int64())),
        ("path", pa.string()),
        ("reason", pa.string()),
    ]
)
"""The columns. `operators` has the bytes of each operator's state, by uid; null where that is not
known: of a running job, and of what was not completed."""


def checkpoint_history(
    target: str, *, storage_options: Mapping[str, Any] | None = None
) -> pa.Table:
    """The checkpoints of a job that runs here, by its name or run id, or of all jobs at a place.

    A running job is asked: it tells of those under way and of the last that have ended, with the
    reasons of those that failed. A place is read: what is completed there, with what each operator
    has. A place is a path with a slash in it, or a URL: the root of a storage, or a job's folder.

    Raises:
        NotFound: there is neither.
        Invalid: several jobs are called so, or the storage cannot be opened.
        Corrupt: the metadata of a checkpoint is damaged.
        Unavailable: the driver, or the storage, does not answer.
    """
    return history_of(target, partial(load_storage, **dict(storage_options or {})))


def history_of(target: str, open_storage: OpenStorage) -> pa.Table:
    """The same, where storages are opened so."""
    report = None if _is_place(target) else _asked(target)
    if report is not None:
        rows = [_reported(report.job, each) for each in report.checkpoints]
    else:
        url = whole_url(target).rstrip("/") or "/"
        rows = [row for job in jobs_at(url, open_storage) for row in _stored(job)]
    return pa.Table.from_pylist(rows, HISTORY)


def _is_place(target: str) -> bool:
    return "/" in target or target.startswith((".", "~"))


def _asked(name: str) -> JobReport | None:
    """What a running job tells; None if it is the name of a folder, and of no such job."""
    runs = find_runs(run_folders(), host=socket.gethostname(), clock=SystemClock()).found
    if not runs_named(name, runs) and Path(name).exists():
        return None
    return JobClient(chosen_run(name, runs)).describe()


def _reported(job: str, known: CheckpointReport) -> dict[str, Any]:
    ended = known.ended_ms
    return {
        "job": job,
        "checkpoint": known.checkpoint,
        "kind": "savepoint" if known.is_savepoint else "checkpoint",
        "status": known.status,
        "trigger": known.trigger,
        "triggered": known.triggered_ms,
        "ended": ended,
        "duration_ms": None if ended is None else ended - known.triggered_ms,
        "size_bytes": known.size_bytes,
        "written_bytes": known.written_bytes,
        "path": known.folder or None,
        "reason": known.reason or None,
    }


def _stored(job: JobStorage) -> Iterable[dict[str, Any]]:
    for number in job.completed():
        try:
            metadata = job.read_metadata(number)
        except NotFound:  # it has just been deleted
            continue
        yield _described(job, number, metadata)


def _described(job: JobStorage, number: int, metadata: CheckpointMetadata) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "checkpoint": number,
        "kind": metadata.kind,
        "status": "completed",
        "trigger": metadata.properties.get("trigger"),
        "triggered": metadata.triggered_ms,
        "ended": metadata.completed_ms,
        "duration_ms": metadata.completed_ms - metadata.triggered_ms,
        "size_bytes": metadata.size_bytes,
        "written_bytes": sum(part.written_bytes(number) for part in metadata.all_parts()),
        "operators": [(uid, left.size_bytes) for uid, left in sorted(metadata.operators.items())],
        "path": f"{job.url}/{names.checkpoint_folder(number)}",
    }
