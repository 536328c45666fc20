"""Rows in flight in a checkpoint are state as any other to the tools: shown, checked, converted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.backends import SnapshotForm, load_backend
from holdfast.backends.snapshots.in_flight import (
    InFlight,
    in_flight_parts,
    read_in_flight,
    write_in_flight,
)
from holdfast.savepoints import StoredSnapshot, find_snapshot, inspect, validate
from holdfast.savepoints.conversion import Conversion, ConversionOptions, InProcess
from holdfast.storage import CheckpointMetadata, OperatorState, SavepointFolder, load_storage
from support.states.stored_snapshots import JOB, UID, parts_in
from support.stored_commands import call, document

ROWS = pa.record_batch({"user": ["ann", "bob", "eve"] * 1000, "amount": range(3000)})


@pytest.fixture
def checkpoint(quick_path: Path) -> StoredSnapshot:
    """A checkpoint of an operator, and rows on the way to both of its inputs."""
    job = load_storage(str(quick_path / "from")).job(JOB)
    owner = job.take_over()
    left = parts_in(load_backend("hashmap"), job, SnapshotForm.OWN, 2)
    with job.segments(2, "slot-1") as target:
        parts = [
            write_in_flight(
                InFlight(
                    edge=f"{UID}/{number}",
                    columns="user, amount",
                    parallelism=2,
                    max_parallelism=128,
                    rows={},
                ),
                {"0": [ROWS], "1": [ROWS.slice(0, 7)]},
                target,
                1,
                (64, 127),
            )
            for number in range(2)
        ]
    in_flight = in_flight_parts(part for part in parts if part is not None)
    owner.commit(
        CheckpointMetadata(
            job_id=JOB,
            checkpoint_id=2,
            triggered_ms=1,
            completed_ms=2,
            operators={UID: OperatorState(parallelism=2, max_parallelism=128, parts=left)},
            parts={each.name: each.part for each in in_flight},
        )
    )
    return find_snapshot(f"{job.url}/chk-{2:020d}")


def rows_of(snapshot: StoredSnapshot) -> list[list[pa.RecordBatch]]:
    return [
        [*read_in_flight(each, sender, snapshot.folder)]
        for each in in_flight_parts(snapshot.metadata.in_flight)
        for sender in each.about.rows
    ]


def test_they_are_shown_by_input(checkpoint: StoredSnapshot) -> None:
    found = inspect(checkpoint).in_flight
    assert [(each.uid, each.input, each.rows) for each in found] == [(UID, 0, 3007), (UID, 1, 3007)]
    assert all(each.size_bytes > ROWS.nbytes for each in found)
    told = document("inspect", checkpoint.path)
    assert [each["rows"] for each in told["in_flight"]] == [3007, 3007]
    shown = call("inspect", checkpoint.path).output
    assert f"3,007 rows in flight to input 0 of operator '{UID}'" in shown


@pytest.mark.parametrize("to", ["hashmap", None])
def test_a_conversion_carries_them_over(
    checkpoint: StoredSnapshot, quick_path: Path, to: str | None
) -> None:
    folder = SavepointFolder(load_storage(str(quick_path / "converted")), "")
    Conversion(
        source=checkpoint,
        destination=folder,
        options=ConversionOptions(backend=to, is_canonical=to is None, parallelism=3),
        backend=None if to is None else load_backend(to),
        runner=InProcess(),
    ).run()
    after = find_snapshot(folder.url)
    assert rows_of(after) == rows_of(checkpoint)
    assert validate(after, lambda _: None).findings == ()
    mine, its = (
        {file for part in each.metadata.in_flight for file in part.files()}
        for each in (after, checkpoint)
    )
    assert mine
    assert not mine & its, "a savepoint stands alone"


def test_validation_reads_each_row(checkpoint: StoredSnapshot) -> None:
    whole = validate(checkpoint, lambda _: None)
    assert whole.findings == ()
    (file,) = {file for part in checkpoint.metadata.in_flight for file in part.files()}
    path = Path(checkpoint.folder.url.removeprefix("file://")) / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    findings = validate(checkpoint, lambda _: None).findings
    assert findings
    assert any("in-flight/1" in each.what for each in findings)
