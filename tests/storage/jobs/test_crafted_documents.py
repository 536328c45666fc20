"""Documents crafted to have files elsewhere read or deleted: all are refused.

Their checksums are right, since any program can compute them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    Corrupt,
    FileHandle,
    JobStorage,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    load_storage,
    names,
)
from holdfast.storage.jobs.cleaning import find_leftovers, find_orphans, release_held
from holdfast.storage.jobs.envelope import seal
from holdfast.storage.jobs.job import job_in
from holdfast.storage.jobs.metadata import METADATA
from holdfast.storage.jobs.owner_records import Held
from holdfast.storage.testing.example_jobs import delete

HONEST = "shared/00000000000000000001-slot-0-00aa"
ELSEWHERE = [
    "../victim",
    "a/../../victim",
    "/etc/passwd",
    "//host/share",
    "file:///etc/passwd",
    "s3://bucket/key",
    "..%2Fvictim",
    "..",
    ".hidden",
    "a\\..\\b",
    "a\0b",
    "a\n",
    "",
    "shared/" + "x" * 201,
    "chk-00000000000000000007/_metadata",
    "_metadata",
    "owner-00000000000000000001",
    "owner-00000000000000000001.start-00aa",
]


def metadata(kind: str = "checkpoint") -> CheckpointMetadata:
    part = StateSnapshot(kind="t/1", handles={"a": FileHandle(HONEST, 0, 1, "0" * 16)})
    operator = OperatorState(parallelism=1, max_parallelism=1, parts=(part,))
    return CheckpointMetadata(
        job_id="job",
        checkpoint_id=1,
        kind=kind,
        triggered_ms=1,
        completed_ms=2,
        operators={"sum": operator},
        sources={"source": part},
        parts={"other": part},
    )


def forged(body: msgspec.Struct, kind: str, version: int, file: str) -> bytes:
    """A document of which one place that names a file was changed, checksum and all."""
    raw = msgspec.json.encode(body)
    honest, crafted = (msgspec.json.encode(each) for each in (HONEST, file))
    at = raw.rindex(honest)
    changed = raw[:at] + crafted + raw[at + len(honest) :]
    return seal(kind, version, msgspec.json.decode(changed))


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    (tmp_path / "victim").write_bytes(b"precious")
    return load_storage(str(tmp_path / "root"))


@pytest.mark.parametrize("file", ELSEWHERE)
def test_no_document_names_a_file_that_is_not_in_its_folder(file: str) -> None:
    for kind in ("checkpoint", "savepoint"):
        data = forged(metadata(kind), "checkpoint", METADATA.version, file)
        with pytest.raises(Corrupt, match=r"(?s)/here.*(no name of a file|is a record)"):
            METADATA.unseal(data, where="/here")
    with pytest.raises(ValueError, match=r"no name of a file|is a record"):
        FileHandle(file, 0, 1, "0" * 16)


@pytest.mark.parametrize("body", [b'{"job_id":"\xff"}', b"[" * 50_000 + b"]" * 50_000])
def test_text_that_is_none_and_nesting_without_end_are_damage(body: bytes) -> None:
    for version in (1, METADATA.version):
        with pytest.raises(Corrupt, match="/here"):
            METADATA.unseal(
                seal("checkpoint", version, cast(Any, msgspec.Raw(body))), where="/here"
            )
    with pytest.raises(Corrupt, match="/here"):
        METADATA.unseal(body, where="/here")


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1)])
def test_no_range_is_negative(offset: int, length: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        FileHandle("a", offset, length, "")


@pytest.mark.parametrize("file", ELSEWHERE[:4])
def test_a_crafted_checkpoint_makes_an_owner_delete_nothing(
    storage: CheckpointStorage, tmp_path: Path, file: str
) -> None:
    job = storage.job("job")
    owner = job.take_over()
    data = forged(metadata(), "checkpoint", METADATA.version, file)
    storage.write(f"{job.folder}/{names.metadata(1)}", data)
    storage.write(f"{job.folder}/{HONEST}", b"1")
    owner = job.take_over()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for act in (
        lambda: job.load(1),
        job.latest,
        lambda: find_leftovers(job),
        lambda: find_orphans(job),
        owner.orphans,
    ):
        with pytest.raises(Corrupt):
            act()
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    delete(owner, 1)  # what it names is not known, and is an orphan
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert [info.name for info in storage.list(f"{job.folder}/{HONEST}")]


@pytest.mark.parametrize("file", [*ELSEWHERE[:4], "owner-00000000000000000001"])
def test_a_crafted_record_makes_a_resumed_deletion_delete_nothing(
    storage: CheckpointStorage, tmp_path: Path, file: str
) -> None:
    job = storage.job("job")
    owner = job.take_over()
    token = job.newest_start()
    assert token is not None
    held = Held(epoch=owner.epoch, owner=token.owner, checkpoint_id=1, files=(HONEST,))
    data = forged(held, "owner hold", 1, file)
    storage.write(f"{job.folder}/{names.owner_record(owner.epoch, 'held', token.owner)}", data)
    with pytest.raises(Corrupt):
        release_held(job, owner, 1)
    assert not owner.sweeper.owes
    assert (tmp_path / "victim").read_bytes() == b"precious"


@pytest.mark.parametrize("file", ELSEWHERE[:4])
def test_a_crafted_savepoint_is_not_read_and_has_nothing_deleted(
    storage: CheckpointStorage, tmp_path: Path, file: str
) -> None:
    storage.prepare()
    folder = SavepointFolder(storage, "savepoint-1")
    data = forged(metadata("savepoint"), "checkpoint", METADATA.version, file)
    storage.write(folder.name_of("_metadata"), data)
    for act in (folder.load, folder.read_metadata):
        with pytest.raises(Corrupt, match="savepoint-1/_metadata"):
            act()
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_a_cut_name_of_a_job_is_looked_up_and_not_believed(storage: CheckpointStorage) -> None:
    long = "n" * 300
    job: JobStorage = storage.job(long)
    job.take_over()
    assert job_in(storage, job.folder).job_id == long
    (record,) = storage.list(f"{job.folder}/{names.JOB_NAME}")
    other = storage.job("m" * 300)
    storage.write(f"{other.folder}/{names.JOB_NAME}", storage.read(record.name))
    with pytest.raises(Corrupt, match="not its own"):
        job_in(storage, other.folder)
