"""What is damaged is marked, savepoints are listed, and nothing is asked for that is clear."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec import structs
from typer.testing import CliRunner

from holdfast.backends import SnapshotForm, load_backend
from holdfast.runtime.cli.application import application
from holdfast.savepoints import StoredSnapshot, choose_operator
from holdfast.storage import (
    CheckpointMetadata,
    FileHandle,
    Invalid,
    JobStorage,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    load_storage,
    names,
)
from holdfast.storage.distribution import holdfast_version
from holdfast.storage.restore_points import RestorePoint
from support.states.stored_snapshots import UID, stored
from support.storages.tried_storages import CheckpointPlace
from support.stored_commands import call, document


def metadata(
    job_id: str, number: int, kind: str, handles: dict[str, FileHandle]
) -> CheckpointMetadata:
    return CheckpointMetadata(
        job_id=job_id,
        checkpoint_id=number,
        kind=kind,
        triggered_ms=number,
        completed_ms=1_700_000_000_000 - number,
        operators={
            "sum": OperatorState(
                parallelism=1,
                max_parallelism=1,
                parts=(StateSnapshot(kind="t/1", handles={**handles}),),
            )
        },
    )


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    """Three checkpoints; the first lacks a file, the second is damaged."""
    job = load_storage(str(tmp_path / "checkpoints"), inline_limit_bytes=0).job("orders")
    owner = job.take_over()
    for number in (1, 2, 3):
        with job.segments(number) as writer:
            handle = writer.add(b"x" * 100)
        assert isinstance(handle, FileHandle)
        owner.commit(metadata("orders", number, "checkpoint", {"a": handle}))
        if number == 1:
            job.storage.delete([job.name_of(handle.file)])
    job.storage.write(job.name_of(names.metadata(2)), b"{")
    return job


def test_damaged_checkpoints_are_marked(job: JobStorage) -> None:
    result = CliRunner().invoke(application, ["checkpoints", job.url, "--json"])
    told = json.loads(result.stdout)
    first, second, third = told["jobs"][0]["checkpoints"]
    assert first["error"].startswith("checkpoint 1: chk-")
    assert first["error"].endswith(" missing")
    assert "not a whole checkpoint document" in second["error"]
    assert third["files"] == 1
    assert "error" not in third


def test_savepoints_of_a_directory_are_listed(tmp_path: Path) -> None:
    storage = load_storage(str(tmp_path / "savepoints"), inline_limit_bytes=0)
    for number, job_id in ((1, "orders"), (2, "Заказы")):
        folder = SavepointFolder.begin(storage, job_id)
        with folder.segments(number) as writer:
            handle = writer.add(b"x" * 100)
        assert isinstance(handle, FileHandle)
        folder.commit(metadata(job_id, number, "savepoint", {"a": handle}))
    half = SavepointFolder.begin(storage, "half")
    with half.segments(1) as writer:
        writer.add(b"x")
    lost = SavepointFolder(storage, "moved")
    lost.commit(metadata("lost", 9, "savepoint", {"a": FileHandle("gone", 0, 1, "00")}))
    storage.write("notes/of/somebody", b"x")
    storage.write(f"chk-{3:020d}/_metadata", b"x")
    told = document("list", str(tmp_path / "savepoints"))
    found = [
        (each["status"], each.get("job"), each.get("size_bytes")) for each in told["savepoints"]
    ]
    assert found[-2:] == [("complete", "Заказы", 100), ("complete", "orders", 100)]
    assert sorted(each["status"] for each in told["savepoints"][:2]) == ["damaged", "not complete"]
    shown = call("list", str(tmp_path / "savepoints"))
    assert shown.exit_code == 0
    assert "gone missing" in shown.output
    assert "has no `_metadata`" in re.sub(r"\s+", " ", shown.output)


def test_a_directory_without_savepoints_is_no_success(tmp_path: Path) -> None:
    result = call("list", str(tmp_path))
    assert result.exit_code == 1
    assert "no savepoint in this directory" in str(result.exception)


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(application, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"holdfast {holdfast_version()}\n")


def test_the_operator_is_asked_for_only_where_several_could_be_meant(quick_path: Path) -> None:
    place = CheckpointPlace(str(quick_path / "place"))
    snapshot = stored(place, load_backend("hashmap"), "savepoint", SnapshotForm.CANONICAL)
    assert choose_operator(snapshot, None) == UID
    operators = snapshot.metadata.operators
    unkeyed = [part for part in operators[UID].parts if part.key_groups is None]
    with_sink = OperatorState(parallelism=1, max_parallelism=1, parts=tuple(unkeyed))
    both = structs.replace(snapshot.metadata, operators={UID: operators[UID], "sink": with_sink})
    two = StoredSnapshot(RestorePoint(both, snapshot.point.folder), snapshot.path)
    assert choose_operator(two, None) == UID
    assert choose_operator(two, None, "value") == UID
    with pytest.raises(Invalid, match="--operator with one of 'op/1', 'sink'"):
        choose_operator(two, None, "numbers")
