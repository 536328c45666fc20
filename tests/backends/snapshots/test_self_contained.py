"""Snapshots for savepoints: they share no files with other snapshots."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import (
    EarlyFiles,
    KeyedStateBackend,
    KeyGroupRange,
    SnapshotForm,
    StateBackend,
    ValueStateDescriptor,
)
from holdfast.backends.testing.gates import Gate
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    FileHandle,
    OperatorState,
    SavepointFolder,
    StateFolder,
    StateSnapshot,
    load_storage,
)

GROUPS = KeyGroupRange(0, 15)
KEYS = 3_000
WAIT_S = 60
each_form = pytest.mark.parametrize("form", [SnapshotForm.NATIVE, SnapshotForm.CANONICAL])


def opened(
    backend: StateBackend,
    storage: CheckpointStorage,
    *restore: StateSnapshot,
    folder: StateFolder | None = None,
) -> KeyedStateBackend:
    return backend.open(
        uid="op",
        key_groups=GROUPS,
        max_parallelism=16,
        key_type=int,
        restore=restore,
        storage=folder,
        early=EarlyFiles(storage.job("job"), 1),
    )


def fill(state: KeyedStateBackend, chance: random.Random, keys: range) -> dict[int, str]:
    values = state.get_state(ValueStateDescriptor("text", str))
    wanted = {key: chance.randbytes(40).hex() for key in keys}
    for key, text in wanted.items():
        state.set_current_key(key)
        values.update(text)
    return wanted


def contents(state: KeyedStateBackend) -> dict[int, str]:
    values = state.get_state(ValueStateDescriptor("text", str))
    found = {}
    for key in [*state.keys("text")]:
        state.set_current_key(key)
        found[key] = values.value()
    return found


@each_form
def test_a_self_contained_snapshot_shares_no_files_and_changes_no_other(
    backend: StateBackend, quick_path: Path, form: SnapshotForm
) -> None:
    storage = load_storage(str(quick_path / "storage"), inline_limit_bytes=0)
    job, folder = storage.job("job"), SavepointFolder.begin(storage, "job")
    chance = random.Random(1)
    with opened(backend, storage) as state:
        wanted = fill(state, chance, range(KEYS))
        first = state.snapshot(1, job).result(WAIT_S)
        state.notify_checkpoint_complete(1)
        wanted |= fill(state, chance, range(KEYS, KEYS + 100))
        saved = state.snapshot(2, folder, form=form).result(WAIT_S)
        later = {**wanted, **fill(state, chance, range(50))}
        third = state.snapshot(3, job).result(WAIT_S)
        state.notify_checkpoint_complete(3)
        fourth = state.snapshot(4, job).result(WAIT_S)
        assert contents(state) == later

    there = {info.name.partition("/")[2] for info in storage.list(f"{folder.folder}/")}
    assert there, "state was written"
    assert saved.files() == there
    for other in (first, third, fourth):
        assert not other.files() & there
    if backend.capabilities.own_snapshots:
        assert first.files() & third.files(), "it goes on from the checkpoint before"
    assert first.kind == third.kind, "the savepoint has taken no base away"

    part = OperatorState(parallelism=1, max_parallelism=16, parts=(saved,))
    metadata = CheckpointMetadata(
        job_id="job",
        checkpoint_id=2,
        kind="savepoint",
        triggered_ms=0,
        completed_ms=0,
        operators={"op": part},
    )
    folder.commit(metadata)
    storage.delete(info.name for info in storage.list("job/"))
    assert folder.load().files() == there
    with opened(backend, storage, saved, folder=folder) as state:
        assert contents(state) == wanted
        own = state.snapshot(5, job).result(WAIT_S)
    assert not own.files() & there, "and nothing of the job refers to it when it is restored"
    assert all(
        handle.file in there for handle in saved.handles.values() if isinstance(handle, FileHandle)
    )


@each_form
def test_a_failed_or_cancelled_self_contained_snapshot_changes_nothing(
    backend: StateBackend, quick_path: Path, form: SnapshotForm
) -> None:
    storage = load_storage(str(quick_path / "storage"), inline_limit_bytes=0)
    job, folder = storage.job("job"), SavepointFolder.begin(storage, "job")
    chance = random.Random(2)
    with opened(backend, storage) as state:
        wanted = fill(state, chance, range(KEYS))
        state.snapshot(1, job).result(WAIT_S)
        state.notify_checkpoint_complete(1)
        wanted |= fill(state, chance, range(10))
        state.snapshot(2, folder, form=form).cancel()
        state.notify_checkpoint_aborted(2)
        wanted |= fill(state, chance, range(10, 20))
        third = state.snapshot(3, job).result(WAIT_S)
        state.notify_checkpoint_complete(3)
    folder.discard()
    assert [*storage.list(f"{folder.folder}/")] == []
    with opened(backend, storage, third, folder=job) as state:
        assert contents(state) == wanted


@each_form
def test_no_checkpoint_waits_for_a_slow_self_contained_snapshot(
    backend: StateBackend, quick_path: Path, form: SnapshotForm
) -> None:
    storage = load_storage(str(quick_path / "storage"), inline_limit_bytes=0)
    job, folder = storage.job("job"), SavepointFolder.begin(storage, "job")
    chance, gate = random.Random(2), Gate(folder)
    with opened(backend, storage) as state:
        wanted = fill(state, chance, range(KEYS))
        slow = state.snapshot(1, gate, form=form)
        assert gate.entered.wait(WAIT_S)
        changed = {**wanted, **fill(state, chance, range(50, KEYS + 50))}
        for number in (2, 3):
            own = state.snapshot(number, job).result(WAIT_S)
            state.notify_checkpoint_complete(number)
            assert own.key_groups == (GROUPS.first, GROUPS.last)
        assert not slow.done()
        gate.open.set()
        saved = slow.result(WAIT_S)
        changed |= fill(state, chance, range(10))
        after = state.snapshot(4, job).result(WAIT_S)
        assert contents(state) == changed
    for snapshot, of, expected in ((saved, folder, wanted), (after, job, changed)):
        with opened(backend, storage, snapshot, folder=of) as restored:
            assert contents(restored) == expected
        assert snapshot.key_groups == (GROUPS.first, GROUPS.last)


@each_form
@pytest.mark.parametrize("kind", [str, bytes])
@pytest.mark.parametrize("lengths", [(16,), (1,), (16, 17)], ids=str)
def test_keys_of_one_length_are_written_in_order_too(
    backend: StateBackend,
    quick_path: Path,
    form: SnapshotForm,
    kind: type,
    lengths: tuple[int, ...],
) -> None:
    """Also those that a terminator could be taken for, and those beyond ASCII."""
    letters = ["a", "b", "\x00", "\x01", "\x7f", "z"] + (["ö"] if kind is str else [])
    chance = random.Random(4)
    texts = {
        "".join(chance.choices(letters, k=chance.choice(lengths))): number for number in range(KEYS)
    }
    wanted = {text if kind is str else text.encode(): number for text, number in texts.items()}
    storage = load_storage(str(quick_path / "storage"), inline_limit_bytes=0)
    folder = SavepointFolder.begin(storage, "job")
    total = ValueStateDescriptor("total", int)
    opening: dict[str, Any] = {
        "uid": "op",
        "key_groups": GROUPS,
        "max_parallelism": 16,
        "key_type": kind,
    }
    with backend.open(**opening) as state:
        state.get_state(total).put_many(list(wanted), list(wanted.values()))
        saved = state.snapshot(1, folder, form=form).result(WAIT_S)
    with backend.open(**opening, restore=[saved], storage=folder) as state:
        values = state.get_state(total)
        found = {}
        for key in [*state.keys("total")]:
            state.set_current_key(key)
            found[key] = values.value()
    assert found == wanted
