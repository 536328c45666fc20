"""Copies of logs on the own disk: read first where they are good, and never missed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.backends import EarlyFiles, KeyGroupRange, ListStateDescriptor, ValueStateDescriptor
from holdfast.changelog import ChangelogStateBackend
from holdfast.changelog.writing.local_copies import CopiesFirst, LocalCopies
from holdfast.storage import (
    FileHandle,
    JobStorage,
    StateSnapshot,
    SystemClock,
    Unavailable,
    load_storage,
)

ALL = KeyGroupRange(0, 127)
VALUE = ValueStateDescriptor("value", int)
LIST = ListStateDescriptor("list", str)
HOUR_S = 3600


@pytest.fixture
def near(tmp_path: Path) -> Path:
    return tmp_path / "near"


@pytest.fixture
def copies(near: Path) -> LocalCopies:
    return LocalCopies(str(near), "job", SystemClock())


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path / "far"), inline_limit_bytes=0).job("job")


def written(job: JobStorage, copies: LocalCopies, *contents: bytes) -> list[FileHandle]:
    """Segments of one file, with copies."""
    with job.shared_segments(1) as writer:
        handles = [writer.add(content) for content in contents]
    found = [handle for handle in handles if isinstance(handle, FileHandle)]
    for handle, content in zip(found, contents, strict=True):
        copies.put(handle, content)
    return found


def snapshot_of(backend: ChangelogStateBackend, job: JobStorage) -> StateSnapshot:
    with backend.open(uid="u", key_groups=ALL, max_parallelism=128, early=EarlyFiles(job)) as state:
        for key in range(300):
            state.set_current_key(key)
            state.get_state(VALUE).update(key * 2)
            state.get_state(LIST).add(str(key))
        return state.snapshot(1, job).result(30)


def check(backend: ChangelogStateBackend, job: JobStorage, snapshot: StateSnapshot) -> None:
    with backend.open(
        uid="u",
        key_groups=ALL,
        max_parallelism=128,
        restore=[snapshot],
        storage=job,
        early=EarlyFiles(job, 2),
    ) as state:
        for key in (0, 7, 299):
            state.set_current_key(key)
            assert state.get_state(VALUE).value() == key * 2
            assert state.get_state(LIST).get() == [str(key)]


@pytest.mark.parametrize("compression", ["", "lz4"])
def test_a_restore_needs_only_copies(near: Path, job: JobStorage, compression: str) -> None:
    backend = ChangelogStateBackend(local_copies=str(near), compression=compression)
    snapshot = snapshot_of(backend, job)
    job.storage.delete(f"{job.folder}/{file}" for file in snapshot.files())
    check(backend, job, snapshot)


def test_a_restore_needs_no_copies(near: Path, job: JobStorage) -> None:
    backend = ChangelogStateBackend(local_copies=str(near))
    snapshot = snapshot_of(backend, job)
    for path in filter(Path.is_file, near.rglob("*")):
        path.unlink()
    check(backend, job, snapshot)


def test_damaged_copies_are_skipped_and_logged(
    near: Path, job: JobStorage, caplog: pytest.LogCaptureFixture
) -> None:
    backend = ChangelogStateBackend(local_copies=str(near))
    snapshot = snapshot_of(backend, job)
    for path in filter(Path.is_file, near.rglob("*")):
        path.write_bytes(b"x" * path.stat().st_size)
    check(backend, job, snapshot)
    assert "a local copy of a log cannot be read" in caplog.text


def test_copied_and_stored_segments_come_in_order(job: JobStorage, copies: LocalCopies) -> None:
    near = written(job, copies, b"1", b"2")
    with job.shared_segments(2) as writer:
        far = [writer.add(b"3"), writer.add(b"4")]
    with job.segments(3) as inline:
        more = inline.add(b"5")
    order = [far[0], near[1], near[0], more, far[1]]
    assert [*CopiesFirst(job, copies).read_all(order)] == [b"3", b"2", b"1", b"5", b"4"]


def test_unneeded_copies_are_deleted(job: JobStorage, copies: LocalCopies) -> None:
    (one,), (other,), (given_up,) = (written(job, copies, data) for data in (b"1", b"2", b"3"))
    with job.shared_segments(5) as writer:
        fresh = writer.add(b"4")
    copies.put(fresh, b"4")
    first, second = object(), object()
    copies.need(first, {one.file, other.file}, 0)
    copies.need(second, {other.file}, 1)
    assert copies.has(given_up)  # the first knows of no checkpoint yet that is above it
    copies.need(first, set(), 2)
    assert not copies.has(one)
    assert not copies.has(given_up)
    assert copies.has(other)  # another operator has sets in it
    assert copies.has(fresh)  # it is for a later checkpoint
    copies.need(second, set(), 2)
    assert not copies.has(other)
    copies.need(first, set(), 5)
    copies.leave(second)
    copies.need(first, set(), 5)
    assert not copies.has(fresh)


def test_old_copies_of_ended_slots_are_deleted(
    job: JobStorage, copies: LocalCopies, near: Path
) -> None:
    (old,), (new,) = written(job, copies, b"1"), written(job, copies, b"2")
    path = copies.directory / job.folder / old.file
    long_ago_s = path.stat().st_mtime - 2 * HOUR_S
    os.utime(path, (long_ago_s, long_ago_s))
    again = LocalCopies(str(near), "another", SystemClock())
    assert copies.has(old)  # a restore may be about to read it
    again.need(object(), set(), 0)
    assert not copies.has(old)
    assert copies.has(new)


def test_other_files_are_never_deleted(job: JobStorage, copies: LocalCopies, near: Path) -> None:
    """However old it is, whatever leads there, and whatever a checkpoint names."""
    (old,) = written(job, copies, b"1")
    copy = copies.directory / job.folder / old.file
    outside = near.parent / "shared" / copy.name
    outside.parent.mkdir()
    precious = [
        outside,
        near / "thesis.tex",
        near / job.folder / old.file,
        copies.directory / "notes",
        copies.directory / job.folder / "notes",
        copies.directory / job.folder / "shared" / "00000000000000000001",
    ]
    for path in precious:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
        os.utime(path, (0, 0))
    (copies.directory / "led").symlink_to(outside.parent.parent)
    again = LocalCopies(str(near), "job", SystemClock())
    crafted = {str(outside), f"../../../shared/{copy.name}", "../notes", ".holdfast", "notes"}
    again.need(holder := object(), crafted, 9)
    again.need(holder, set(), 9)
    assert all(path.exists() for path in precious)
    assert (copies.directory / ".holdfast").exists()


def test_a_full_disk_is_logged_once_and_does_no_harm(
    near: Path, job: JobStorage, caplog: pytest.LogCaptureFixture
) -> None:
    near.write_bytes(b"no directory")
    with pytest.raises((OSError, Unavailable)):
        (near / "x").mkdir()
    backend = ChangelogStateBackend(local_copies=str(near))
    check(backend, job, snapshot_of(backend, job))
    told = [record for record in caplog.records if "no more copies" in record.message]
    assert len(told) == 1
