"""Reading segments from a folder of state: the folder of a job or of a savepoint.

Every block is checked before it is handed out. Streams hold one block at a time; many small
adjacent segments are fetched together. Where a storage gains by parallel reads, blocks are fetched
and checked ahead of their turn.

How many blocks that is the storage says (`Capabilities.ranges_at_once`): as many are under way, in
order, and as many again are done before their turn, over the ends of segments. On a local disk it
is one: there the hand-over between threads costs more than reading ahead gains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import TypeVar

import lz4.frame
import xxhash

from holdfast.storage import names
from holdfast.storage.errors import Corrupt, NotFound
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.segments.handles import (
    CHECKED_BLOCK_BYTES,
    LZ4,
    FileHandle,
    Handle,
    InlineHandle,
    check_block,
)
from holdfast.storage.segments.prefetching import Task, in_turn
from holdfast.storage.segments.random_access import SegmentFile

__all__ = ["StateFolder"]

_Answer = TypeVar("_Answer")

# Reading a gap of this size costs less than another request.
_WORTH_READING_OVER_BYTES = 64 * 1024


class StateFolder:
    """The folder that the files of handles are in. Light, picklable, safe to use from any thread.

    `folder` is its name in the storage; the empty one is the root itself, whatever its own name is.
    """

    def __init__(self, storage: ObjectStorage, folder: str) -> None:
        self.storage = storage
        self.folder = folder

    @property
    def url(self) -> str:
        """The URL of the folder, for people."""
        return self.storage.url_of(self.folder) if self.folder else self.storage.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def is_alike(self, other: StateFolder) -> bool:
        """Whether both are the same folder of the same place, however their URLs spell it."""
        return self._identity == other._identity

    @property
    def mark(self) -> str:
        """A word for this folder in names of records elsewhere; the same by every path to it."""
        return xxhash.xxh3_128_hexdigest(self._identity.encode())

    @property
    def _identity(self) -> str:
        """The identity of a storage with this folder as its root."""
        if not self.folder:
            return self.storage.identity
        root = self.storage.at(self.url)
        return f"{self.storage.identity}/{self.folder}" if root is None else root.identity

    def name_of(self, file: str) -> str:
        """The name in the storage of an object of this folder."""
        return names.within(self.folder, file)

    def read(self, handle: Handle) -> bytes:
        """The whole segment, checked.

        Raises:
            Corrupt: the file is missing, truncated or changed; names it.
            Unavailable: the storage did not answer.
        """
        if isinstance(handle, InlineHandle):
            return handle.data
        stored = self._read_file(handle, 0, handle.length)
        view = memoryview(stored)
        for offset in range(0, handle.length, CHECKED_BLOCK_BYTES):
            block = view[offset : offset + CHECKED_BLOCK_BYTES]
            check_block(block, handle, offset=offset, place=self.url)
        if not handle.compression:
            return stored
        return b"".join(_unpack(iter((stored,)), handle, self.url))

    def read_all(self, handles: Iterable[Handle]) -> Iterator[bytes]:
        """Each segment, whole and checked, in order; adjacent ones are fetched together.

        Raises as `read` does, at the damaged segment.
        """
        for found in self._in_turn(map(self._run_task, _runs(handles))):
            yield from found

    def stream(self, handle: Handle) -> Iterator[bytes]:
        """The segment in pieces of at most a block, each checked before it is handed out.

        Raises as `read` does, at the damaged piece.
        """
        for pieces in self.stream_all((handle,)):
            yield from pieces

    def stream_all(self, handles: Iterable[Handle]) -> Iterator[Iterator[bytes]]:
        """The pieces of each segment in turn, as `stream` answers them.

        Faster than one by one, since the next ones are fetched meanwhile. Each must be read before
        the next one is requested: its unread rest is skipped.
        """
        listed = list(handles)
        blocks = self._in_turn(task for handle in listed for task in self._block_tasks(handle))
        with closing(blocks):
            for handle in listed:
                found = islice(blocks, _blocks_in(handle))
                pieces: Iterator[bytes] = filter(None, found)
                if isinstance(handle, FileHandle) and handle.compression:
                    pieces = _unpack(pieces, handle, self.url)
                yield pieces
                deque(found, 0)

    def open(self, handle: Handle) -> SegmentFile:
        """The segment as a file with random access; raises as `read` does.

        A compressed or inline segment is in memory as a whole.
        """
        if isinstance(handle, FileHandle) and not handle.compression:
            return SegmentFile(handle.length, partial(self.read_block, handle))
        whole = memoryview(self.read(handle))

        def block(number: int) -> memoryview:
            return whole[number * CHECKED_BLOCK_BYTES : (number + 1) * CHECKED_BLOCK_BYTES]

        return SegmentFile(len(whole), block)

    def read_block(self, handle: FileHandle, number: int) -> bytes:
        """One block of the stored bytes, counted from 0, checked; raises as `read` does."""
        offset = number * CHECKED_BLOCK_BYTES
        length = min(CHECKED_BLOCK_BYTES, handle.length - offset)
        block = self._read_file(handle, offset, length)
        check_block(block, handle, offset=offset, place=self.url)
        return block

    def _in_turn(self, tasks: Iterable[Task[_Answer]]) -> Generator[_Answer, None, None]:
        at_once = self.storage.capabilities.ranges_at_once
        return in_turn(tasks, at_once=at_once, limit_bytes=2 * at_once * CHECKED_BLOCK_BYTES)

    def _block_tasks(self, handle: Handle) -> Iterator[Task[bytes]]:
        """A task for each block of a segment, which reads and checks it."""
        if isinstance(handle, InlineHandle):
            yield Task(partial(bytes, handle.data), 0)
            return
        for number in range(_blocks_in(handle)):
            length = min(CHECKED_BLOCK_BYTES, handle.length - number * CHECKED_BLOCK_BYTES)
            yield Task(partial(self.read_block, handle, number), length)

    def _run_task(self, run: InlineHandle | list[FileHandle]) -> Task[Iterator[bytes]]:
        """A task that fetches adjacent segments together; each is checked when it is read."""
        if isinstance(run, InlineHandle):
            return Task(partial(iter, (run.data,)), 0)
        return Task(partial(self._read_run, run), _length_of(run))

    def _read_run(self, run: list[FileHandle]) -> Iterator[bytes]:
        if len(run) == 1:
            return iter((self.read(run[0]),))
        stored = memoryview(self._read_file(run[0], 0, _length_of(run)))
        return _checked(stored, run, self.url)

    def _read_file(self, handle: FileHandle, offset: int, length: int) -> bytes:
        name = self.name_of(handle.file)
        try:
            return self.storage.read_range(name, handle.offset + offset, length)
        except NotFound as error:
            raise Corrupt(
                "a file of a checkpoint is missing",
                where=f"{self.url}/{handle.file}",
                expected=f"a file of at least {handle.offset + handle.length} bytes",
                found="no such file",
                fix="Restore another checkpoint, or bring the file back from a copy",
            ) from error


def _runs(handles: Iterable[Handle]) -> Iterator[InlineHandle | list[FileHandle]]:
    """Each run of adjacent segments in a file, and each inline segment."""
    run: list[FileHandle] = []
    for handle in handles:
        if isinstance(handle, FileHandle) and run and _extends(run, handle):
            run.append(handle)
            continue
        if run:
            yield run
        run = [handle] if isinstance(handle, FileHandle) else []
        if isinstance(handle, InlineHandle):
            yield handle
    if run:
        yield run


def _length_of(run: list[FileHandle]) -> int:
    return run[-1].offset + run[-1].length - run[0].offset


def _extends(run: list[FileHandle], handle: FileHandle) -> bool:
    """Whether the handle lies shortly after the run, and both fit into one read of a block."""
    first, last = run[0], run[-1]
    gap = handle.offset - (last.offset + last.length)
    end = handle.offset + handle.length
    return (
        handle.file == first.file
        and 0 <= gap <= _WORTH_READING_OVER_BYTES
        and end - first.offset <= CHECKED_BLOCK_BYTES
    )


def _checked(stored: memoryview, run: list[FileHandle], place: str) -> Iterator[bytes]:
    for handle in run:
        begin = handle.offset - run[0].offset
        block = stored[begin : begin + handle.length]
        if handle.length:
            check_block(block, handle, offset=0, place=place)
        if handle.compression:
            yield b"".join(_unpack(iter((bytes(block),)), handle, place))
        else:
            yield bytes(block)


def _blocks_in(handle: Handle) -> int:
    return 1 if isinstance(handle, InlineHandle) else -(-handle.length // CHECKED_BLOCK_BYTES)


def _unpack(stored: Iterator[bytes], handle: FileHandle, place: str) -> Iterator[bytes]:
    """Decompress in bounded pieces. The stored bytes were checked, but a handle may be wrong."""
    if handle.compression != LZ4:
        raise Corrupt(
            "a segment is compressed in a way that this version does not know",
            where=f"{place}/{handle.file}",
            expected=LZ4,
            found=handle.compression,
            fix="Read it with the version of Holdfast that wrote it",
        )
    unpacker = lz4.frame.LZ4FrameDecompressor()
    raw_length = 0
    try:
        for block in stored:
            data = block
            while not unpacker.eof:
                piece = unpacker.decompress(data, CHECKED_BLOCK_BYTES)
                data = b""
                raw_length += len(piece)
                if piece:
                    yield piece
                if unpacker.needs_input:
                    break
        failure = "" if unpacker.eof else "an incomplete frame"
    except RuntimeError as error:
        failure = str(error)
    if failure or raw_length != handle.raw_length:
        raise Corrupt(
            "a compressed segment does not unpack",
            where=f"{place}/{handle.file}, bytes {handle.offset} on",
            expected=f"{handle.raw_length} bytes",
            found=failure or f"{raw_length} bytes",
        )
