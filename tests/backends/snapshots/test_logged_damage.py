"""Damaged logs: the error names the state, and no state has half of the changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import KeyedStateBackend, StateBackend, ValueStateDescriptor, load_backend
from holdfast.backends.blocks.changes import Change
from holdfast.backends.snapshots.logs import PendingChanges
from holdfast.backends.snapshots.neutral import FILES_KIND, SnapshotForm
from holdfast.storage import (
    Corrupt,
    FileHandle,
    JobStorage,
    StateSnapshot,
    Unavailable,
    load_storage,
)
from support.states.logged_snapshots import logged, logs_of
from support.states.logged_steps import STATES, TIMERS, apply, content, modelled, opened, steps
from support.states.rocksdb_states import files_below, rocksdb_in

WAIT_S = 30
BEFORE, LATER = steps(400, seed=5), steps(400, seed=6)
EXPECTED = modelled([*BEFORE, *LATER])
OTHERS = tuple(table for table in (*STATES, TIMERS) if table != "list")


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


def base_of(backend: StateBackend, job: JobStorage) -> StateSnapshot:
    with opened(backend) as state:
        apply(state, BEFORE)
        return state.snapshot(1, job).result(WAIT_S)


class File:
    """The bytes of one segment in a file, to be damaged and mended."""

    def __init__(self, folder: Path, snapshot: StateSnapshot, name: str) -> None:
        handle = snapshot.handles[name]
        assert isinstance(handle, FileHandle)
        self._path = folder / "storage" / "job" / handle.file
        self._whole = self._path.read_bytes()
        self._middle = handle.offset + handle.length // 2

    def damage(self, how: str) -> None:
        match how:
            case "flipped":
                data = bytearray(self._whole)
                data[self._middle] ^= 1
                self._path.write_bytes(data)
            case "truncated":
                self._path.write_bytes(self._whole[: self._middle])
            case _:
                self._path.unlink()

    def mend(self) -> None:
        self._path.write_bytes(self._whole)


def ask_for_list(state: KeyedStateBackend) -> Any:
    descriptor, namespace_type = STATES["list"]
    return state.get_state(descriptor, namespace_type=namespace_type)


@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
def test_a_damaged_log_is_named_and_read_again_later(
    backend: StateBackend, job: JobStorage, quick_path: Path, how: str
) -> None:
    """On declaration and by a snapshot; other state is readable, and all of it after a repair."""
    snapshot = logged(job, 2, base_of(load_backend("hashmap"), job), logs_of(LATER))
    file = File(quick_path, snapshot, "list/log/7")
    says = r"state '{}' of operator 'op' cannot be restored"
    with opened(backend, snapshot, job=job) as state:
        found = content(state, OTHERS)
        file.damage(how)
        for _ in range(2):
            with pytest.raises(Corrupt, match=says.format("list")) as caught:
                ask_for_list(state)
            assert "chk-" in str(caught.value)
            with pytest.raises(Corrupt, match=says.format("list")):
                state.snapshot(4, job)
        file.mend()
        again = state.snapshot(5, job).result(WAIT_S)
        assert found | content(state, ["list"]) == EXPECTED
    with opened(backend, again, job=job) as state:
        lists = {at: value for at, value in EXPECTED.items() if at[0] == "list"}
        assert content(state, ["list"]) == lists


@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
def test_a_snapshot_over_a_damaged_log_fails(
    backend: StateBackend, job: JobStorage, quick_path: Path, how: str
) -> None:
    """Without any declared state; after a repair the snapshot has everything."""
    snapshot = logged(job, 2, base_of(backend, job), logs_of(LATER))
    file = File(quick_path, snapshot, "map/log/0")
    with opened(backend, snapshot, job=job) as state:
        file.damage(how)
        for _ in range(2):
            with pytest.raises(Corrupt, match=r"operator 'op' cannot be restored"):
                state.snapshot(3, job)
        file.mend()
        again = state.snapshot(4, job).result(WAIT_S)
        assert content(state) == EXPECTED
    with opened(backend, again, job=job) as state:
        assert content(state) == EXPECTED


@pytest.fixture
def files(quick_path: Path, job: JobStorage) -> Iterator[tuple[StateBackend, StateSnapshot]]:
    """A backend whose base is files, so that tables are claimed and not read."""
    backend = rocksdb_in(quick_path / "state")
    base = base_of(backend, job)
    assert base.kind == FILES_KIND
    yield backend, logged(job, 2, base, logs_of(LATER))
    assert files_below(quick_path / "state") == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_a_half_replayed_claimed_table_is_not_used(
    job: JobStorage, quick_path: Path, files: tuple[StateBackend, StateSnapshot], how: str
) -> None:
    """The table is half replayed, and was the only one: from then on, there is no way on."""
    backend, snapshot = files
    file = File(quick_path, snapshot, "list/log/21")
    with opened(backend, snapshot, job=job) as state:
        value = state.get_state(STATES["value"][0])
        file.damage(how)
        with pytest.raises(Corrupt, match="state 'list' of operator 'op' cannot be restored"):
            ask_for_list(state)
        file.mend()
        for _ in range(2):
            for call in (
                lambda: ask_for_list(state),
                lambda: state.get_state(STATES["map"][0]),
                lambda: state.timers("others"),
                lambda: state.get_state(ValueStateDescriptor("new", int)),
                lambda: state.snapshot(3, job),
                lambda: state.snapshot(4, job, form=SnapshotForm.NEUTRAL),
            ):
                with pytest.raises(Corrupt, match="state 'list' of operator 'op' cannot be rest"):
                    call()
        state.set_current_key(1)
        value.value()
    with opened(backend, snapshot, job=job) as state:
        assert content(state) == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broken off")], ids=repr)
def test_an_interrupted_replay_is_not_used(
    job: JobStorage,
    files: tuple[StateBackend, StateSnapshot],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    backend, snapshot = files
    sound = PendingChanges.changes

    def broken_off(pending: PendingChanges) -> Iterator[Change]:
        changes = sound(pending)
        yield next(changes)
        yield next(changes)
        raise error

    with opened(backend, snapshot, job=job) as state:
        monkeypatch.setattr(PendingChanges, "changes", broken_off)
        with pytest.raises(type(error)):
            ask_for_list(state)
        monkeypatch.setattr(PendingChanges, "changes", sound)
        for call in (lambda: ask_for_list(state), lambda: state.snapshot(3, job)):
            with pytest.raises(Unavailable, match="state 'list' of operator 'op' is half restored"):
                call()
    with opened(backend, snapshot, job=job) as state:
        assert content(state) == EXPECTED


@pytest.mark.slow
def test_a_failed_replay_over_unclaimed_files_is_repeated(
    job: JobStorage, quick_path: Path, files: tuple[StateBackend, StateSnapshot]
) -> None:
    """Timers and what was taken in are read from files: those are there still after a failure."""
    backend, snapshot = files
    file = File(quick_path, snapshot, "list/log/0")
    with opened(backend, snapshot, job=job) as state:
        file.damage("flipped")
        with pytest.raises(Corrupt, match="operator 'op' cannot be restored"):
            state.snapshot(3, job)
        file.mend()
        assert content(state) == EXPECTED
