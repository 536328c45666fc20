"""The verbs of `ObjectStorage` over a directory of an HDFS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from holdfast.storage.clock import Clock
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
from holdfast.storage.names import check_name
from holdfast.storage.places.hdfs.client import HdfsClient, client_of, write_options
from holdfast.storage.places.hdfs.errors import NoAnswer, Reason, as_error, read_error, trouble_of
from holdfast.storage.places.hdfs.hadoop_config import HdfsSettings
from holdfast.storage.places.hdfs.writer import HdfsWriter, moving_s
from holdfast.storage.places.hidden_names import (
    hidden_name,
    objects_in,
    target_of,
    unfinished_in,
    walk,
)
from holdfast.storage.retries import Retries, Trouble

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus
    from hdfs_native._internal import RawFileWriter

__all__ = ["HdfsObjects"]

_Answer = TypeVar("_Answer")
_Entries = list[tuple[str, int]]

_PREPARING = "cannot prepare the checkpoint directory"
_PROBE = "probe"
_DELETES_AT_ONCE = 8
_DELETES_IN_HAND = 256
_ENTRIES_AT_ONCE = 1000
_CREATE_ATTEMPTS = 10
_FOLDER_RIGHTS = 0o755
# Each may be lost to another client that clears away old probes: those of killed processes.
_PROBES = 20
_OLD_MS = 600_000


class _Moved(Enum):
    YES = "yes"
    TAKEN = "taken"
    """There is another file of that name; the hidden one stays."""
    GONE = "gone"
    """There is no hidden file: it was moved before, or another client has deleted it."""


_NOT_MOVED = {Reason.ABSENT: _Moved.GONE, Reason.EXISTS: _Moved.TAKEN}


@dataclass(eq=False)
class HdfsObjects:
    """Each call to the servers is bounded in time, and repeated where that can help."""

    capabilities = Capabilities(
        shared_between_processes=True, durable=True, atomic_create=True, ranges_at_once=4
    )

    _settings: HdfsSettings
    _root: str
    _url: str
    _retries: Retries
    clock: Clock
    _entropy: Entropy

    @property
    def client(self) -> HdfsClient:
        """The client of this process: it does not travel with the settings."""
        return client_of(self._settings)

    def prepare(self) -> None:
        root = self._root or "/"
        self._do(
            _PREPARING.removeprefix("cannot "),
            root,
            lambda client: client.mkdirs(root, _FOLDER_RIGHTS, True),
        )
        proven = self.client.proven
        if root in proven:
            return
        try:
            is_proven = any(self._can_move() for _ in range(_PROBES))
        except HoldfastError as error:
            raise error.replaced(what=_PREPARING, where=self._url) from None
        if not is_proven:
            raise Unavailable(
                _PREPARING,
                where=self._url,
                found="other clients delete the probes",
                fix="Call again",
            )
        proven.add(root)

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        path = self._path(check_name(name))
        end = check_range(name, offset, length)
        return self._again("read", path, partial(self._read, path, offset, end))

    def writer(self, name: str) -> ObjectWriter:
        return HdfsWriter(self, name, self._path(check_name(name)))

    def create(self, name: str, data: Buffer) -> bytes | None:
        """See the contract.

        The hidden file has a name that no other writer uses, so of all tries to move it only one
        can take effect. If it is gone, and the object has the same content, then the move
        succeeded.
        """
        path = self._path(check_name(name))
        mine = bytes(flat(data))
        writer = self._written(name, path, mine)
        try:
            for _ in range(_CREATE_ATTEMPTS):
                moved = self._move(writer.hidden, path, overwrite=False)
                if moved is _Moved.YES:
                    writer.forget()
                    return None
                try:
                    there = self.read_range(name, 0, None)
                except NotFound:  # it was just deleted
                    if moved is _Moved.GONE:
                        break
                else:
                    return None if moved is _Moved.GONE and there == mine else there
            raise Unavailable(
                "cannot create",
                where=self.shown(path),
                found="other clients delete it at this moment",
                fix="Call again",
            )
        finally:
            writer.abort()

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return objects_in(walk(prefix, self._entries), prefix)

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        return unfinished_in(walk(prefix, self._entries), prefix)

    def delete(self, names: Iterable[str]) -> None:
        failure: HoldfastError | None = None
        left = iter(names)
        with ThreadPoolExecutor(_DELETES_AT_ONCE, "holdfast-delete") as pool:
            while batch := list(islice(left, _DELETES_IN_HAND)):
                folders = set()
                for folder, error in pool.map(self._delete, batch):
                    failure = failure or error
                    if folder is not None:
                        folders.add(folder)
                for error in pool.map(self._prune, sorted(folders)):
                    failure = failure or error
        if failure is not None:
            raise failure

    def new_hidden(self, name: str) -> tuple[RawFileWriter, str]:
        """A new file under a hidden name beside the object; its folders are made with it."""
        tried: list[str] = []

        def create(client: Client) -> RawFileWriter:
            # Each try has a name of its own: a try without an answer may take effect later, and
            # would empty a file that is being written.
            tried.append(self._path(hidden_name(name, self._entropy)))
            # Not by the client itself: its file object would finish the file when it is collected.
            return client.inner.create(tried[-1], write_options(self._settings))

        file = self._do("begin to write", self._path(name), create)
        *others, hidden = tried
        for other in others:
            with suppress(Exception):  # `unfinished` finds what is left
                self.client.call(partial(self._gone, other))
        return file, hidden

    def move(self, hidden: str, path: str, size_bytes: int) -> None:
        """Move the file to its name, replacing one that exists.

        When the answer is lost and the hidden file is gone, the file under the name tells: it has
        the same size and the modification time of the finished hidden file.
        """
        mine = self._do("finish writing", path, lambda client: client.get_file_info(hidden))
        if mine.length != size_bytes:
            raise Unavailable(
                "the file has another size than was written",
                where=self.shown(path),
                expected=f"{size_bytes} bytes",
                found=f"{mine.length} bytes",
                fix="Write it again",
            )
        if self._move(hidden, path, overwrite=True) is not _Moved.YES:
            there = self._do("finish writing", path, lambda client: client.get_file_info(path))
            if (there.length, there.modification_time) != (size_bytes, mine.modification_time):
                raise Unavailable(
                    "cannot finish writing",
                    where=self.shown(path),
                    found="another client has deleted the file under its hidden name",
                    fix="Write it again",
                )

    def remove_hidden(self, hidden: str) -> None:
        """Remove the hidden file of a writer, and folders that were made for it alone.

        Tried once: an abort must not take long, and `unfinished` finds what is left.
        """
        folder = hidden.rpartition("/")[0]
        with suppress(Exception):
            self.client.call(partial(self._gone, hidden))
            while len(folder) > len(self._root) and self.client.call(partial(self._gone, folder)):
                folder = folder.rpartition("/")[0]

    def shown(self, path: str) -> str:
        """The path as a URL of the place that the user named."""
        return f"{self._url}{path.removeprefix(self._root)}"

    def _do(self, action: str, path: str, work: Callable[[Client], _Answer]) -> _Answer:
        return self._again(action, path, lambda: self.client.call(work))

    def _again(self, action: str, path: str, call: Callable[[], _Answer]) -> _Answer:
        return self._retries.run(
            call,
            trouble_of=trouble_of,
            failed=lambda error, tried: as_error(error, action, self.shown(path), tried),
        )

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _is_absence(self, error: Exception) -> bool:
        """Whether the error means that the object is absent, not that the place is wrong.

        An object can lie where a longer name needs a folder.
        """
        said = read_error(error)
        if said.reason is Reason.WRONG_PLACE:
            return said.text.startswith(f"{self._root}/")
        return said.reason is Reason.ABSENT

    def _read(self, path: str, offset: int, end: int | None) -> bytes:
        files = self.client.files
        kept = None if end is None else files.get(path)
        if kept is not None:
            try:
                return self._range(kept, offset, end)
            except NoAnswer:
                raise
            except Exception:  # noqa: BLE001 - gone or replaced: opening it again tells
                files.drop(path)
        try:
            file = self.client.call(lambda client: client.read(path))
            if end is not None:
                files.keep(path, file)
            return self._range(file, offset, end)
        except Exception as error:
            files.drop(path)
            if not self._is_absence(error):
                raise
        raise NotFound("no such object", where=self.shown(path))

    def _range(self, file: FileReader, offset: int, end: int | None) -> bytes:
        size = len(file)
        stop = size if end is None else min(end, size)
        if stop <= offset:
            return b""
        wanted = stop - offset
        return self.client.call(lambda _: file.read_range(offset, wanted), more_s=moving_s(wanted))

    def _written(self, name: str, path: str, data: bytes) -> HdfsWriter:
        """A writer that has written and closed the hidden file of the object."""
        writer: HdfsWriter | None = None

        def attempt() -> HdfsWriter:
            nonlocal writer
            writer = None
            writer = HdfsWriter(self, name, path)
            try:
                writer.write(data)
                writer.close()
            except BaseException:
                writer.abort()
                raise
            return writer

        def trouble(_: Exception) -> Trouble | None:
            """The trouble of the writer; beginning it was already retried."""
            if writer is None or writer.failure is None:
                return None
            lost = read_error(writer.failure).reason in (Reason.ABSENT, Reason.LOST)
            return Trouble.CONTENDED if lost else trouble_of(writer.failure)

        return self._retries.run(attempt, trouble_of=trouble, failed=lambda error, _: error)

    def _move(self, hidden: str, path: str, *, overwrite: bool) -> _Moved:
        def rename(client: Client) -> _Moved:
            try:
                client.rename(hidden, path, overwrite)
            except Exception as error:
                reason = read_error(error).reason
                if reason not in _NOT_MOVED:
                    raise
                return _NOT_MOVED[reason]
            return _Moved.YES

        try:
            return self._do("finish writing", path, rename)
        finally:
            self.client.files.drop(path)

    def _can_move(self) -> bool:
        """Try the calls that a create needs; delete the probes, also those of killed processes."""
        place = self._path(f".{_PROBE}.{self._entropy.token()}")
        try:
            moved = [self._probed(place, content) for content in (_PROBE.encode(), b"")]
            if moved == [_Moved.YES, _Moved.YES]:
                raise Invalid(
                    "two files were moved to one name",
                    expected="the second move to be refused: commits need that",
                    found="it succeeded",
                    fix="Choose another place for checkpoints",
                )
            if moved == [_Moved.YES, _Moved.TAKEN]:
                self._clear_old_probes(place)
        except BaseException:
            with suppress(HoldfastError):
                self._do("clear away what was tried", place, partial(self._gone, place))
            raise
        self._do("clear away what was tried", place, partial(self._gone, place))
        return moved == [_Moved.YES, _Moved.TAKEN]

    def _probed(self, place: str, content: bytes) -> _Moved:
        writer = self._written(_PROBE, self._path(_PROBE), content)
        try:
            return self._move(writer.hidden, place, overwrite=False)
        finally:
            writer.abort()

    def _clear_old_probes(self, place: str) -> None:
        """Delete probes of killed processes: old ones, by the name node's clock."""
        root = self._root or "/"

        def probes(client: Client) -> tuple[int, list[FileStatus]]:
            marked = [
                status
                for status in client.list_status(root)
                if status.path.rpartition("/")[2].startswith(f".{_PROBE}.")
            ]
            return client.get_file_info(place).modification_time, marked

        now_ms, marked = self._do("clear away what was tried", root, probes)
        for each in marked:
            if each.modification_time < now_ms - _OLD_MS:
                self._do("clear away what was tried", each.path, partial(self._gone, each.path))

    def _delete(self, name: str) -> tuple[str | None, HoldfastError | None]:
        """The folder that the object was deleted from, if it existed; and the error, if any."""
        try:
            path = self._path(name)
            check_name(target_of(name) or name)
            there = self._do("delete", path, partial(self._gone, path))
            self.client.files.drop(path)
        except HoldfastError as error:
            return None, error
        return (path.rpartition("/")[0] if there else None), None

    def _gone(self, path: str, client: Client) -> bool:
        try:
            return client.delete(path)
        except Exception as error:
            if read_error(error).reason is Reason.NOT_EMPTY or self._is_absence(error):
                return False  # it is a folder, or below a file
            raise

    def _prune(self, folder: str) -> HoldfastError | None:
        """Remove folders that have become empty, up to the root.

        A name node refuses to delete a folder that is not empty, and makes folders in one step with
        the file that needs them: no folder in use is removed.
        """
        while len(folder) > len(self._root):
            try:
                if not self._do("finish deleting", folder, partial(self._gone, folder)):
                    return None
            except HoldfastError as error:
                return error
            folder = folder.rpartition("/")[0]
        return None

    def _entries(self, folder: str) -> _Entries:
        """The names in a folder, those of folders with a slash at the end, and sizes."""
        path = self._path(folder).rstrip("/") or "/"

        def listing() -> _Entries:
            found: _Entries = []
            try:
                statuses = self.client.call(lambda client: client.list_status(path))
                while batch := self.client.call(lambda _: _batch(path, statuses)):
                    found += batch
            except Exception as error:
                if not self._is_absence(error):
                    raise
                return []
            return found

        found = self._again("list", path, listing)
        found.sort()
        if found and not found[0][0]:  # the path is a file: its only entry is itself
            if folder:
                return []
            raise Invalid(
                "cannot list",
                where=self._url,
                expected="a directory",
                found="a file",
                fix="Choose another place for checkpoints",
            )
        return found


def _batch(path: str, statuses: Iterator[FileStatus]) -> _Entries:
    return [
        ("" if each.path == path else each.path.rpartition("/")[2] + "/" * each.isdir, each.length)
        for each in islice(statuses, _ENTRIES_AT_ONCE)
    ]
