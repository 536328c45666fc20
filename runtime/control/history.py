"""The checkpoints of jobs as a table: what a running job reports, or what is stored."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.runtime.control.client import JobClient
from holdfast.runtime.control.folder import run_folders
from holdfast.runtime.control.lookup import chosen_run, runs_named
from holdfast.runtime.control.messages import CheckpointReport, JobReport
from holdfast.runtime.control.registry import find_runs
from holdfast.savepoints.history import HISTORY, stored_history
from holdfast.storage import SystemClock, load_storage
from holdfast.storage.registry import OpenStorage

__all__ = ["checkpoint_history", "history_of"]


def checkpoint_history(
    target: str, *, storage_options: Mapping[str, Any] | None = None
) -> pa.Table:
    """The checkpoints of a job that runs here, by its name or run id, or of all jobs at a place.

    A running job is asked: it reports those under way and the last that have ended, with the
    reasons of those that failed. A place is read: what is completed there, with the size of each
    operator's state. A place is a path with a slash in it, or a URL: the root of a storage, or a
    job's folder.

    Raises:
        NotFound: there is neither.
        Invalid: several jobs have this name, or the storage cannot be opened.
        Corrupt: the metadata of a checkpoint is damaged.
        Unavailable: the driver, or the storage, does not answer.
    """
    return history_of(target, partial(load_storage, **dict(storage_options or {})))


def history_of(target: str, open_storage: OpenStorage) -> pa.Table:
    """`checkpoint_history` with a given way to open storages."""
    report = None if _is_place(target) else _asked(target)
    if report is None:
        return stored_history(target, open_storage)
    rows = [_reported(report.job, each) for each in report.checkpoints]
    return pa.Table.from_pylist(rows, HISTORY)


def _is_place(target: str) -> bool:
    return "/" in target or target.startswith((".", "~"))


def _asked(name: str) -> JobReport | None:
    """The report of a running job; None if this is the name of a folder, and of no such job."""
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
