"""Writing segments: pieces of state, many to a file.

A slot writes all its parts of one checkpoint through one `SegmentWriter`: one file, however many
operators and states there are, and none at all when everything fits into the acknowledgement.
Streamed segments are never held in memory as a whole.
"""

from __future__ import annotations

import threading
from typing import Self

import lz4.frame
import xxhash

from holdfast.storage import names
from holdfast.storage.errors import Invalid, TooLarge
from holdfast.storage.interface import Buffer, FinishedOnExit, ObjectStorage, ObjectWriter, flat
from holdfast.storage.segments.handles import (
    CHECKED_BLOCK_BYTES,
    LZ4,
    FileHandle,
    Handle,
    InlineHandle,
    block_checksum,
)

__all__ = ["SegmentStream", "SegmentWriter"]

_BUFFER_BYTES = 1024 * 1024
# Below this the frame of LZ4 costs about as much as it saves.
_WORTH_COMPRESSING_BYTES = 128


class SegmentWriter(FinishedOnExit):
    """Writes segments into one file of a checkpoint and answers a handle for each.

    `add` and `stream` may be called from several threads; each segment is written as a whole. The
    handles count once the writer was closed; after an abort, or when closing fails, they are void.
    """

    def __init__(
        self,
        storage: ObjectStorage,
        folder: str,
        file: str,
        *,
        inline_limit_bytes: int | None = None,
        compression: str = "",
    ) -> None:
        if compression not in ("", LZ4):
            raise Invalid(
                "segment compression is not known", expected=f"'' or {LZ4!r}", found=compression
            )
        self._storage = storage
        self._folder = folder
        self._file = file
        self._compression = compression
        self._must_inline = not storage.capabilities.keeps_segment_files
        limit = storage.inline_limit_bytes
        self._inline_left = (
            limit if inline_limit_bytes is None or self._must_inline else inline_limit_bytes
        )
        self._lock = threading.RLock()
        self._streaming = False
        self._writer: ObjectWriter | None = None
        self._buffer = bytearray()
        self._length = 0
        self._closed = False

    def add(self, data: Buffer) -> Handle:
        """Write one segment that is already in memory.

        Raises:
            TooLarge: the storage keeps state in memory only, and this is past its limit.
            Unavailable: the storage failed; the writer can only be aborted.
        """
        data = flat(data)
        with self._lock:
            self._check_usable()
            if self._fits_inline(len(data)):
                return self._inline(data)
            stored, compression = self._pack(data)
            handle = FileHandle(
                self._file,
                self._length,
                len(stored),
                _checksum(stored),
                compression,
                len(data) if compression else 0,
            )
            self._append(stored)
            return handle

    def stream(self) -> SegmentStream:
        """Begin a segment that is written in pieces; other threads wait until it has ended."""
        self._lock.acquire()
        try:
            self._check_usable()
            self._streaming = True
            return SegmentStream(self)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Make the file, if one was needed, visible and durable: the handles count now.

        Raises:
            Unavailable: the storage failed; the handles are void.
        """
        with self._lock:
            self._check_usable()
            if self._writer is not None:
                self._flush()
                self._writer.commit()
            self._closed = True

    def abort(self) -> None:
        """Drop the file; the handles are void. Does nothing after `close`."""
        with self._lock:
            if not self._closed and self._writer is not None:
                self._writer.abort()
            self._closed = True

    def _finish(self) -> None:
        self.close()

    def _check_usable(self) -> None:
        if self._closed:
            raise Invalid("segment writer is closed", where=names.within(self._folder, self._file))
        if self._streaming:
            raise Invalid(
                "a segment is being streamed",
                where=names.within(self._folder, self._file),
                fix="End it before the next one begins",
            )

    def _fits_inline(self, size_bytes: int) -> bool:
        fits = self._writer is None and size_bytes <= self._inline_left
        if self._must_inline and not fits:
            raise TooLarge(
                "a segment of state is too large for a storage that keeps state in memory",
                where=self._storage.url,
                expected=f"at most {self._inline_left} bytes",
                found=f"at least {size_bytes} bytes",
                fix="Use a storage that keeps files (file://, hdfs://, s3://), or raise its limit",
            )
        return fits

    def _inline(self, data: Buffer) -> InlineHandle:
        if not self._must_inline:
            self._inline_left -= len(data)
        return InlineHandle(bytes(data))

    def _pack(self, data: Buffer) -> tuple[Buffer, str]:
        if self._compression and len(data) >= _WORTH_COMPRESSING_BYTES:
            packed = lz4.frame.compress(data)
            if len(packed) < len(data):
                return packed, LZ4
        return data, ""

    def _append(self, data: Buffer) -> None:
        if self._writer is None:
            self._writer = self._storage.writer(names.within(self._folder, self._file))
        if len(data) >= _BUFFER_BYTES:
            self._flush()
            self._writer.write(data)
        else:
            self._buffer += data
            if len(self._buffer) >= _BUFFER_BYTES:
                self._flush()
        self._length += len(data)

    def _flush(self) -> None:
        if self._buffer and self._writer is not None:
            self._writer.write(self._buffer)
            self._buffer.clear()


class SegmentStream:
    """One segment, written in pieces. As a context manager it ends on exit.

    When the block is left by an exception the segment has no handle; bytes already written stay
    unused in the file, and other segments are not affected.
    """

    def __init__(self, owner: SegmentWriter) -> None:
        self._owner = owner
        self._head = bytearray()
        self._start: int | None = None
        self._checksums: list[str] = []
        self._hash = xxhash.xxh3_64()
        self._raw_length = 0
        self._packer: lz4.frame.LZ4FrameCompressor | None = None
        self._handle: Handle | None = None
        self._ended = False

    @property
    def handle(self) -> Handle:
        """Where the segment is.

        Raises:
            Invalid: the segment has not ended, or was given up.
        """
        if self._handle is None:
            raise Invalid("the segment has no handle", fix="Leave its with block normally first")
        return self._handle

    def write(self, data: Buffer) -> None:
        """Append to the segment; raises as `SegmentWriter.add` does."""
        if self._ended:
            raise Invalid("the segment has ended")
        data = flat(data)
        self._raw_length += len(data)
        if self._start is None:
            if self._owner._fits_inline(len(self._head) + len(data)):
                self._head += data
                return
            self._begin_file()
        self._put(self._packed(data))

    def end(self) -> Handle:
        if self._ended:
            return self.handle
        owner = self._owner
        if self._start is None:
            self._handle = owner._inline(self._head)
        else:
            if self._packer is not None:
                self._put(self._packer.flush())
            length = owner._length - self._start
            if length % CHECKED_BLOCK_BYTES:
                self._checksums.append(self._hash.hexdigest())
            self._handle = FileHandle(
                owner._file,
                self._start,
                length,
                "".join(self._checksums),
                owner._compression,
                self._raw_length if self._packer else 0,
            )
        self._release()
        return self._handle

    def _begin_file(self) -> None:
        self._start = self._owner._length
        if self._owner._compression:
            self._packer = lz4.frame.LZ4FrameCompressor()
            self._put(self._packer.begin())
        self._put(self._packed(self._head))
        self._head = bytearray()

    def _packed(self, data: Buffer) -> Buffer:
        return data if self._packer is None else self._packer.compress(data)

    def _put(self, data: Buffer) -> None:
        """Hash and append stored bytes, closing a checksum at each block's end."""
        assert self._start is not None
        view = memoryview(data).cast("B")
        while view:
            room = CHECKED_BLOCK_BYTES - (self._owner._length - self._start) % CHECKED_BLOCK_BYTES
            piece, view = view[:room], view[room:]
            self._hash.update(piece)
            self._owner._append(piece)
            if len(piece) == room:
                self._checksums.append(self._hash.hexdigest())
                self._hash.reset()

    def _release(self) -> None:
        self._ended = True
        self._owner._streaming = False
        self._owner._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._ended:
            return
        if kind is None:
            try:
                self.end()
            finally:
                if not self._ended:
                    self._release()
        else:
            self._release()


def _checksum(data: Buffer) -> str:
    if len(data) <= CHECKED_BLOCK_BYTES:
        return block_checksum(data) if data else ""
    view = memoryview(data)
    return "".join(
        block_checksum(view[start : start + CHECKED_BLOCK_BYTES])
        for start in range(0, len(data), CHECKED_BLOCK_BYTES)
    )
