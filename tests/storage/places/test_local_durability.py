"""What a call over a local directory has confirmed is synced: in which order, by the calls made."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.storage import CheckpointStorage, Invalid, Unavailable, load_storage


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return load_storage(str(tmp_path))


@contextmanager
def calls_of(root: Path) -> Iterator[list[str]]:
    """The calls that change names, and those that sync, each with what it is about."""
    calls: list[str] = []

    def shown(path: str) -> str:
        name = Path(path)
        return "hidden" if name.name.startswith(".") else name.relative_to(root).as_posix()

    def watched(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*arguments: object) -> object:
            about = arguments[-1]
            path = os.readlink(f"/proc/self/fd/{about}") if name == "fsync" else str(about)
            answer: object = real(*arguments)
            calls.append(f"{name} {shown(path)}")
            return answer

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "link", "replace", "unlink", "mkdir", "rmdir"):
            patch.setattr(os, name, watched(name))
        yield calls


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name descriptors")
def test_names_are_synced_after_what_they_name(tmp_path: Path, storage: CheckpointStorage) -> None:
    with calls_of(tmp_path) as calls:
        storage.write("a/b/x", b"1")
    made = ["mkdir a", "fsync .", "mkdir a/b", "fsync a"]
    up = ["fsync a/b", "fsync a", "fsync ."]
    assert calls == [*made, "fsync hidden", "replace a/b/x", *up]
    with calls_of(tmp_path) as calls:
        assert storage.create("a/b/y", b"1") is None
    assert calls == ["fsync hidden", "link a/b/y", *up, "unlink hidden"]
    with calls_of(tmp_path) as calls:
        storage.delete(["a/b/x"])
        storage.delete(["a/b/y"])
    emptied = ["unlink a/b/y", "rmdir a/b", "rmdir a", "fsync ."]
    assert calls == ["unlink a/b/x", "fsync a/b", *emptied]


def test_a_repeated_create_confirms_only_what_is_synced(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    for _ in range(2):
        with pytest.raises(Unavailable):
            storage.create("x", b"mine")
    monkeypatch.undo()
    assert storage.create("x", b"mine") == b"mine"


def test_a_place_without_links_is_refused_for_good(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refusing)
    with pytest.raises(Invalid, match="Choose another place"):
        storage.create("x", b"1")


def test_a_range_past_what_the_kernel_can_count_is_empty(storage: CheckpointStorage) -> None:
    storage.write("x", b"1")
    assert storage.read_range("x", 2**70, 5) == b""


def test_a_write_whose_leftovers_were_removed_is_unavailable(tmp_path: Path) -> None:
    """Over fsspec too: NotFound is what readers get, a writer may try again."""
    other = load_storage("filesystem", url=f"local://{tmp_path}/other", allow_unsafe_commit=True)
    for storage in (load_storage(str(tmp_path)), other):
        writer = storage.writer("a/x")
        writer.write(b"1")
        storage.delete([write.name for write in storage.unfinished("")])
        with pytest.raises(Unavailable):
            writer.commit()
        writer.abort()


def test_a_local_directory_behind_fsspec_is_not_called_durable(tmp_path: Path) -> None:
    assert load_storage(str(tmp_path)).capabilities.durable
    other = load_storage("filesystem", url=f"local://{tmp_path}", allow_unsafe_commit=True)
    assert not other.capabilities.durable
