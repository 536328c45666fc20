"""A savepoint's folder: written, committed, moved, opened, and given up."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    Corrupt,
    FileHandle,
    FileSystemCheckpointStorage,
    HoldfastError,
    Invalid,
    JobManagerCheckpointStorage,
    NotFound,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    Taken,
    load_storage,
    names,
)
from holdfast.storage.jobs.envelope import seal
from support.storages.tried_storages import LOCAL, REMOTE, place_named

LARGE = bytes(range(256)) * 400
_REMOTE = [pytest.param(name, marks=pytest.mark.slow) for name in REMOTE]
EVERYWHERE = pytest.mark.parametrize("storage", [LOCAL, *_REMOTE], indirect=True)


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    name = getattr(request, "param", LOCAL)
    return place_named(name, tmp_path, request).storage()


def written(folder: SavepointFolder, *, format_: str = "native") -> CheckpointMetadata:
    """A savepoint of one operator, in files of each kind, before its commit."""
    table = names.table_file("a/b", names.state_table("_sums"), 0, 1)
    with folder.segments(7, "slot-0") as own, folder.shared_segments(7, "a/b") as other:
        handles = {
            "small": own.add(b"small"),
            "large": own.add(LARGE),
            "table": other.add(b"in a file, though it is small"),
        }
    with folder.table_file(7, table) as file:
        with file.stream() as stream:
            stream.write(LARGE)
        handles["parquet"] = stream.handle
    with folder.log_segments(7, "slot-0") as log:
        handles["log"] = log.add(LARGE)
    part = StateSnapshot(kind="test/1", handles=handles, slot=0)
    return CheckpointMetadata(
        job_id="orders",
        checkpoint_id=7,
        kind="savepoint",
        triggered_ms=1,
        completed_ms=2,
        operators={"sum": OperatorState(parallelism=1, max_parallelism=4, parts=(part,))},
        properties={"format": format_},
    )


def contents(folder: SavepointFolder) -> dict[str, bytes]:
    (part,) = folder.load().operators["sum"].parts
    assert [*folder.read_all(part.handles.values())] == [*map(folder.read, part.handles.values())]
    return {name: b"".join(folder.stream(handle)) for name, handle in part.handles.items()}


EXPECTED = {
    "small": b"small",
    "large": LARGE,
    "table": b"in a file, though it is small",
    "parquet": LARGE,
    "log": LARGE,
}


@EVERYWHERE
def test_a_savepoint_is_read_in_place_and_from_a_copy(
    storage: CheckpointStorage,
) -> None:
    folder = SavepointFolder.begin(storage, "orders")
    assert pickle.loads(pickle.dumps(folder)).url == folder.url
    metadata = written(folder)
    with pytest.raises(NotFound, match=r"no whole savepoint.*never completed"):
        folder.load()
    folder.commit(metadata)
    folder.commit(metadata)  # as after an answer that was lost
    assert folder.load() == metadata
    assert contents(folder) == EXPECTED

    by_its_url = storage.at(folder.url)
    assert by_its_url is not None
    assert contents(SavepointFolder(by_its_url, "")) == EXPECTED

    elsewhere = storage.at(storage.url_of("archive/2026"))
    assert elsewhere is not None
    for info in storage.list(f"{folder.folder}/"):
        elsewhere.write(info.name[len(folder.folder) + 1 :], storage.read(info.name))
    folder.discard()
    assert [*storage.list(f"{folder.folder}/")] == []
    assert contents(SavepointFolder(elsewhere, "")) == EXPECTED
    with pytest.raises(NotFound, match=r"there is no savepoint .*found nothing"):
        folder.load()


def test_a_savepoint_may_be_moved_under_any_name(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    folder = SavepointFolder.begin(storage, "orders")
    folder.commit(written(folder))
    moved = tmp_path / "before the upgrade (März) #1?"
    shutil.move(tmp_path / "checkpoints" / folder.folder, moved)
    assert contents(SavepointFolder(load_storage(str(moved)), "")) == EXPECTED


def test_its_name_says_of_which_job_it_is(storage: CheckpointStorage) -> None:
    first, second, other = (
        SavepointFolder.begin(storage, job).folder for job in ("orders", "orders", "clicks")
    )
    assert first != second
    assert first[:16] == second[:16]
    assert other[:16] != first[:16]
    assert len(first) == len("savepoint-") + 6 + 1 + 12


def test_all_names_in_it_are_relative_and_shown_to_other_tools(storage: CheckpointStorage) -> None:
    folder = SavepointFolder.begin(storage, "orders")
    metadata = written(folder)
    folder.commit(metadata)
    assert storage.url not in storage.read(f"{folder.folder}/_metadata").decode()
    files = metadata.files()
    assert "a~2Fb/~5Fsums/part-00000-00001.parquet" in files
    assert not any(part.startswith(("_", ".")) for file in files for part in file.split("/"))
    parquet = metadata.operators["sum"].parts[0].handles["parquet"]
    assert isinstance(parquet, FileHandle)
    assert (parquet.offset, parquet.length) == (0, len(LARGE)), "nothing is around it"


def test_a_damaged_savepoint_is_not_read(storage: CheckpointStorage, tmp_path: Path) -> None:
    folder = SavepointFolder.begin(storage, "orders")
    metadata = written(folder)
    folder.commit(metadata)
    root = tmp_path / "checkpoints" / folder.folder
    file = root / min(metadata.files())
    whole = file.read_bytes()

    def refused(kind: type[HoldfastError], act: Callable[[], object], what: str) -> None:
        act()
        with pytest.raises(kind, match=what):
            contents(folder)
        file.write_bytes(whole)

    refused(Corrupt, file.unlink, f"files of a savepoint are missing.*found .*{file.name} missing")
    short = rf"{file.name} \({len(whole) - 1} of {len(whole)} bytes\) too short"
    refused(Corrupt, lambda: file.write_bytes(whole[:-1]), short)
    flipped = bytes([whole[0] ^ 1]) + whole[1:]
    refused(Corrupt, lambda: file.write_bytes(flipped), f"changed after .*{file.name}")
    point = root / "_metadata"
    document = point.read_bytes()
    refused(Corrupt, lambda: point.write_bytes(document[:-9]), "not a whole checkpoint document")
    newer = seal("checkpoint", 3, metadata)
    refused(Invalid, lambda: point.write_bytes(newer), "newer version.* 2 .*found.* 3")
    refused(NotFound, point.unlink, "no whole savepoint.*files such as a~2Fb")


def test_a_checkpoint_is_no_savepoint(storage: CheckpointStorage) -> None:
    job = storage.job("orders")
    metadata = CheckpointMetadata(job_id="orders", checkpoint_id=3, triggered_ms=0, completed_ms=0)
    job.take_over().commit(metadata)
    at = storage.at(f"{job.url}/{names.checkpoint_folder(3)}")
    assert at is not None
    with pytest.raises(Invalid, match=r"this is a checkpoint, and not a savepoint .*chk-"):
        SavepointFolder(at, "").load()
    with pytest.raises(Invalid, match="not that of a savepoint"):
        SavepointFolder.begin(storage, "orders").commit(metadata)


def test_of_two_in_one_folder_one_wins(storage: CheckpointStorage) -> None:
    folder = SavepointFolder.begin(storage, "orders")
    metadata = written(folder)
    folder.commit(metadata)
    with pytest.raises(Taken, match="another savepoint"):
        folder.commit(written(folder, format_="canonical"))
    assert folder.load() == metadata


@EVERYWHERE
def test_an_abandoned_savepoint_leaves_no_object(storage: CheckpointStorage) -> None:
    folder = SavepointFolder.begin(storage, "orders")
    kept = SavepointFolder.begin(storage, "orders")
    kept.commit(written(kept))
    folder.commit(written(folder))
    unfinished = folder.shared_segments(7, "slot-1")
    unfinished.add(LARGE * 100)
    folder.discard()
    folder.discard()
    assert {info.name.partition("/")[0] for info in storage.list("")} == {kept.folder}
    assert [*storage.unfinished(f"{folder.folder}/")] == []
    unfinished.abort()
    assert contents(kept) == EXPECTED
    with pytest.raises(Invalid, match="root of a storage"):
        SavepointFolder(storage, "").discard()


def test_a_savepoint_is_deleted_in_steps_without_foreign_files(storage: CheckpointStorage) -> None:
    folder = SavepointFolder.begin(storage, "orders")
    metadata = written(folder)
    folder.commit(metadata)
    storage.write(f"{folder.folder}/notes-of-ann", b"keep this")
    count = len(metadata.files()) + 1
    done = 0
    while (deleted := folder.delete_some(metadata, done, 2)) != 0:
        done += deleted
        if done < count:
            assert folder.read_metadata() == metadata, "a later process knows what is left"
            with pytest.raises(Corrupt, match="missing"):
                folder.load()
    assert done == count
    left = [info.name for info in storage.list(f"{folder.folder}/")]
    assert left == [f"{folder.folder}/notes-of-ann"]


def test_a_savepoint_in_memory_is_refused() -> None:
    with pytest.raises(Invalid, match=r"cannot be kept here.*expected a directory for files"):
        SavepointFolder.begin(JobManagerCheckpointStorage(), "orders")


def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Invalid):
        SavepointFolder.begin(FileSystemCheckpointStorage(str(tmp_path / "file" / "dir")), "orders")


def test_a_table_has_a_legal_name(storage: CheckpointStorage) -> None:
    folder = SavepointFolder.begin(storage, "orders")
    for name in ("../up", "/root", "a//b", ".hidden"):
        with pytest.raises(Invalid, match="not legal"):
            folder.table_file(1, name)


def test_one_folder_is_known_from_whichever_root(tmp_path: Path) -> None:
    above, below = load_storage(str(tmp_path)), load_storage(f"file://{tmp_path}/a/b")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    linked = load_storage(str(tmp_path / "link"))
    same = [SavepointFolder(above, "a/b"), SavepointFolder(below, ""), SavepointFolder(linked, "b")]
    assert all(one.is_alike(other) for one in same for other in same)
    assert not SavepointFolder(above, "a").is_alike(same[0])
    assert not SavepointFolder(above, "a/bc").is_alike(same[1])


def test_foreign_files_in_a_savepoint_s_folder_are_kept(tmp_path: Path) -> None:
    """A savepoint that is given up takes just its own files with it."""
    storage = load_storage(str(tmp_path), inline_limit_bytes=0)
    folder = SavepointFolder.begin(storage, "job")
    with folder.segments(1, "数" * 100) as writer:
        writer.add(b"x")
    with folder.table_file(1, names.table_file("数" * 100, "state", 0, 0)) as table:
        table.add(b"x")
    storage.write(folder.name_of("_metadata"), b"x")
    begun = folder.segments(1)
    begun.add(b"x" * 100_000)
    foreign = {"thesis.tex", "notes/part-1.txt", "part-00000-00000.parquet.bak"}
    for name in foreign:
        storage.write(folder.name_of(name), b"precious")
    folder.discard()
    left = {
        path.relative_to(tmp_path / folder.folder).as_posix()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert left == foreign
