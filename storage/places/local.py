"""A directory of the local machine, or one that the kernel mounts.

An object is written under a hidden name beside its own, synced, and then moved (`write`) or
linked (`create`: a link has one winner) into place, and the directory is synced. A killed writer
leaves at most the hidden file, which `unfinished` finds.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote

from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import HoldfastError, Invalid, NotFound
from holdfast.storage.interface import (
    Buffer,
    Capabilities,
    ObjectInfo,
    ObjectWriter,
    UnfinishedWrite,
    check_range,
    flat,
)
from holdfast.storage.names import check_name
from holdfast.storage.places.file_errors import translated
from holdfast.storage.places.hidden_names import hidden_name, target_of, walk

__all__ = ["LocalObjects", "local_path", "make_directories", "sync_directory"]

# Each is lost to a process that has just removed the directory, since it was empty.
_MKDIR_ATTEMPTS = 100
_PROBE = "probe"
_OUR_PROBE = re.compile(rf"\.{_PROBE}\.[0-9a-f]{{16}}\.unfinished(\.linked)?")


class LocalObjects:
    """The verbs of `CheckpointStorage` over a directory; the contract is described there."""

    capabilities = Capabilities(
        shared_between_processes=True, durable=True, atomic_create=True, late_creates=False
    )

    def __init__(self, root: str, entropy: Entropy) -> None:
        self._root = root
        self._entropy = entropy

    @property
    def identity(self) -> str:
        """See `CheckpointStorage.identity`: links are followed."""
        return f"file://{os.path.realpath(self._root)}"

    def prepare(self) -> None:
        try:
            make_directories(self._root)
            while not self._can_link():
                pass  # another process deleted the probe
        except OSError as error:
            raise translated(error, "prepare the checkpoint directory", self._root) from error

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        path = self.path(name)
        end = check_range(name, offset, length)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(descriptor).st_size
                wanted = max((size if end is None else min(end, size)) - offset, 0)
                return _read_fully(descriptor, offset, wanted)
            finally:
                os.close(descriptor)
        except OSError as error:
            if self._is_absence(error):
                raise NotFound("no such object", where=path) from None
            raise translated(error, "read", path) from error

    def writer(self, name: str) -> ObjectWriter:
        return _LocalWriter(self, name)

    def create(self, name: str, data: Buffer) -> bytes | None:
        writer = _LocalWriter(self, name)
        try:
            writer.write(data)
            # Not exists-then-write: two drivers would both believe that they had won.
            while not writer.link():
                with suppress(NotFound):  # it was just deleted: try to create again
                    return self.read_range(name, 0, None)
            return None
        finally:
            writer.abort()

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for name, entry in walk(prefix, self._entries):
            if not entry.name.startswith("."):
                size_bytes = _size_of(entry)
                if size_bytes is not None:
                    yield ObjectInfo(name, size_bytes)

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        for name, entry in walk(prefix, self._entries):
            target = target_of(name)
            if target is not None and target.startswith(prefix):
                size_bytes = _size_of(entry)
                if size_bytes is not None:
                    yield UnfinishedWrite(name, target, size_bytes)

    def delete(self, names: Iterable[str]) -> None:
        failure: HoldfastError | None = None
        folders = set()
        for name in names:
            path = os.path.join(self._root, name)
            try:
                check_name(target_of(name) or name)
                os.unlink(path)
                folders.add(os.path.dirname(path))
            except Invalid as error:
                failure = failure or error
            except OSError as error:
                if self._is_absence(error) or os.path.isdir(path):
                    continue
                failure = failure or translated(error, "delete", path)
        for folder in folders:
            try:
                self._prune(folder)
            except OSError as error:
                failure = failure or translated(error, "finish deleting", folder)
        if failure is not None:
            raise failure

    def temporary(self, name: str) -> tuple[int, str]:
        """A new hidden file beside the object, open for writing; makes its directories."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for attempt in range(_MKDIR_ATTEMPTS):
            hidden = os.path.join(self._root, hidden_name(name, self._entropy))
            try:
                return os.open(hidden, flags, 0o644), hidden
            except FileNotFoundError:
                # This is the first object here, or the last one has just been deleted.
                if attempt == _MKDIR_ATTEMPTS - 1:
                    raise
                with suppress(FileNotFoundError):  # being deleted at this moment: try again
                    make_directories(os.path.dirname(hidden))
        raise AssertionError("the last attempt returns or raises")

    def sync_names(self, path: str) -> None:
        """Make all names durable that lead from the root to an object.

        A directory above may have been made by a process that was killed before the sync.
        """
        folder = os.path.dirname(path)
        while True:
            sync_directory(folder)
            if len(folder) <= len(self._root):
                return
            folder = os.path.dirname(folder)

    def path(self, name: str) -> str:
        return os.path.join(self._root, check_name(name))

    def _is_absence(self, error: OSError) -> bool:
        """Whether the error means that the object is absent, not that the place is wrong.

        An object can lie where a longer name needs a folder, and a folder where a name has an
        object.
        """
        if isinstance(error, NotADirectoryError):
            return os.path.isdir(self._root)
        return isinstance(error, FileNotFoundError | IsADirectoryError)

    def _can_link(self) -> bool:
        """Try the calls that a create needs; delete the probes, also those of killed processes."""
        descriptor, probe = self.temporary(_PROBE)
        os.close(descriptor)
        try:
            os.link(probe, f"{probe}.linked")
        except FileNotFoundError:
            return False
        finally:
            for left in os.listdir(self._root):
                if _OUR_PROBE.fullmatch(left):
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(self._root, left))
        return True

    def _prune(self, folder: str) -> None:
        """Remove directories that have become empty, up to the root, and make that durable.

        Otherwise a commit point could come back after a power loss, without the files deleted after
        it.
        """
        while folder != self._root and folder.startswith(self._root):
            try:
                os.rmdir(folder)
            except OSError:
                break
            folder = os.path.dirname(folder)
        with suppress(FileNotFoundError):  # the process that removed it syncs the parent
            sync_directory(folder)

    def _entries(self, folder: str) -> Sequence[tuple[str, os.DirEntry[str]]]:
        """The names in a folder, those of folders with a slash at the end, and the entries."""
        path = os.path.join(self._root, folder)
        try:
            with os.scandir(path) as entries:
                return sorted(
                    (entry.name + "/" if entry.is_dir() else entry.name, entry) for entry in entries
                )
        except OSError as error:
            if self._is_absence(error):
                return []
            raise translated(error, "list", path) from error


class _LocalWriter(ObjectWriter):
    def __init__(self, objects: LocalObjects, name: str) -> None:
        self._objects = objects
        self._path = objects.path(name)
        try:
            self._descriptor, self._hidden = objects.temporary(name)
        except OSError as error:
            raise translated(error, "begin to write", self._path) from error

    def write(self, data: Buffer) -> None:
        self._check_open()
        view = memoryview(flat(data))
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise translated(error, "write", self._path) from error

    def commit(self) -> None:
        self._check_open()
        try:
            self._sync()
            os.replace(self._hidden, self._path)
            self._objects.sync_names(self._path)
        except OSError as error:
            raise translated(error, "finish writing", self._path) from error

    def link(self) -> bool:
        """Commit if there is no such object, else call again; `abort` removes the hidden file.

        The directory is synced also when the object exists: an earlier call of the same caller may
        have created it and failed to sync.
        """
        created = True
        try:
            if self._descriptor >= 0:
                self._sync()
            try:
                os.link(self._hidden, self._path)
            except FileExistsError:
                if os.path.isdir(self._path):
                    raise
                created = False
            self._objects.sync_names(self._path)
        except OSError as error:
            raise translated(error, "create", self._path) from error
        return created

    def abort(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        with suppress(OSError):
            os.unlink(self._hidden)

    def _sync(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _check_open(self) -> None:
        if self._descriptor < 0:
            raise Invalid("the object was committed or aborted before", where=self._path)


def _size_of(entry: os.DirEntry[str]) -> int | None:
    """The size of a file; None when it was just deleted."""
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise translated(error, "list", entry.path) from error


def _read_fully(descriptor: int, offset: int, wanted: int) -> bytes:
    if not wanted:
        offset = (
            0  # an offset past the end may overflow in the kernel; the call still detects folders
        )
    data = os.pread(descriptor, wanted, offset)
    if len(data) == wanted:
        return data
    pieces = [data]
    missing = wanted - len(data)
    while missing and data:  # the kernel reads at most 2 GiB at once
        offset += len(data)
        data = os.pread(descriptor, missing, offset)
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)


def local_path(url: str, *, what: str) -> str | None:
    """The absolute path that a path or a `file:` URL names; None for any other URL.

    A `file:` URL is decoded by RFC 8089, so that results of `Path.as_uri` are understood.

    Raises:
        Invalid: it names no place; the error calls it `what`.
    """
    path = url
    if url.startswith("file:"):
        path = unquote(url.removeprefix("file:"))
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            if host not in ("", "localhost") or not slash:
                raise Invalid(
                    "a file URL does not name an absolute path of this machine",
                    where=url,
                    expected="file:///absolute/path",
                )
            path = f"/{rest}"
    elif "://" in url:
        return None
    if not path or "\0" in path:
        raise Invalid(
            f"{what} names no place",
            expected="a path or a URL, without a NUL character",
            found=repr(url),
        )
    return os.path.abspath(path)


def make_directories(directory: str) -> None:
    """Make the directory, and make it durable: the parent of every new one is synced."""
    missing = []
    while directory and not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    for path in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(path)
        if not os.path.isdir(path) and os.path.lexists(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        sync_directory(os.path.dirname(path) or ".")


def sync_directory(path: str) -> None:
    """Make the names in a directory survive the loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
