"""Snapshots by their path: which one is meant, and what is said where none is."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.backends import (
    KeyGroupRange,
    ListStateDescriptor,
    OperatorStateBackend,
    SnapshotForm,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.savepoints import (
    choose_state,
    compare,
    find_snapshot,
    inspect,
    validate,
)
from holdfast.savepoints.conversion import Conversion, ConversionOptions, InProcess
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Invalid,
    NotFound,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    Unavailable,
    load_storage,
)
from holdfast.storage.segments.reader import StateFolder

JOB = "orders/1"


def part_in(folder: StateFolder, form: SnapshotForm) -> StateSnapshot:
    with load_backend("hashmap").open(
        uid="spend", key_groups=KeyGroupRange(0, 127), max_parallelism=128
    ) as state:
        total = state.get_state(ValueStateDescriptor("total", int))
        total.put_many([f"user {number}" for number in range(9000)], range(9000))
        return state.snapshot(1, folder, form=form).result(60)  # type: ignore[arg-type]


def metadata_of(part: StateSnapshot, kind: str, number: int = 1) -> CheckpointMetadata:
    return CheckpointMetadata(
        job_id=JOB,
        checkpoint_id=number,
        kind=kind,
        triggered_ms=1,
        completed_ms=2,
        operators={"spend": OperatorState(parallelism=1, max_parallelism=128, parts=(part,))},
    )


@pytest.fixture
def savepoint(quick_path: Path) -> SavepointFolder:
    folder = SavepointFolder.begin(load_storage(str(quick_path / "saved")), JOB)
    folder.commit(metadata_of(part_in(folder, SnapshotForm.CANONICAL), "savepoint"))
    return folder


@pytest.fixture
def root(quick_path: Path) -> Path:
    """Of a storage with a job that has a checkpoint."""
    job = load_storage(str(quick_path / "jobs")).job(JOB)
    owner = job.take_over()
    made = metadata_of(part_in(job, SnapshotForm.OWN), "checkpoint")
    owner.commit(made)
    return quick_path / "jobs"


@pytest.mark.parametrize("end", ["", "/", "/_metadata"])
def test_a_savepoint_is_found_by_its_folder_and_its_metadata(
    savepoint: SavepointFolder, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(savepoint.url.removeprefix("file://"))
    for each in (savepoint.url, str(path), f"./{path.name}"):
        monkeypatch.chdir(path.parent)
        found = find_snapshot(each + end)
        assert found.metadata.kind == "savepoint"
        assert found.uids == ["spend"]
    reader = find_snapshot(str(path)).keyed("spend")
    assert reader is not None
    (table,) = reader.description.tables
    with reader.open() as tables:
        assert sum(batch.num_rows for batch in tables.batches(table)) == table.rows == 9000


def test_a_checkpoint_is_found_in_the_folder_of_its_job(root: Path) -> None:
    (path,) = root.glob("*/chk-*")
    found = find_snapshot(str(path))
    assert found.metadata.checkpoint_id == 1
    reader = found.keyed("spend")
    assert reader is not None
    with reader.open() as tables:
        assert sum(block.count for block in tables.blocks(reader.description.tables[0])) == 9000


def test_other_folders_are_not_taken_for_snapshots(root: Path, quick_path: Path) -> None:
    (job,) = root.iterdir()
    with pytest.raises(NotFound, match=r"folder of a job, and not.* such as chk-0{19}1"):
        find_snapshot(str(job))
    with pytest.raises(NotFound, match="folder of jobs"):
        find_snapshot(str(root))
    with pytest.raises(NotFound, match="no savepoint"):
        find_snapshot(str(quick_path / "nothing"))
    with pytest.raises(NotFound, match="no checkpoint 7"):
        find_snapshot(str(job / f"chk-{7:020}"))


def test_missing_and_damaged_files_are_errors(savepoint: SavepointFolder) -> None:
    path = Path(savepoint.url.removeprefix("file://"))
    with pytest.raises(NotFound, match=r"no operator 'spent'.*expected 'spend'"):
        find_snapshot(str(path)).keyed("spent")
    (file,) = path.rglob("*.parquet")
    file.unlink()
    with pytest.raises(Corrupt, match="files of a savepoint are missing"):
        find_snapshot(str(path))
    (path / "_metadata").unlink()
    with pytest.raises(NotFound, match=r"no (whole )?savepoint"):
        find_snapshot(str(path))


@pytest.mark.parametrize("kind", ["holdfast.keyed-parquet/2", "plug-in"])
@pytest.mark.parametrize("act", ["validate", "inspect", "diff", "show", "convert"])
def test_state_of_an_unknown_kind_is_never_skipped(
    quick_path: Path, savepoint: SavepointFolder, kind: str, act: str
) -> None:
    """Such as that of a newer version: what cannot be read is not nothing."""
    folder = SavepointFolder.begin(load_storage(str(quick_path / "newer")), JOB)
    part = part_in(folder, SnapshotForm.CANONICAL)
    folder.commit(metadata_of(msgspec.structs.replace(part, kind=kind), "savepoint"))
    newer, known = find_snapshot(folder.url), find_snapshot(savepoint.url)
    to = SavepointFolder(load_storage(str(quick_path / "to")), "")
    acts: dict[str, Callable[[], object]] = {
        "inspect": lambda: inspect(newer, is_quick=False, tell=lambda _: None),
        "diff": lambda: compare(known, newer, lambda _: None),
        "show": lambda: choose_state(newer, "spend", "total"),
        "convert": lambda: Conversion(
            source=newer,
            destination=to,
            options=ConversionOptions(backend=None, is_canonical=True),
            backend=None,
            runner=InProcess(),
        ).run(),
    }
    if act == "validate":
        (finding,) = validate(newer, lambda _: None).findings
        assert f"found {kind}" in finding.trouble
        return
    with pytest.raises(Invalid, match=f"operator 'spend' has state of a kind.*found {kind}"):
        acts[act]()
    assert not (quick_path / "to").exists()


def test_a_path_to_nothing_is_an_error(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match=r"this path cannot be made absolute.*~nobody-at-all/x"):
        find_snapshot("~nobody-at-all/x")
    gone = quick_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(Invalid, match=r"this path cannot be made absolute.*saved"):
        find_snapshot("saved")


def test_a_path_that_no_system_accepts_is_an_error(quick_path: Path) -> None:
    with pytest.raises((Invalid, NotFound, Unavailable)):
        find_snapshot(str(quick_path / ("x" * 300)))


def test_a_slot_with_two_parts_is_an_error(quick_path: Path) -> None:
    folder = SavepointFolder.begin(load_storage(str(quick_path / "twice")), JOB)
    with OperatorStateBackend.open(uid="spend", slot=0, parallelism=2) as state:
        state.get_list_state(ListStateDescriptor("numbers", int)).update([1, 2])
        part = state.snapshot(1, folder, form=SnapshotForm.OWN).result(60)
    metadata = metadata_of(part, "savepoint")
    twice = OperatorState(parallelism=2, max_parallelism=128, parts=(part, part))
    folder.commit(msgspec.structs.replace(metadata, operators={"spend": twice}))
    (finding,) = validate(find_snapshot(folder.url), lambda _: None).findings
    assert finding.what == "state without keys of operator 'spend'"
    assert "found slots 0, 0, 1" in finding.trouble


def test_a_file_is_not_a_savepoint(quick_path: Path) -> None:
    (quick_path / "spend.parquet").touch()
    with pytest.raises(NotFound, match=r"this is a file.*spend\.parquet.*folder with a file"):
        find_snapshot(str(quick_path / "spend.parquet"))
