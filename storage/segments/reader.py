"""Reading segments: every block is checked before it is handed out.

Streams hold one block at a time; many small adjacent segments are fetched together. Where a
storage gains by parallel reads, blocks are fetched and checked ahead of their turn.

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

__all__ = [
    "read_checked_block",
    "read_segment",
    "read_segments",
    "stream_segment",
    "stream_segments",
]

_Answer = TypeVar("_Answer")

# Reading a gap of this size costs less than another request.
_WORTH_READING_OVER_BYTES = 64 * 1024


def read_segment(storage: ObjectStorage, folder: str, handle: Handle) -> bytes:
    """The whole segment, checked.

    Raises:
        Corrupt: the file is missing, truncated or changed.
        Unavailable: the storage did not answer.
    """
    if isinstance(handle, InlineHandle):
        return handle.data
    stored = _read_file(storage, folder, handle, 0, handle.length)
    view = memoryview(stored)
    for offset in range(0, handle.length, CHECKED_BLOCK_BYTES):
        block = view[offset : offset + CHECKED_BLOCK_BYTES]
        check_block(block, handle, offset=offset, place=_place(storage, folder))
    if not handle.compression:
        return stored
    return b"".join(_unpack(iter((stored,)), handle, _place(storage, folder)))


def stream_segment(storage: ObjectStorage, folder: str, handle: Handle) -> Iterator[bytes]:
    """The segment in pieces of at most a block, each checked before it is handed out.

    Raises as `read_segment` does, at the damaged piece.
    """
    for pieces in stream_segments(storage, folder, (handle,)):
        yield from pieces


def stream_segments(
    storage: ObjectStorage, folder: str, handles: Iterable[Handle]
) -> Iterator[Iterator[bytes]]:
    """The pieces of each segment, in the order of the handles, as `stream_segment` answers them.

    Each must be read before the next one is requested: its unread rest is skipped. Blocks are
    fetched ahead of their turn, also those of the next segments.
    """
    listed = list(handles)
    blocks = _in_turn(storage, _block_tasks(storage, folder, listed))
    with closing(blocks):
        for handle in listed:
            found = islice(blocks, _blocks_in(handle))
            pieces: Iterator[bytes] = filter(None, found)
            if isinstance(handle, FileHandle) and handle.compression:
                pieces = _unpack(pieces, handle, _place(storage, folder))
            yield pieces
            deque(found, 0)


def read_segments(
    storage: ObjectStorage, folder: str, handles: Iterable[Handle]
) -> Iterator[bytes]:
    """Each segment, whole, in the order of the handles; neighbours are fetched together.

    Raises as `read_segment` does, at the damaged segment.
    """
    for found in _in_turn(storage, _tasks(storage, folder, handles)):
        yield from found


def _tasks(
    storage: ObjectStorage, folder: str, handles: Iterable[Handle]
) -> Iterator[Task[Iterator[bytes]]]:
    """A task for each run of adjacent segments, and for each inline segment."""
    run: list[FileHandle] = []
    for handle in handles:
        if isinstance(handle, FileHandle) and run and _extends(run, handle):
            run.append(handle)
            continue
        if run:
            yield _task_of(storage, folder, run)
        run = [handle] if isinstance(handle, FileHandle) else []
        if isinstance(handle, InlineHandle):
            yield Task(partial(iter, (handle.data,)), 0)
    if run:
        yield _task_of(storage, folder, run)


def _task_of(storage: ObjectStorage, folder: str, run: list[FileHandle]) -> Task[Iterator[bytes]]:
    size_bytes = run[-1].offset + run[-1].length - run[0].offset
    return Task(partial(_read_run, storage, folder, run), size_bytes)


def _in_turn(
    storage: ObjectStorage, tasks: Iterable[Task[_Answer]]
) -> Generator[_Answer, None, None]:
    at_once = storage.capabilities.ranges_at_once
    return in_turn(tasks, at_once=at_once, limit_bytes=2 * at_once * CHECKED_BLOCK_BYTES)


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


def _read_run(storage: ObjectStorage, folder: str, run: list[FileHandle]) -> Iterator[bytes]:
    """Fetch adjacent segments now; each is checked when it is read."""
    if len(run) == 1:
        return iter((read_segment(storage, folder, run[0]),))
    length = run[-1].offset + run[-1].length - run[0].offset
    stored = memoryview(_read_file(storage, folder, run[0], 0, length))
    return _checked(stored, run, _place(storage, folder))


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


def read_checked_block(
    storage: ObjectStorage, folder: str, handle: FileHandle, number: int
) -> bytes:
    """One block of the stored bytes, counted from 0, checked; raises as `read_segment` does."""
    return _read_block(storage, folder, handle, number, _place(storage, folder))


def _read_block(
    storage: ObjectStorage, folder: str, handle: FileHandle, number: int, place: str
) -> bytes:
    offset = number * CHECKED_BLOCK_BYTES
    length = min(CHECKED_BLOCK_BYTES, handle.length - offset)
    block = _read_file(storage, folder, handle, offset, length)
    check_block(block, handle, offset=offset, place=place)
    return block


def _blocks_in(handle: Handle) -> int:
    return 1 if isinstance(handle, InlineHandle) else -(-handle.length // CHECKED_BLOCK_BYTES)


def _block_tasks(
    storage: ObjectStorage, folder: str, handles: Iterable[Handle]
) -> Iterator[Task[bytes]]:
    """A task for each block of each segment, which reads and checks it."""
    at = _place(storage, folder)
    for handle in handles:
        if isinstance(handle, InlineHandle):
            yield Task(partial(bytes, handle.data), 0)
            continue
        for number in range(_blocks_in(handle)):
            length = min(CHECKED_BLOCK_BYTES, handle.length - number * CHECKED_BLOCK_BYTES)
            yield Task(partial(_read_block, storage, folder, handle, number, at), length)


def _read_file(
    storage: ObjectStorage, folder: str, handle: FileHandle, offset: int, length: int
) -> bytes:
    try:
        return storage.read_range(names.within(folder, handle.file), handle.offset + offset, length)
    except NotFound as error:
        raise Corrupt(
            "a file of a checkpoint is missing",
            where=f"{_place(storage, folder)}/{handle.file}",
            expected=f"a file of at least {handle.offset + handle.length} bytes",
            found="no such file",
            fix="Restore another checkpoint, or bring the file back from a copy",
        ) from error


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


def _place(storage: ObjectStorage, folder: str) -> str:
    return storage.url_of(folder) if folder else storage.url
