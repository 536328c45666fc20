"""Undeclared state from entries is kept in the database, and not in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.backends import load_backend
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.snapshots.neutral import FILES_KIND, SnapshotForm
from holdfast.backends.testing.gates import Gate
from holdfast.storage import Corrupt, FileHandle, JobStorage, StateSnapshot, load_storage
from support.states.rocksdb_states import (
    LIST,
    LOW,
    VALUE,
    Content,
    content,
    files_below,
    fill,
    opened,
    rocksdb_in,
)
from support.states.snapshot_targets import files_of


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


@pytest.fixture
def rocksdb(quick_path: Path) -> Iterator[RocksDBStateBackend]:
    yield rocksdb_in(quick_path / "state")
    assert files_below(quick_path / "state") == []


@pytest.fixture
def entries(job: JobStorage) -> StateSnapshot:
    """A snapshot of another backend."""
    with opened(load_backend("hashmap")) as state:
        fill(state)
        return state.snapshot(1, job).result(30)


def content_of(entries: StateSnapshot, job: JobStorage) -> Content:
    with opened(load_backend("hashmap"), entries, job=job) as state:
        return content(state)


def test_undeclared_state_is_files_from_the_first_snapshot_on(
    rocksdb: RocksDBStateBackend, job: JobStorage, entries: StateSnapshot
) -> None:
    expected = content_of(entries, job)
    with opened(rocksdb, entries, job=job) as state:
        first = state.snapshot(2, job).result(30)
        job.storage.delete(f"{job.folder}/{name}" for name in files_of(entries))
        second = state.snapshot(3, job).result(30)
        neutral = state.snapshot(4, job, form=SnapshotForm.NEUTRAL).result(30)
        assert content(state) == expected
    for each in (first, second):
        assert each.kind == FILES_KIND
        assert each.attributes["tables"] == ()
    for each in (first, second, neutral):
        with opened(rocksdb, each, job=job) as state:
            assert content(state) == expected


def test_state_may_be_declared_while_a_snapshot_waits(
    rocksdb: RocksDBStateBackend, job: JobStorage, entries: StateSnapshot
) -> None:
    expected = content_of(entries, job)
    gate = Gate(job)
    with opened(rocksdb, entries, job=job) as state:
        futures = [state.snapshot(2, gate), state.snapshot(3, gate, form=SnapshotForm.NEUTRAL)]
        assert content(state) == expected
        elements = state.get_state(LIST)
        state.set_current_key(0)
        before = elements.get()
        elements.add("last")
        assert elements.get() == [*before, "last"]
        state.get_state(VALUE).clear_many(list(range(300)))
        gate.open.set()
        snapshots = [future.result(30) for future in futures]
    for each in snapshots:
        with opened(rocksdb, each, job=job, key_groups=LOW) as state:
            mine = content(state)
            assert mine == {key: expected[key] for key in mine}
            assert mine


def test_undeclared_state_may_be_declared_by_an_alias_and_another_type(
    rocksdb: RocksDBStateBackend, job: JobStorage, entries: StateSnapshot
) -> None:
    renamed = replace(VALUE, name="renamed", aliases=("value",))
    with opened(rocksdb, entries, job=job) as state:
        state.snapshot(2, job).result(30)
        assert len(state.get_state(renamed).get_many(list(range(300))).to_pylist()) == 300
        third = state.snapshot(3, job).result(30)
    with opened(rocksdb, third, job=job) as state:
        assert None not in state.get_state(renamed).get_many(list(range(300))).to_pylist()


def test_a_damaged_file_is_named_and_read_again_later(
    rocksdb: RocksDBStateBackend, job: JobStorage, entries: StateSnapshot, quick_path: Path
) -> None:
    expected = content_of(entries, job)
    handle = entries.handles["list/0"]
    assert isinstance(handle, FileHandle)
    path = quick_path / "storage" / "job" / handle.file
    whole = path.read_bytes()
    data = bytearray(whole)
    data[handle.offset + handle.length // 2] ^= 1
    with opened(rocksdb, entries, job=job) as state:
        path.write_bytes(data)
        for _ in range(2):
            with pytest.raises(Corrupt, match="state 'list' of operator 'op' cannot be restored"):
                state.snapshot(2, job)
        path.write_bytes(whole)
        third = state.snapshot(3, job).result(30)
        assert content(state) == expected
    with opened(rocksdb, third, job=job) as state:
        assert content(state) == expected
