"""Golden snapshots of `holdfast.keyed-entries/1` are read, and written with the same bytes.

The hashmap backend wrote them; every backend reads them.
"""

import shutil
from pathlib import Path

import msgspec
import pytest

from golden_entries import (
    CASES,
    GOLDEN,
    NOW_MS,
    SEGMENT_BYTES,
    as_first_described,
    build,
    content_of,
    declare,
    expected,
    job_at,
    opened,
)
from holdfast.backends import StateBackend, load_backend
from holdfast.backends.snapshots.neutral import ENTRIES_KIND
from holdfast.storage import FileHandle, JobStorage, ManualClock, StateSnapshot


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.backends.snapshots.neutral._SEGMENT_BYTES", SEGMENT_BYTES)


def stored(name: str, folder: Path) -> tuple[JobStorage, StateSnapshot]:
    """A golden snapshot, in a job's folder."""
    data = (GOLDEN / f"{name}.json").read_bytes()
    snapshot = msgspec.json.decode(data, type=StateSnapshot)
    (file,) = {each.file for each in snapshot.handles.values() if isinstance(each, FileHandle)}
    target = folder / "job" / file
    target.parent.mkdir(parents=True)
    shutil.copy(GOLDEN / f"{name}.bin", target)
    return job_at(folder), snapshot


def same(name: str, job: JobStorage, snapshot: StateSnapshot) -> None:
    """A snapshot is the golden one, but for how a library compresses and what files are called."""
    golden = msgspec.json.decode((GOLDEN / f"{name}.json").read_bytes(), type=StateSnapshot)
    there = StateSnapshot(
        kind=snapshot.kind, attributes=snapshot.attributes, key_groups=snapshot.key_groups
    )
    without_handles = msgspec.structs.replace(golden, handles={})
    assert as_first_described(msgspec.json.encode(there)) == msgspec.json.encode(without_handles)
    assert list(snapshot.handles) == list(golden.handles)
    segments = zip(golden.handles.values(), job.read_all(snapshot.handles.values()), strict=True)
    for handle, data in segments:
        assert isinstance(handle, FileHandle)
        raw = (GOLDEN / f"{name}.bin").read_bytes()[handle.offset :][: handle.length]
        assert (len(data) == handle.raw_length) if handle.compression else (data == raw)


@pytest.mark.parametrize("name", CASES)
def test_entries_of_version_1_are_read(tmp_path: Path, backend: StateBackend, name: str) -> None:
    job, snapshot = stored(name, tmp_path)
    assert snapshot.kind == ENTRIES_KIND == "holdfast.keyed-entries/1"
    with opened(CASES[name], backend, job, ManualClock(NOW_MS), snapshot) as state:
        assert content_of(state, CASES[name]) == expected(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_stamps_of_version_1_are_read(tmp_path: Path, name: str) -> None:
    job, snapshot = stored(name, tmp_path)
    clock = ManualClock(NOW_MS)
    with opened(CASES[name], load_backend("hashmap"), job, clock, snapshot) as state:
        declare(state)
        clock.advance(10_000 - 2000)  # what was written in the first two seconds and a bit
        mortal = content_of(state, CASES[name])
    for place, key in enumerate(CASES[name].keys):
        lives = place > 2
        assert (mortal["mortal", key, None] is not None) == lives
        assert len(mortal["accounts", key, (0, 5)]) == (2 if lives else 0)


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_entries_of_version_1_are_written_again(tmp_path: Path, name: str, *, asks: bool) -> None:
    job, snapshot = stored(name, tmp_path / "read")
    case, target = CASES[name], job_at(tmp_path / "written")
    with opened(case, load_backend("hashmap"), job, ManualClock(NOW_MS), snapshot) as state:
        if asks:
            declare(state)
        again = state.snapshot(1, target, compression=case.compression).result(60)
    same(name, target, again)


@pytest.mark.parametrize("name", CASES)
def test_the_same_state_is_written_the_same_way(tmp_path: Path, name: str) -> None:
    job = job_at(tmp_path)
    same(name, job, build(name, load_backend("hashmap"), job))


def test_a_table_of_more_than_one_segment_is_among_them(tmp_path: Path) -> None:
    _, snapshot = stored("int", tmp_path)
    assert {"rows/0", "rows/1"} <= snapshot.handles.keys()
