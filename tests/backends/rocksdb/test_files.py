"""Native snapshots of RocksDB, and the life of their files and directories."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    StateTtlConfig,
    ValueStateDescriptor,
    key_groups_of_slots,
)
from holdfast.backends.byte_tables.store import ByteTableStore
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.rocksdb.files import RocksFiles
from holdfast.backends.rocksdb.memory import SlotMemory
from holdfast.backends.snapshots.file_uploads import ConfirmedFiles
from holdfast.backends.snapshots.neutral import FILES_KIND, SnapshotForm
from holdfast.backends.snapshots.transfers import Check, side_by_side
from holdfast.backends.testing.gates import Gate
from holdfast.storage import (
    Corrupt,
    JobStorage,
    ManualClock,
    StateSnapshot,
    Unavailable,
    load_storage,
    names,
)
from support.states.rocksdb_states import (
    ALL,
    HIGH,
    LIST,
    LOW,
    MAP,
    UID,
    VALUE,
    content,
    files_below,
    fill,
    opened,
    rocksdb_in,
)
from support.states.snapshot_targets import Failing, files_of
from support.waiting import wait_until


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


@pytest.fixture
def place(quick_path: Path) -> Iterator[Path]:
    """Where state is kept while it is live; a test that has passed leaves nothing there."""
    folder = quick_path / "state"
    yield folder
    assert files_below(folder) == []


@pytest.fixture
def rocksdb(place: Path) -> RocksDBStateBackend:
    return rocksdb_in(place)


@pytest.fixture
def every_file_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.backends.snapshots.file_uploads._SHARED_FROM_BYTES", 1)


def test_a_snapshot_may_be_written_while_another_is_completed() -> None:
    confirmed = ConfirmedFiles()
    confirmed.begin(1)
    ends = threading.Event()

    def write() -> None:
        for number in count(10**6):
            confirmed.written(number, {})
            if ends.is_set():
                return

    for number in range(10**5):
        confirmed.written(number, {})
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(1, 10):
            confirmed.completed(number)
    finally:
        ends.set()
        writer.join()


def writers(snapshot: StateSnapshot) -> set[int | None]:
    """The checkpoints whose files a snapshot refers to."""
    return set(map(names.writer_of, files_of(snapshot)))


@pytest.mark.usefixtures("every_file_is_shared")
@pytest.mark.parametrize("form", SnapshotForm)
def test_snapshots_build_on_the_restored_one_until_a_newer_one_completes(
    rocksdb: RocksDBStateBackend, job: JobStorage, form: SnapshotForm
) -> None:
    with opened(rocksdb) as backend:
        fill(backend)
        first = backend.snapshot(1, job).result(30)
    with opened(rocksdb, first, job=job) as backend:
        backend.build_on_restored()
        backend.notify_checkpoint_complete(1)  # as a barrier says
        second = backend.snapshot(2, job, form=form).result(30)
        assert writers(second) == ({1, 2} if form is SnapshotForm.OWN else {2})
        backend.notify_checkpoint_complete(2)
        third = backend.snapshot(3, job).result(30)
    assert writers(third) <= writers(second) | {3}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to see open files")
def test_a_closed_backend_keeps_no_file_open_while_states_are_referenced(
    rocksdb: RocksDBStateBackend, place: Path, job: JobStorage
) -> None:
    with opened(rocksdb) as backend:
        fill(backend)
        first = backend.snapshot(1, job)
        states = [backend.get_state(each) for each in (VALUE, LIST, MAP)]
        first.result(30)
        fill(backend)
    assert _open_below(place) == []
    with opened(rocksdb, first.result(), job=job, key_groups=LOW) as other:
        states.append(other.get_state(VALUE))
    assert _open_below(place) == []
    assert len(states) == 4


class InUse:
    """A table in whose compaction another thread is: the library does not close it then."""

    def __init__(self, table: Any) -> None:
        self.table, self.is_in_use = table, True

    def close(self) -> None:
        if self.is_in_use:
            raise RuntimeError("Already borrowed")
        self.table.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to see open files")
def test_a_table_dropped_during_its_compaction_is_closed_afterwards(
    rocksdb: RocksDBStateBackend, place: Path
) -> None:
    with opened(rocksdb) as state:
        fill(state)
        assert isinstance(state.store, ByteTableStore)
        files = state.store._store.files
        assert isinstance(files, RocksFiles)
        family: Any = files.family_of("value")
        table = family.table = InUse(family.table)
        state.store.drop_table(state._states["value"].spec)
        table.is_in_use = False
    assert _open_below(place) == []
    assert table.table


def _open_below(folder: Path) -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found


class Slow:
    """Write buffers that take their time."""

    buffered_bytes = 1

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def flush(self) -> None:
        self.entered.set()
        assert self.open.wait(30)


class Full:
    """More write buffers than there may be."""

    def get_usage(self) -> int:
        return 1 << 40


def test_write_buffers_are_not_freed_during_a_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, slow = SlotMemory(16 << 20, 0.5), Slow()
    monkeypatch.setattr(memory, "write_buffers", Full())
    memory.buffers_of(slow)
    emptying = threading.Thread(target=memory.make_room)
    closing = threading.Thread(target=memory.buffers_gone, args=(slow,))
    emptying.start()
    assert slow.entered.wait(30)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    slow.open.set()
    for each in (emptying, closing):
        each.join(30)
        assert not each.is_alive()
    assert memory.make_room() is None


def snapshots_here(place: Path) -> list[str]:
    """The directories of snapshots and restores that are there now."""
    kinds = ("snapshot-", "brought-", "moved-")
    found = (path.name for path in place.glob("*/*"))
    return sorted(name for name in found if name.startswith(kinds))


def test_hard_links_are_removed_however_their_snapshot_ends(
    rocksdb: RocksDBStateBackend, place: Path, job: JobStorage
) -> None:
    gate = Gate(job)
    with opened(rocksdb) as state:
        fill(state)
        first, second, third = (state.snapshot(number, gate) for number in (1, 2, 3))
        assert len(snapshots_here(place)) == 3
        assert second.cancel()
        gate.open.set()
        first.result(30)
        third.result(30)
        assert second.cancelled() or isinstance(second.exception(), CancelledError)
        with pytest.raises(Corrupt, match="on fire"):
            state.snapshot(4, Failing()).result(30)
        last = Gate(job)
        given_up = state.snapshot(5, last)
        assert last.entered.wait(30)
        given_up.cancel()
        last.open.set()
        with pytest.raises(CancelledError):
            given_up.result(30)
        state.snapshot(6, job).result(30)
        wait_until(lambda: snapshots_here(place) == [])


def test_downloaded_files_are_removed_after_the_restore(
    rocksdb: RocksDBStateBackend, place: Path, job: JobStorage
) -> None:
    with opened(rocksdb) as state:
        fill(state)
        whole = state.snapshot(1, job).result(30)
    parts = []
    for number, key_groups in enumerate((LOW, HIGH)):
        with opened(rocksdb, whole, job=job, key_groups=key_groups) as state:
            assert snapshots_here(place) == []
            parts.append(state.snapshot(2 + number, job).result(30))
    with opened(rocksdb, *parts, job=job) as state:
        assert snapshots_here(place) == []
        assert len(list(place.glob("*/db-*"))) == 1
        assert content(state)


def test_a_working_directory_deleted_during_a_restore_is_reported(
    rocksdb: RocksDBStateBackend, place: Path, job: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(rocksdb) as state:
        fill(state)
        whole = state.snapshot(1, job).result(30)

    def bring_and_lose(tasks: Sequence[Callable[[Check], None]]) -> None:
        side_by_side(tasks)
        for path in place.glob("*/brought-*"):
            rmtree(path)

    monkeypatch.setattr("holdfast.backends.snapshots.file_restores.side_by_side", bring_and_lose)
    with pytest.raises(Unavailable, match="No such file"), opened(rocksdb, whole, job=job):
        pass


def test_state_without_a_table_is_restored(rocksdb: RocksDBStateBackend, job: JobStorage) -> None:
    with opened(rocksdb) as state:
        empty = state.snapshot(1, job).result(30)
    parts = []
    for number, key_groups in enumerate((LOW, HIGH)):
        with opened(rocksdb, empty, job=job, key_groups=key_groups) as state:
            assert content(state) == {}
            parts.append(state.snapshot(2 + number, job).result(30))
    with opened(rocksdb, *parts, job=job) as state:
        assert content(state) == {}
        fill(state)
        assert content(state)


def test_appends_continue_after_the_restored_lists(
    rocksdb: RocksDBStateBackend, job: JobStorage
) -> None:
    keys = range(40)
    with opened(rocksdb) as state:
        elements = state.get_state(LIST)
        for key in keys:
            state.set_current_key(key)
            elements.add("0")
        whole = state.snapshot(1, job).result(30)
    parts = []
    for number, key_groups in enumerate((LOW, HIGH)):
        with opened(rocksdb, whole, job=job, key_groups=key_groups) as state:
            elements = state.get_state(LIST)
            for key in list(state.keys("list")):
                state.set_current_key(key)
                for element in range(1, 2 if number else 40):
                    elements.add(str(element))
            parts.append(state.snapshot(2 + number, job).result(30))
    for order in (parts, parts[::-1]):
        with opened(rocksdb, *order, job=job) as state:
            elements = state.get_state(LIST)
            for key in keys:
                state.set_current_key(key)
                before = elements.get()
                elements.add("last")
                assert before == list(map(str, range(len(before))))
                assert elements.get() == [*before, "last"]


@pytest.mark.usefixtures("every_file_is_shared")
def test_a_state_that_is_renamed_stays_in_its_files(
    rocksdb: RocksDBStateBackend, job: JobStorage
) -> None:
    with opened(rocksdb) as state:
        fill(state)
        expected = content(state)
        first = state.snapshot(1, job).result(30)
    renamed = replace(VALUE, name="renamed", aliases=("value",))
    with opened(rocksdb, first, job=job) as state:
        state.build_on_restored()
        found = state.get_state(renamed).get_many(sorted(expected)).to_pylist()
        assert found == [value for _, (value, *_) in sorted(expected.items())]
        second = state.snapshot(2, job).result(30)
    shared = {file for file in files_of(first, second) if file.startswith("shared/")}
    assert shared <= files_of(first)
    with opened(rocksdb, second, job=job) as state:
        assert state.get_state(renamed).get_many([7]).to_pylist() == [expected[7][0]]
        assert list(state.keys("renamed"))


def test_undeclared_state_survives_many_restarts(
    rocksdb: RocksDBStateBackend, job: JobStorage
) -> None:
    with opened(rocksdb) as state:
        fill(state)
        expected = content(state)
        parts = [state.snapshot(1, job).result(30)]
    number = 1
    for parallelism in (2, 3, 2, 5, 1, 4):
        before, parts = parts, []
        for key_groups in key_groups_of_slots(parallelism, 128):
            number += 1
            mine = [part for part in before if overlaps(part, key_groups)]
            with opened(rocksdb, *mine, job=job, key_groups=key_groups) as state:
                parts.append(state.snapshot(number, job).result(30))
        assert all(part.kind == FILES_KIND for part in parts)
        assert all(part.attributes["tables"] == () for part in parts)
    with opened(rocksdb, *parts, job=job) as state:
        assert content(state) == expected


def test_files_and_entries_are_restored_together(
    rocksdb: RocksDBStateBackend, job: JobStorage
) -> None:
    """Some slots wrote files, and others entries; both are restored, declared or not."""
    with opened(rocksdb) as state:
        fill(state)
        expected = content(state)
        whole = state.snapshot(1, job).result(30)
    parts = []
    for number, key_groups in enumerate((LOW, HIGH)):
        with opened(rocksdb, whole, job=job, key_groups=key_groups) as state:
            form = SnapshotForm.OWN if number else SnapshotForm.NEUTRAL
            parts.append(state.snapshot(2, job, form=form).result(30))
    with opened(rocksdb, *parts, job=job) as state:
        carried = state.snapshot(3, job).result(30)
    for restored in (parts, [carried]):
        with opened(rocksdb, *restored, job=job) as state:
            both = state.snapshot(4, job).result(30)
            assert content(state) == expected
            neutral = state.snapshot(5, job, form=SnapshotForm.NEUTRAL).result(30)
        for each in (both, neutral):
            with opened(rocksdb, each, job=job) as state:
                assert content(state) == expected


def overlaps(part: StateSnapshot, key_groups: KeyGroupRange) -> bool:
    assert part.key_groups is not None
    return bool(KeyGroupRange(*part.key_groups).intersection(key_groups))


@pytest.mark.parametrize(("max_parallelism", "steps"), [(1, (1,)), (3, (3, 2)), (32_768, (3, 2))])
def test_any_number_of_key_groups_is_restored(
    rocksdb: RocksDBStateBackend, job: JobStorage, max_parallelism: int, steps: tuple[int, ...]
) -> None:
    keys = list(range(2_000))
    parts: list[StateSnapshot] = []
    number = 0
    for parallelism in (1, *steps, 1):
        before, parts, found = parts, [], []
        for key_groups in key_groups_of_slots(parallelism, max_parallelism):
            number += 1
            with rocksdb.open(
                uid=UID,
                key_groups=key_groups,
                max_parallelism=max_parallelism,
                key_type=int,
                restore=[part for part in before if overlaps(part, key_groups)],
                storage=job,
            ) as state:
                values = state.get_state(ValueStateDescriptor("count", int))
                if not before:
                    values.put_many(keys, keys)
                found += list(state.keys("count"))
                mine = sorted(state.keys("count"))
                assert values.get_many(mine).to_pylist() == mine
                parts.append(state.snapshot(number, job).result(30))
        assert sorted(found) == keys


def test_time_to_live_continues_after_a_restore_from_files(
    rocksdb: RocksDBStateBackend, job: JobStorage
) -> None:
    clock = ManualClock(1_000_000)
    brief = replace(VALUE, ttl=StateTtlConfig(ttl=timedelta(seconds=10)))

    def alive(*snapshots: StateSnapshot) -> KeyedStateBackend:
        return rocksdb.open(
            uid=UID,
            key_groups=ALL,
            max_parallelism=128,
            key_type=int,
            restore=snapshots,
            storage=job,
            clock=clock,
        )

    with alive() as state:
        state.get_state(brief).put_many([1], [b"early"])
        clock.advance(6_000)
        state.get_state(brief).put_many([2], [b"late"])
        first = state.snapshot(1, job).result(30)
    clock.advance(5_000)
    with alive(first) as state:
        assert state.get_state(brief).get_many([1, 2]).to_pylist() == [None, b"late"]
        second = state.snapshot(2, job).result(30)
    with alive(first) as state:
        assert state.get_state(VALUE).get_many([1, 2]).to_pylist() == [b"early", b"late"]
    clock.advance(5_000)
    with alive(second) as state:
        assert state.get_state(brief).get_many([1, 2]).to_pylist() == [None, None]
