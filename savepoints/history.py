"""The completed checkpoints that are stored, as a table: one row for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from holdfast.storage import CheckpointMetadata, JobStorage, NotFound, names
from holdfast.storage.jobs.cleaning import jobs_at
from holdfast.storage.registry import OpenStorage, whole_url

__all__ = ["HISTORY", "stored_history"]

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
"""The columns. `operators` has the bytes of each operator's state by uid. It is null where they are
not known: for checkpoints that a running job reports, and for those that were not completed."""


def stored_history(place: str, open_storage: OpenStorage) -> pa.Table:
    """The completed checkpoints at the root of a storage, or in a job's folder, as `HISTORY`.

    Raises:
        NotFound: there is no job.
        Invalid: the storage cannot be opened.
        Corrupt: the metadata of a checkpoint is damaged.
        Unavailable: the storage does not answer.
    """
    url = whole_url(place).rstrip("/") or "/"
    rows = [row for job in jobs_at(url, open_storage) for row in _stored(job)]
    return pa.Table.from_pylist(rows, HISTORY)


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
