"""Which base a checkpoint has: one that builds on nothing that may be deleted, and has an end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import (
    EarlyFiles,
    HashMapStateBackend,
    KeyedStateBackend,
    KeyGroupRange,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.backends.hashmap.tables import ObjectTableStore, ObjectValueTable
from holdfast.backends.snapshots import file_uploads as file_snapshots
from holdfast.backends.snapshots.logs import BASE_HANDLES
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.backends.tables.contract import Table, TableSpec, TableStore
from holdfast.changelog import ChangelogStateBackend
from holdfast.storage import (
    FileHandle,
    JobStorage,
    ManualClock,
    StateSnapshot,
    Unavailable,
    load_storage,
    names,
)

ALL = KeyGroupRange(0, 127)
VALUE = ValueStateDescriptor("value", int)
WAIT_S = 30


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path / "storage"), inline_limit_bytes=0).job("job")


class Run:
    """One operator whose clock stands still until it is told."""

    def __init__(self, job: JobStorage, backend: ChangelogStateBackend, **opening: Any) -> None:
        self.job = job
        self.clock = ManualClock(1_000_000)
        self.state: KeyedStateBackend = backend.open(
            uid="u",
            key_groups=ALL,
            max_parallelism=128,
            clock=self.clock,
            early=EarlyFiles(job, opening.pop("first", 1)),
            storage=job,
            **opening,
        )
        self.value = self.state.get_state(VALUE)

    def write(self, start: int, count: int = 500) -> None:
        for key in range(count):
            self.state.set_current_key(key)
            self.value.update(start + key)

    def tend(self, later_ms: int = 100) -> bool:
        self.clock.advance(later_ms)
        return self.state.tend()

    def snapshot(self, number: int) -> StateSnapshot:
        return self.state.snapshot(number, self.job).result(WAIT_S)

    def has_base(self, snapshot: StateSnapshot) -> bool:
        return any(name.startswith(BASE_HANDLES) for name in snapshot.handles)

    @property
    def materializations(self) -> float:
        return self.state.metrics().store["materializations"]


@pytest.fixture
def eager() -> ChangelogStateBackend:
    """Materializes as soon as anything was logged."""
    return ChangelogStateBackend(
        materialization_interval_s=None,
        least_log_bytes=0,
        log_ratio=0.0,
        persist_threshold_bytes=1,
        max_materialization_failures=2,
    )


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        run.state.close()


def materialize(run: Run, wanted: float) -> None:
    """Tend until so many are done: the background has time of its own."""
    for _ in range(WAIT_S * 100):
        run.tend()
        if run.materializations >= wanted:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{run.materializations} materializations, and {wanted} were to be")


def test_no_materialization_begins_before_the_last_is_in_a_completed_checkpoint(
    job: JobStorage, eager: ChangelogStateBackend, runs: list[Run]
) -> None:
    """It builds on the files of that one, which may be deleted until then."""
    run = Run(job, eager)
    runs.append(run)
    run.write(0)
    materialize(run, 1)
    for round_ in range(5):
        run.write(round_)
        run.tend()
        run.tend()
    assert run.materializations == 1
    first = run.snapshot(1)
    assert run.has_base(first)
    for _ in range(5):
        run.write(7)
        run.tend()
    assert run.materializations == 1
    run.state.notify_checkpoint_complete(1)
    run.write(8)
    materialize(run, 2)


def test_without_a_base_changes_are_not_kept(job: JobStorage, runs: list[Run]) -> None:
    backend = ChangelogStateBackend(persist_threshold_bytes=1000, max_in_flight_bytes=1000)
    run = Run(job, backend)
    runs.append(run)
    run.write(0)
    snapshot = run.snapshot(1)
    other = Run(job, backend, restore=[snapshot], first=2)  # not told to build on it
    runs.append(other)
    for round_ in range(30):
        other.write(round_, 12_000)
        assert other.tend()
    assert other.state.metrics().store["log_pieces"] == 0
    whole = other.snapshot(2)
    assert other.has_base(whole)
    assert snapshot.files().isdisjoint(whole.files())


def test_a_neutral_checkpoint_leaves_room(job: JobStorage, runs: list[Run]) -> None:
    backend = ChangelogStateBackend(
        persist_threshold_bytes=5_000, max_in_flight_bytes=5_000, persist_interval_s=None
    )
    run = Run(job, backend)
    runs.append(run)
    run.write(0, 2_000)
    run.tend()
    run.state.snapshot(1, job, form=SnapshotForm.NEUTRAL).result(WAIT_S)
    run.state.notify_checkpoint_complete(1)
    for _ in range(WAIT_S * 100):
        if run.tend():
            return
        threading.Event().wait(0.01)
    raise AssertionError("there is no room any more")


def test_no_materialization_begins_while_a_checkpoint_writes_a_base(
    job: JobStorage,
    eager: ChangelogStateBackend,
    runs: list[Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would build on the base before that one, whose files go when that one is complete."""
    monkeypatch.setattr(file_snapshots, "_SHARED_FROM_BYTES", 1)
    inner = load_backend("rocksdb", memory="16m", directories=[str(tmp_path / "state")])
    run = Run(job, ChangelogStateBackend(inner, eager.options))
    runs.append(run)
    run.write(0)
    run.state.snapshot(1, job, form=SnapshotForm.NEUTRAL).result(WAIT_S)
    run.state.notify_checkpoint_complete(1)
    run.write(10)
    run.snapshot(2)
    run.write(20)
    third = run.snapshot(3)
    run.state.notify_checkpoint_complete(2)
    run.write(30)
    run.tend()
    run.tend()
    run.state.notify_checkpoint_complete(3)
    materialize(run, 1)
    fourth = run.snapshot(4)
    assert run.has_base(fourth)
    files = files_of(fourth)
    assert files & files_of(third), "it does build on the last one"
    assert {names.writer_of(file) for file in files - files_of(third)} <= {4}


def files_of(snapshot: StateSnapshot) -> set[str]:
    return {each.file for each in snapshot.handles.values() if isinstance(each, FileHandle)}


def test_a_materialization_that_cannot_begin_counts_as_failed(
    job: JobStorage,
    eager: ChangelogStateBackend,
    runs: list[Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(job, eager)
    runs.append(run)

    def fail(*_: object) -> None:
        raise Unavailable("the disk is on fire")

    monkeypatch.setattr(ObjectTableStore, "freeze", fail)
    run.write(0)
    for _ in range(2):  # to begin, and to see what became of it
        run.tend()
    assert run.state.metrics().store["materialization_failures"] >= 1
    monkeypatch.undo()
    run.write(1)
    run.tend(later_ms=10_000)
    materialize(run, 1)


class Fresh(HashMapStateBackend):
    """Its store answers another object each time it is asked for the same table."""

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        class Store(ObjectTableStore):
            def table(self, spec: TableSpec) -> Table:
                there = super().table(spec)
                if not isinstance(there, ObjectValueTable):
                    return there
                another = ObjectValueTable(spec)
                another.entries = there.entries
                another.direct = there.entries
                return another

        return Store(max_parallelism)


def test_a_store_may_return_another_object_for_the_same_table(
    job: JobStorage, runs: list[Run]
) -> None:
    backend = ChangelogStateBackend(Fresh())
    run = Run(job, backend)
    runs.append(run)
    run.write(0, 10)
    first = run.snapshot(1)
    run.write(100, 10)
    second = run.snapshot(2)
    for snapshot, start in ((first, 0), (second, 100)):
        other = Run(job, backend, restore=[snapshot], first=3)
        runs.append(other)
        other.state.set_current_key(4)
        assert other.value.value() == start + 4
        other.value.update(1)
        third = other.snapshot(3)
        again = Run(job, backend, restore=[third], first=4)
        runs.append(again)
        again.state.set_current_key(4)
        assert again.value.value() == 1
