"""Any file system that fsspec knows, with the guarantees that it can prove.

How an object becomes visible as a whole, and how `create` has one winner, differs:

- `memory`: one call puts the whole object; a lock of this process makes one winner.
- `s3`, `hdfs` and their other names have storages of their own, which can do more.
- any other: written under a hidden name and moved. fsspec has no create with one winner, so such a
  place is refused unless the caller accepts the risk by an option.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import HoldfastError, Invalid, NotFound, Unavailable
from holdfast.storage.interface import (
    Buffer,
    Capabilities,
    ObjectInfo,
    ObjectWriter,
    UnfinishedWrite,
    check_range,
    flat,
)
from holdfast.storage.names import check_name, is_legal
from holdfast.storage.places.file_errors import translated
from holdfast.storage.places.fsspec.urls import (
    FsspecAddress,
    file_system_class,
    without_password,
)
from holdfast.storage.places.hidden_names import hidden_name, objects_in, target_of, unfinished_in
from holdfast.storage.places.whole_writer import WholeWriter

__all__ = ["FsspecObjects"]

_IN_MEMORY = frozenset({"memory"})
_READ_ONLY = frozenset({"http", "https", "data", "zip", "tar"})
_HAVE_THEIR_OWN = frozenset({"s3", "s3a", "hdfs", "viewfs"})
_CREATE_ATTEMPTS = 10
_LOOKING = frozenset({"read", "list", "delete"})
_memory_lock = threading.Lock()


class FsspecObjects:
    """The verbs of `ObjectStorage` over fsspec."""

    def __init__(
        self,
        url: str,
        storage_options: dict[str, Any],
        entropy: Entropy,
        *,
        allow_unsafe_commit: bool,
    ) -> None:
        self._options = storage_options
        self._entropy = entropy
        self._scheme = url.partition("://")[0]
        self._shown_url = without_password(url)
        self._address = FsspecAddress(self._supported(), url, storage_options)
        self._root = self._address.root
        proven = self._scheme in _IN_MEMORY
        if self._scheme in _READ_ONLY and not allow_unsafe_commit:
            raise Invalid(
                f"checkpoints and savepoints cannot be kept at, or read from, {self._scheme}",
                where=self._shown_url,
                expected="a path, or a URL such as s3://bucket/path or hdfs://host/path",
                fix="Copy what is there to such a place, and name that",
            )
        if not proven and not allow_unsafe_commit:
            raise Invalid(
                f"a {self._scheme} file system cannot prove that one of two writers wins",
                where=self._shown_url,
                expected="a storage with an atomic create: file://, hdfs://, s3://",
                fix="If no second driver can ever run this job, pass allow_unsafe_commit=True",
            )
        self.capabilities = Capabilities(
            shared_between_processes=self._scheme not in _IN_MEMORY,
            durable=False,  # fsspec has no sync
            atomic_create=proven,
            late_creates=not proven,
        )

    @property
    def identity(self) -> str:
        """See `ObjectStorage.identity`."""
        return f"{self._address.server} {without_password(self._root)}"

    def at(self, url: str) -> FsspecObjects | None:
        """See `ObjectStorage.at`; a URL without password takes that of this place."""
        is_unsafe = not self.capabilities.atomic_create
        try:
            other = FsspecObjects(url, self._options, self._entropy, allow_unsafe_commit=is_unsafe)
        except Invalid:
            return None
        address = other._address.led_by(self._address)
        if address is None:
            return None
        other._address = address
        return other

    def warn_of_secrets(self) -> None:
        """Warn, once in a process for each place, that a password travels with it."""
        self._address.warn_of_secrets()

    def prepare(self) -> None:
        with self._translating("prepare", self._shown_url):
            self._files.makedirs(self._root, exist_ok=True)

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        check_name(name)
        end = check_range(name, offset, length)
        path = self._path(name)
        with self._translating("read", path):
            with self._folders_are_absent(path):
                info = self._files.info(path)
            if info["type"] != "file":
                raise FileNotFoundError(path)
            if offset >= info["size"] or (end is not None and end <= offset):
                return b""
            # Not limited to the size seen above: a longer object may have replaced it.
            stop = end if end is not None and end < info["size"] else None
            return bytes(self._files.cat_file(path, start=offset or None, end=stop))[:length]

    def writer(self, name: str) -> ObjectWriter:
        path = self._path(check_name(name))
        if self._scheme in _IN_MEMORY:
            return WholeWriter(partial(self._put, path), path)
        with self._translating("begin to write", path):
            hidden = self._path(hidden_name(name, self._entropy))
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            return _FileWriter(
                self,
                path,
                self._files.open(hidden, "wb"),
                publish=partial(self._move, hidden, path),
                discard=partial(self._files.rm_file, hidden),
            )

    def create(self, name: str, data: Buffer) -> bytes | None:
        path = self._path(check_name(name))
        mine = bytes(data)
        attempt = 1
        while True:
            try:
                with self._translating("create", path):
                    self._create(name, path, mine)
                return None
            except HoldfastError as error:
                with suppress(NotFound):
                    return self.read_range(name, 0, None)
                gone = isinstance(error.__cause__, FileExistsError)
                if not gone or attempt == _CREATE_ATTEMPTS:
                    raise
            attempt += 1

    def _create(self, name: str, path: str, data: bytes) -> None:
        if self._scheme in _IN_MEMORY:
            with _memory_lock:
                self._check_no_folder(path)
                self._files.pipe_file(path, data, mode="create")
        else:
            if self._files.exists(path):
                raise FileExistsError(path)
            with self.writer(name) as writer:
                writer.write(data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return objects_in(self._walk(prefix), prefix)

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        return unfinished_in(self._walk(prefix), prefix)

    def delete(self, names: Iterable[str]) -> None:
        failure: HoldfastError | None = None
        for name in names:
            path = self._path(name)
            try:
                check_name(target_of(name) or name)
                with self._translating("delete", path), self._folders_are_absent(path):
                    self._files.rm_file(path)
            except NotFound:
                continue
            except HoldfastError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _supported(self) -> Any:
        """The class of the file system."""
        if self._scheme in _HAVE_THEIR_OWN:
            raise Invalid(
                f"URLs of scheme {self._scheme!r} have a storage of their own",
                where=self._shown_url,
                fix=f"Use that one: storage={self._shown_url!r}, or load_storage with this URL",
            )
        return file_system_class(self._scheme, self._shown_url, kind="storage")

    @property
    def _files(self) -> Any:
        """The client; use it where errors are translated."""
        return self._address.files

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _walk(self, prefix: str) -> Iterable[tuple[str, int]]:
        """Every file in the prefix's folder and below, hidden ones too, in order of name."""
        folder = prefix.rpartition("/")[0]
        if folder and not is_legal(folder):
            return []  # no name begins so, and the path could lead out of the root
        path = self._path(folder).rstrip("/")
        start = len(self._root) + 1
        try:
            with self._translating("list", path), self._folders_are_absent(path):
                found = self._files.find(path, detail=True, **self._walk_options)
        except NotFound:
            return []
        return sorted(
            (file[start:], info["size"])
            for file, info in found.items()
            if len(file) > start and info.get("type") == "file"
        )

    @property
    def _walk_options(self) -> dict[str, Any]:
        """Options that make fsspec's own walk fail at a folder that it cannot read.

        Without them it skips the folder, and an owner could overlook the claim of a newer one.
        """
        own_listing = self._scheme in _IN_MEMORY
        return {} if own_listing else {"on_error": _unless_absent}

    def _put(self, path: str, data: bytes) -> None:
        with self._translating("write", path), _memory_lock:
            self._check_no_folder(path)
            self._files.pipe_file(path, data)

    def _move(self, hidden: str, path: str) -> None:
        self._check_no_folder(path)
        self._files.mv(hidden, path)

    def _check_no_folder(self, path: str) -> None:
        """Refuse a folder as target: some file systems move the object into it, others lose it."""
        if self._files.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)

    @contextmanager
    def _folders_are_absent(self, path: str) -> Iterator[None]:
        """Treat a folder where an object is asked for, or the reverse, as an absent object."""
        try:
            yield
        except IsADirectoryError as error:
            raise FileNotFoundError(path) from error
        except NotADirectoryError as error:
            if not self._files.isdir(self._root):
                raise
            raise FileNotFoundError(path) from error

    @contextmanager
    def _translating(self, action: str, path: str) -> Iterator[None]:
        """Translate the errors of libraries below."""
        path = without_password(path)
        try:
            yield
        except HoldfastError:
            raise
        except FileNotFoundError as error:
            if action in _LOOKING:
                raise NotFound("no such object", where=path) from error
            raise Unavailable(
                f"cannot {action}", where=path, found=self._address.shown(str(error))
            ) from error
        except OSError as error:
            said = translated(error, action, path)
            raise said.replaced(found=self._address.shown(said.found)) from error
        except Exception as error:
            first_line = self._address.shown(str(error)).partition("\n")[0]
            raise Unavailable(
                f"cannot {action}", where=path, found=f"{type(error).__name__}: {first_line}"
            ) from error


class _FileWriter(ObjectWriter):
    """Writes to a file of fsspec, which `publish` makes visible and `discard` gives up."""

    def __init__(
        self,
        objects: FsspecObjects,
        path: str,
        file: Any,
        *,
        publish: Callable[[], None],
        discard: Callable[[], None],
    ) -> None:
        self._objects = objects
        self._path = path
        self._file: Any = file
        self._publish = publish
        self._discard = discard

    def write(self, data: Buffer) -> None:
        file = self._open()
        with self._objects._translating("write", self._path):
            file.write(flat(data))

    def commit(self) -> None:
        file = self._open()
        with self._objects._translating("finish writing", self._path):
            file.close()
            self._publish()
        self._file = None

    def abort(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                with self._objects._translating("give up writing", self._path):
                    file.close()
                    self._discard()
            except HoldfastError:
                return  # `unfinished` or the store's own clean-up finds what is left

    def _open(self) -> Any:
        if self._file is None:
            raise Invalid("the object was committed or aborted before", where=self._path)
        return self._file


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
