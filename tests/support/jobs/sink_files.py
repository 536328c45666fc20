"""Writers and files of a `FileSink`, for its tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.sinks import FileSink, WriterContext
from holdfast.runtime.sinks.files.committables import FileCommittable
from holdfast.runtime.sinks.testing.sink_jobs import SCHEMA, Driver, rows
from holdfast.storage import HoldfastError, ManualClock


def context(attempt: str = "5", **options: Any) -> WriterContext:
    given: dict[str, Any] = {
        "job_id": "job",
        "uid": "out",
        "slot": 3,
        "parallelism": 4,
        "attempt": attempt,
        "schema": SCHEMA,
        "clock": ManualClock(),
        "collect": Driver().parts.__setitem__,
    }
    return WriterContext(**{**given, **options})


def files_in(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def prepared(sink: FileSink, count: int = 1, **options: Any) -> list[FileCommittable]:
    writer = sink.open_writer(context(**options))
    writer.write(rows(0, count))
    return list(writer.prepare(1))


def facts(error: pytest.ExceptionInfo[HoldfastError]) -> tuple[str, str, str, str]:
    return error.value.what, error.value.where, error.value.expected, error.value.found
