"""Damaged and exchanged files of canonical snapshots are refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    SnapshotForm,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.storage import Corrupt, JobStorage, StateSnapshot, Unavailable, load_storage
from holdfast.storage.segments import random_access
from holdfast.storage.segments.reader import StateFolder
from support.states.snapshot_targets import files_of

WAIT_S = 60
VALUE, OTHER = ValueStateDescriptor("value", int), ValueStateDescriptor("other", int)


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "job")).job("job")


def opened(job: JobStorage, *restore: StateSnapshot) -> KeyedStateBackend:
    return load_backend("hashmap").open(
        uid="op",
        key_groups=KeyGroupRange(0, 127),
        max_parallelism=128,
        key_type=int,
        restore=restore,
        storage=job,
    )


def snapshot(job: JobStorage) -> StateSnapshot:
    """Of two tables with a hundred rows each."""
    with opened(job) as state:
        for descriptor in (VALUE, OTHER):
            state.get_state(descriptor).put_many(range(100), range(100))
        return state.snapshot(1, job, form=SnapshotForm.CANONICAL).result(WAIT_S)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ("missing", r"a file of a checkpoint is missing.*value/part-00000-00000"),
        ("truncated", r"is truncated.*value/part-00000-00000"),
        ("flipped", r"was changed after it was written.*value/part-00000-00000"),
        ("emptied", r"is truncated.*value/part-00000-00000"),
    ],
)
def test_a_damaged_file_is_named(
    job: JobStorage, quick_path: Path, harm: str, message: str
) -> None:
    part = snapshot(job)
    (name,) = (each for each in files_of(part) if "/value/" in each)
    file = quick_path / "job" / "job" / name
    data = bytearray(file.read_bytes())
    match harm:
        case "missing":
            file.unlink()
        case "truncated":
            file.write_bytes(data[:-10])
        case "emptied":
            file.write_bytes(b"")
        case "flipped":
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
    with (
        opened(job, part) as state,
        pytest.raises(Corrupt, match=message) as error,
    ):
        state.get_state(VALUE)
    assert "state 'value' of operator 'op'" in str(error.value)


@pytest.mark.parametrize("calls", [0, 1])
def test_an_unavailable_storage_is_not_reported_as_damage(
    job: JobStorage, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Whenever that is: a restart tries it again."""
    part, left = snapshot(job), [calls]
    read_block = StateFolder.read_block
    monkeypatch.setattr(random_access, "_KEPT_BLOCKS", 0)

    def reads(*given: Any) -> bytes:
        if not left[0]:
            raise Unavailable("it is silent")
        left[0] -= 1
        return read_block(*given)

    monkeypatch.setattr(StateFolder, "read_block", reads)
    with opened(job, part) as state, pytest.raises(Unavailable, match="it is silent"):
        state.get_state(VALUE)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("text", r"cannot be read as a table.*Parquet"),
        ("other state", r"not the one that was written for this table.*'value'.*'other'"),
        ("metadata that are no text", r"not the one that was written for this table"),
        ("fewer rows", r"not the one.*100 rows.*99 rows"),
        ("another type", r"not the one.*int64.*double"),
        ("no order", r"not in order.*key groups that ascend"),
        ("a null", r"a row of state cannot be read"),
    ],
)
def test_a_file_with_other_content_is_refused(job: JobStorage, other: str, message: str) -> None:
    part = snapshot(job)
    table = pq.read_table(job.open(part.handles["value/0"]))
    handles = dict(part.handles)
    match other:
        case "text":
            with job.segments(9) as writer:
                handles["value/0"] = writer.add(b"no table " * 9000)
        case "other state":
            handles["value/0"] = handles["other/0"]
        case "metadata that are no text":
            said = dict.fromkeys([*(table.schema.metadata or {}), b"\xff"], b"\xff")
            handles["value/0"] = written(job, table.replace_schema_metadata(said))
        case "fewer rows":
            handles["value/0"] = written(job, table.slice(1))
        case "another type":
            values = table.column("value").cast(pa.float64())
            changed = table.set_column(
                2, table.schema.field("value").with_type(pa.float64()), values
            )
            handles["value/0"] = written(job, changed)
        case "no order":
            handles["value/0"] = written(job, table.take(list(range(100))[::-1]))
        case "a null":
            nulls = pa.array([None] * 100, pa.int64())
            handles["value/0"] = written(job, table.set_column(1, table.schema.field("key"), nulls))
    with (
        opened(job, structs.replace(part, handles=handles)) as state,
        pytest.raises(Corrupt, match=message),
    ):
        state.get_state(VALUE)


def written(job: JobStorage, table: pa.Table) -> Any:
    """A file with this table, as a handle."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    with job.segments(9) as writer:
        return writer.add(sink.getvalue().to_pybytes())
