"""Native snapshots of RocksDB, and the files and directories that come and go with them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from holdfast.backends.file_snapshots import ConfirmedFiles
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.rocksdb_memory import SlotMemory
from holdfast.storage import JobStorage, StateSnapshot, load_storage, names
from rocksdb_states import (
    LIST,
    LOW,
    MAP,
    VALUE,
    files_below,
    fill,
    opened,
    rocksdb_in,
)
from state_targets import files_of


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
    monkeypatch.setattr("holdfast.backends.file_snapshots._SHARED_FROM_BYTES", 1)


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
    rocksdb: RocksDBStateBackend, job: JobStorage, *, neutral: bool
) -> None:
    with opened(rocksdb) as backend:
        fill(backend)
        first = backend.snapshot(1, job).result(30)
    with opened(rocksdb, first, job=job) as backend:
        backend.build_on_restored()
        backend.notify_checkpoint_complete(1)  # as a barrier says
        second = backend.snapshot(2, job, neutral=neutral).result(30)
        assert writers(second) == ({2} if neutral else {1, 2})
        backend.notify_checkpoint_complete(2)
        third = backend.snapshot(3, job).result(30)
    assert writers(third) <= writers(second) | {3}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to see open files")
def test_a_closed_backend_keeps_no_file_open_whoever_has_its_states(
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
        return 2

    def get_buffer_size(self) -> int:
        return 1


def test_write_buffers_are_not_gone_while_another_thread_empties_them(
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
