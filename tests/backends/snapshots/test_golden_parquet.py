"""Golden snapshots of `holdfast.keyed-parquet/1` are read, and written with the same content."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from golden_entries import (
    CASES,
    NOW_MS,
    as_first_described,
    content_of,
    expected,
    job_at,
    opened,
)
from golden_parquet import NAMES, build, stored
from holdfast.backends import StateBackend, load_backend
from holdfast.backends.snapshots.neutral import PARQUET_KIND
from holdfast.storage import ManualClock


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_version_1_are_read(tmp_path: Path, backend: StateBackend, name: str) -> None:
    job, snapshot = stored(name, tmp_path)
    assert snapshot.kind == PARQUET_KIND == "holdfast.keyed-parquet/1"
    with opened(CASES[name], backend, job, ManualClock(NOW_MS), snapshot) as state:
        assert content_of(state, CASES[name]) == expected(CASES[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_same_state_is_written_the_same_way(tmp_path: Path, name: str) -> None:
    golden_job, golden = stored(name, tmp_path / "golden")
    job = job_at(tmp_path)
    snapshot = build(name, load_backend("hashmap"), job)
    written = as_first_described(msgspec.json.encode(snapshot.attributes))
    assert written == msgspec.json.encode(golden.attributes)
    assert list(snapshot.handles) == list(golden.handles)
    for each, handle in snapshot.handles.items():
        found = pq.read_table(job.open(handle))
        wanted = pq.read_table(golden_job.open(golden.handles[each]))
        said = {key: as_first_described(text) for key, text in found.schema.metadata.items()}
        found = found.replace_schema_metadata(said)
        assert found.schema.equals(wanted.schema, check_metadata=True), each
        assert found.equals(wanted), each
