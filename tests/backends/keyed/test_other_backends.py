"""Files of one backend are restored by another one, row by row through a store of the first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from holdfast.backends import (
    SnapshotForm,
    StateBackend,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.backends.interface import usual_backend
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.rocksdb.memory import memory_bytes
from holdfast.backends.snapshots.neutral import FILES_KIND
from holdfast.storage import Corrupt, FileHandle, Invalid, JobStorage, StateSnapshot, load_storage
from support.states.rocksdb_states import (
    HIGH,
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
from support.states.tried_backends import TRIED, backend_named

OTHERS = [
    pytest.param(name, marks=() if name == "hashmap" else pytest.mark.slow)
    for name in TRIED
    if "rocksdb" not in name
]


def test_a_backend_that_is_only_read_takes_little_memory() -> None:
    backend = usual_backend("rocksdb")
    assert isinstance(backend, RocksDBStateBackend)
    assert memory_bytes(backend.memory) < memory_bytes(RocksDBStateBackend().memory)
    assert usual_backend("hashmap") == load_backend("hashmap")


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


@pytest.fixture
def scratch(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of stores that are only read from; nothing is left there after a test."""
    folder = quick_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert files_below(folder) == []


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest, quick_path: Path) -> StateBackend:
    """A backend that restores state of another one."""
    return backend_named(str(request.param), quick_path / "other")


@pytest.fixture
def expected() -> Content:
    """What `halves` are filled with."""
    return {}


@pytest.fixture
def halves(quick_path: Path, job: JobStorage, expected: Content) -> list[StateSnapshot]:
    """The files that two slots have left."""
    rocksdb = rocksdb_in(quick_path / "state")
    with opened(rocksdb) as state:
        fill(state, size_bytes=1_000)
        expected |= content(state)
        whole = state.snapshot(1, job).result(30)
    found = []
    for number, key_groups in enumerate((LOW, HIGH)):
        with opened(rocksdb, whole, job=job, key_groups=key_groups) as state:
            found.append(state.snapshot(2 + number, job).result(30))
    assert [each.kind for each in found] == [FILES_KIND, FILES_KIND]
    return found


def test_all_state_is_restored_and_in_the_next_snapshot(
    other: StateBackend,
    job: JobStorage,
    halves: list[StateSnapshot],
    expected: Content,
    scratch: Path,
) -> None:
    with opened(other, *halves, job=job) as state:
        assert files_below(scratch)
        assert content(state) == expected
        assert files_below(scratch) == [], "what is loaded need not be open any more"
        mine = state.snapshot(4, job).result(30)
    with opened(other, mine, job=job) as state:
        assert content(state) == expected


def test_each_slot_restores_its_key_groups_at_any_parallelism(
    other: StateBackend, job: JobStorage, halves: list[StateSnapshot], expected: Content
) -> None:
    found: Content = {}
    for key_groups in key_groups_of_slots(3, 128):
        with opened(other, *halves, job=job, key_groups=key_groups) as state:
            found |= content(state)
    assert found == expected


def test_undeclared_state_is_carried_into_later_snapshots(
    other: StateBackend,
    job: JobStorage,
    halves: list[StateSnapshot],
    expected: Content,
    scratch: Path,
) -> None:
    with opened(other, *halves, job=job) as state:
        state.get_state(LIST)
        futures = [state.snapshot(4, job), state.snapshot(5, job, form=SnapshotForm.CANONICAL)]
        assert files_below(scratch) == []
        later = [future.result(30) for future in futures]
        assert content(state) == expected
    for each in later:
        with opened(other, each, job=job) as state:
            assert content(state) == expected


def test_a_table_without_rows_may_be_of_older_types(
    other: StateBackend, job: JobStorage, quick_path: Path
) -> None:
    """A slot that has no rows of a state goes on describing it as it was restored."""
    rocksdb = rocksdb_in(quick_path / "state")
    older, newer = ValueStateDescriptor("typed", int), ValueStateDescriptor("typed", str)
    with opened(rocksdb) as state:
        state.get_state(older)
        empty = state.snapshot(1, job).result(30)
    with opened(rocksdb, empty, job=job, key_groups=HIGH) as state:
        parts = [state.snapshot(2, job).result(30)]
    with opened(rocksdb, empty, job=job, key_groups=LOW) as state:
        typed = state.get_state(newer)
        for key in range(50):
            with suppress(Invalid):
                state.set_current_key(key)
                typed.update("text")
        keys = list(state.keys("typed"))
        parts.append(state.snapshot(3, job).result(30))
    assert keys
    with opened(other, *parts, job=job) as state:
        assert state.get_state(newer).get_many(keys).to_pylist() == ["text"] * len(keys)


def test_files_and_entries_of_two_slots_come_together(
    other: StateBackend,
    job: JobStorage,
    halves: list[StateSnapshot],
    expected: Content,
    quick_path: Path,
) -> None:
    low, high = halves
    with opened(rocksdb_in(quick_path / "state"), high, job=job, key_groups=HIGH) as state:
        entries = state.snapshot(6, job, form=SnapshotForm.NEUTRAL).result(30)
    with opened(other, low, entries, job=job) as state:
        assert content(state) == expected


@pytest.mark.usefixtures("scratch")
def test_state_can_be_declared_correctly_after_a_refused_declaration(
    other: StateBackend, job: JobStorage, halves: list[StateSnapshot], expected: Content
) -> None:
    renamed = replace(VALUE, name="renamed", aliases=("value",))
    with opened(other, *halves, job=job) as state:
        with pytest.raises(Invalid, match="state 'value'"):
            state.get_state(ValueStateDescriptor("value", int))
        values = state.get_state(renamed).get_many(list(range(300))).to_pylist()
        assert values == [expected[key][0] for key in range(300)]


def test_an_early_close_leaves_no_files(
    other: StateBackend, job: JobStorage, halves: list[StateSnapshot], scratch: Path
) -> None:
    with opened(other, *halves, job=job) as state:
        state.get_state(VALUE)
        assert files_below(scratch)
    assert files_below(scratch) == []


def test_a_damaged_file_is_named_and_nothing_is_left(
    other: StateBackend,
    job: JobStorage,
    halves: list[StateSnapshot],
    scratch: Path,
    quick_path: Path,
) -> None:
    handle = max(
        (each for each in halves[1].handles.values() if isinstance(each, FileHandle)),
        key=lambda each: each.length,
    )
    path = quick_path / "storage" / "job" / handle.file
    data = bytearray(path.read_bytes())
    data[handle.offset + handle.length // 2] ^= 1
    path.write_bytes(data)
    with (
        pytest.raises(Corrupt, match=f"'op' cannot be restored.*{path.name}"),
        opened(other, *halves, job=job),
    ):
        pass
    assert files_below(scratch) == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ("rocksdb/999", "this version.*cannot open.*expected files of rocksdb/1.*rocksdb/999"),
        ("cellar/1", "'cellar'.*rocksdb"),
        ("hashmap/1", "expected a backend that keeps files.*found files of hashmap/1"),
    ],
)
def test_files_of_an_unavailable_backend_are_refused(
    other: StateBackend,
    job: JobStorage,
    halves: list[StateSnapshot],
    scratch: Path,
    found: str,
    says: str,
) -> None:
    strange = [
        msgspec.structs.replace(each, attributes=each.attributes | {"format": found})
        for each in halves
    ]
    with pytest.raises(Invalid, match=says), opened(other, *strange, job=job):
        pass
    assert files_below(scratch) == []
