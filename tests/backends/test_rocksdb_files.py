"""Native snapshots of RocksDB, and the files and directories that come and go with them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from holdfast.backends.file_snapshots import ConfirmedFiles
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.storage import JobStorage, StateSnapshot, load_storage, names
from state_targets import files_of

ALL = KeyGroupRange(0, 127)
VALUE = ValueStateDescriptor("value", int)
LIST = ListStateDescriptor("list", str)
MAP = MapStateDescriptor("map", str, int)
KEYS = range(300)


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path / "storage"), inline_limit_bytes=0).job("job")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where state is kept while it is live; a test that has passed leaves nothing there."""
    folder = tmp_path / "state"
    yield folder
    assert files_below(folder) == []


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def every_file_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.backends.file_snapshots._SHARED_FROM_BYTES", 1)


@contextmanager
def opened(
    place: Path,
    *snapshots: StateSnapshot,
    job: JobStorage | None = None,
    key_groups: KeyGroupRange = ALL,
) -> Iterator[KeyedStateBackend]:
    backend = RocksDBStateBackend(memory="16m", directories=[str(place)])
    with backend.open(
        uid="op",
        key_groups=key_groups,
        max_parallelism=128,
        key_type=int,
        restore=snapshots,
        storage=job,
    ) as state:
        yield state


def fill(backend: KeyedStateBackend, keys: range = KEYS) -> None:
    backend.get_state(VALUE).put_many(list(keys), list(keys))
    elements, entries = backend.get_state(LIST), backend.get_state(MAP)
    for key in keys:
        backend.set_current_key(key)
        elements.add_all([f"a{key}", f"b{key}"])
        entries.put_all({"x": key, "y": -key})


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
@pytest.mark.parametrize("neutral", [False, True])
def test_what_was_restored_is_built_on_until_a_newer_one_is_complete(
    place: Path, job: JobStorage, *, neutral: bool
) -> None:
    with opened(place) as backend:
        fill(backend)
        first = backend.snapshot(1, job).result(30)
    with opened(place, first, job=job) as backend:
        backend.build_on_restored()
        backend.notify_checkpoint_complete(1)  # as a barrier says
        second = backend.snapshot(2, job, neutral=neutral).result(30)
        assert writers(second) == ({2} if neutral else {1, 2})
        backend.notify_checkpoint_complete(2)
        third = backend.snapshot(3, job).result(30)
    assert writers(third) <= writers(second) | {3}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to see open files")
def test_a_closed_backend_keeps_no_file_open_whoever_has_its_states(
    place: Path, job: JobStorage
) -> None:
    with opened(place) as backend:
        fill(backend)
        first = backend.snapshot(1, job)
        states = [backend.get_state(each) for each in (VALUE, LIST, MAP)]
        first.result(30)
        fill(backend)
    assert _open_below(place) == []
    with opened(place, first.result(), job=job, key_groups=KeyGroupRange(0, 40)) as other:
        states.append(other.get_state(VALUE))
    assert _open_below(place) == []
    assert len(states) == 4


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
