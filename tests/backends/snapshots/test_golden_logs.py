"""Golden snapshots of `holdfast.keyed-log/1` are read, and written with the same bytes.

Their bases are golden ones of `holdfast.keyed-entries/1`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import golden_entries
from golden_entries import NOW_MS, as_first_described, content_of, opened
from golden_logs import CASES, RENEWED_MS, after, build, stored
from holdfast.backends import StateBackend, load_backend
from holdfast.backends.snapshots.logs import BASE_HANDLES, LOGGED_KIND
from holdfast.storage import ManualClock


@pytest.mark.parametrize("name", CASES)
def test_logs_of_version_1_are_read(tmp_path: Path, backend: StateBackend, name: str) -> None:
    job, snapshot = stored(name, tmp_path)
    assert snapshot.kind == LOGGED_KIND == "holdfast.keyed-log/1"
    case = golden_entries.CASES[name]
    with opened(case, backend, job, ManualClock(NOW_MS), snapshot) as state:
        assert content_of(state, case) == after(case)


@pytest.mark.parametrize("name", CASES)
def test_golden_logs_are_carried_into_later_snapshots(
    tmp_path: Path, backend: StateBackend, name: str
) -> None:
    job, snapshot = stored(name, tmp_path)
    case = golden_entries.CASES[name]
    with opened(case, backend, job, ManualClock(NOW_MS), snapshot) as state:
        again = state.snapshot(3, job).result(60)
    with opened(case, backend, job, ManualClock(NOW_MS), again) as state:
        assert content_of(state, case) == after(case)


@pytest.mark.parametrize("name", CASES)
def test_stamps_of_their_changes_are_read(tmp_path: Path, name: str) -> None:
    """What the log has renewed lives for ten seconds more, and the base's own does not."""
    job, snapshot = stored(name, tmp_path)
    case = golden_entries.CASES[name]
    for moment, lives in ((RENEWED_MS + 9_999, True), (RENEWED_MS + 10_000, False)):
        backend = load_backend("hashmap")
        with opened(case, backend, job, ManualClock(moment), snapshot) as state:
            content = content_of(state, case)
        for key in case.keys:
            assert (content["mortal", key, None] is not None) == lives
            assert bool(content["accounts", key, (-5, 0)]) == lives
            assert content["accounts", key, (0, 5)] == []


@pytest.mark.parametrize("name", CASES)
def test_the_same_changes_are_written_the_same_way(tmp_path: Path, name: str) -> None:
    """But for how a library compresses them."""
    golden_job, golden = stored(name, tmp_path / "golden")
    job, snapshot = build(name, tmp_path / "new")
    without = [msgspec.structs.replace(each, handles={}) for each in (snapshot, golden)]
    assert as_first_described(msgspec.json.encode(without[0])) == msgspec.json.encode(without[1])
    assert list(snapshot.handles) == list(golden.handles)
    written = job.read_all(snapshot.handles.values())
    assert list(written) == list(golden_job.read_all(golden.handles.values()))


def test_logs_of_several_pieces_are_among_them(tmp_path: Path) -> None:
    _, snapshot = stored("int", tmp_path)
    pieces = {"accounts/log/5", "_timers/user/event/another log/5", f"{BASE_HANDLES}rows/1"}
    assert pieces <= snapshot.handles.keys()
