"""Writing one file of an HDFS, so that it appears whole or not at all.

The file is written under a hidden name beside its own, and moved when all of it is on the disks of
the data nodes: the library asks for that with the last packet of each block. A name node
carries out a move in one step, for all readers.

If the answer to a move is lost, the hidden file is there or gone, and that tells.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, NoReturn, Protocol

from holdfast.storage.bounded_calls import begun
from holdfast.storage.clock import Clock
from holdfast.storage.errors import Invalid
from holdfast.storage.interface import Buffer, ObjectWriter, flat
from holdfast.storage.places.hdfs.errors import NoAnswer, as_error
from holdfast.storage.retries import Backoff

if TYPE_CHECKING:
    from hdfs_native import Client
    from hdfs_native._internal import RawFileWriter

    from holdfast.storage.places.hdfs.client import HdfsClient

__all__ = ["FileCalls", "HdfsWriter", "moving_s"]

_PIECE_BYTES = 4 << 20
_OTHER_NODES_S = 90.0
_SLOWEST_BYTES_PER_S = 256 << 10
_PAUSES = Backoff(first_s=0.002, longest_s=0.2)


def moving_s(size_bytes: int) -> float:
    """The extra time for a call that moves so many bytes.

    A data node that is down is detected after half a minute, and then the next one is tried.
    """
    return _OTHER_NODES_S + size_bytes / _SLOWEST_BYTES_PER_S


class FileCalls(Protocol):
    """The calls that a writer needs of its storage."""

    @property
    def client(self) -> HdfsClient: ...
    @property
    def clock(self) -> Clock: ...
    def new_hidden(self, name: str) -> tuple[RawFileWriter, str]: ...
    def move(self, hidden: str, path: str, size_bytes: int) -> None: ...
    def remove_hidden(self, hidden: str) -> None: ...
    def shown(self, path: str) -> str: ...


class HdfsWriter(ObjectWriter):
    """Collects small writes into large calls."""

    def __init__(self, files: FileCalls, name: str, path: str) -> None:
        self._files = files
        self._path = path
        self._collected = bytearray()
        self._size_bytes = 0
        self._file: RawFileWriter | None
        self._file, self.hidden = files.new_hidden(name)
        self.failure: Exception | None = None
        """The library's error, after which only `abort` may follow."""

    def write(self, data: Buffer) -> None:
        self._opened()
        view = memoryview(flat(data))
        if len(self._collected) + len(view) < _PIECE_BYTES:
            self._collected += view
            return
        self._flush()
        for start in range(0, len(view), _PIECE_BYTES):
            piece = view[start : start + _PIECE_BYTES]
            if len(piece) < _PIECE_BYTES:
                self._collected += piece
            else:
                self._send(bytes(piece))

    def commit(self) -> None:
        self.close()
        self._files.move(self.hidden, self._path, self._size_bytes)
        self.forget()

    def close(self) -> None:
        """Write everything to the disks of the data nodes, still under the hidden name."""
        file = self._opened()
        self._flush()
        self._file = None
        try:
            self._await_end(begun(file.close))
        except Exception as error:  # noqa: BLE001 (it is translated)
            self._fail(error, "finish writing")

    def abort(self) -> None:
        self._file = None
        self._collected = bytearray()
        if self.hidden:
            hidden, self.hidden = self.hidden, ""
            self._files.remove_hidden(hidden)

    def forget(self) -> None:
        """Note that no file is left under the hidden name."""
        self.hidden = ""

    def _flush(self) -> None:
        if self._collected:
            piece, self._collected = self._collected, bytearray()
            self._send(bytes(piece))

    def _send(self, piece: bytes) -> None:
        file = self._opened()
        try:
            self._files.client.call(lambda _: file.write(piece), more_s=moving_s(len(piece)))
        except Exception as error:  # noqa: BLE001 (it is translated)
            self._file = None  # a part of the piece may have been written
            self._fail(error, "write")
        self._size_bytes += len(piece)

    def _fail(self, error: Exception, action: str) -> NoReturn:
        self.failure = error
        # Without its cause: users must not see the stack of a server.
        raise as_error(error, action, self._files.shown(self._path)) from None

    def _await_end(self, closing: Future[None]) -> None:
        """Wait until the file is closed, or close it when all of its blocks are complete.

        A name node refuses to close a file until a data node has reported its last block, and the
        library asks again after half a second. It sees an open file only as far as its blocks are
        complete: once that is all of it, the file can be closed for its writer, whose own next
        try finds it closed. The same decides what became of it when an answer is lost.
        """
        looks = 0
        limit_s = self._files.client.timeout_s + moving_s(2 * _PIECE_BYTES)
        deadline_s = self._files.clock.monotonic_s() + limit_s
        while True:
            looks += 1
            try:
                closing.result(_PAUSES.pause_s(looks))
                return
            except NotYet:
                if self._close_if_whole():
                    return
            except Exception:
                if self._close_if_whole():
                    return
                raise
            if self._files.clock.monotonic_s() > deadline_s:
                raise NoAnswer(f"no answer in {limit_s:g} s")

    def _close_if_whole(self) -> bool:
        """Recover the lease, which closes the file for its writer, if all of it can be read."""
        if not self._size_bytes:
            return False
        hidden = self.hidden

        def close(client: Client) -> bool:
            return len(client.read(hidden)) == self._size_bytes and client.recover_lease(hidden)

        try:
            return self._files.client.call(close)
        except Exception:  # noqa: BLE001 (the library closes it, or says why not)
            return False

    def _opened(self) -> RawFileWriter:
        if self._file is None:
            raise Invalid(
                "the object was committed or aborted before", where=self._files.shown(self._path)
            )
        return self._file
