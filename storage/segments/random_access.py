"""A segment as a file with random access; every byte is checked before it is used."""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import Any

from holdfast.storage.interface import ObjectStorage
from holdfast.storage.segments.handles import CHECKED_BLOCK_BYTES, FileHandle, Handle
from holdfast.storage.segments.reader import read_checked_block, read_segment

__all__ = ["SegmentFile"]

_KEPT_BLOCKS = 4


class SegmentFile(io.RawIOBase):
    """A segment, open for reading at any place, for formats that have an index at their end.

    Only requested blocks are fetched; a few are kept, so memory stays bounded. A compressed or
    inline segment is in memory as a whole. One thread at a time.

    `read` and `readinto` raise `Corrupt` where a block is not as it was written, and `Unavailable`
    where the storage does not answer.
    """

    def __init__(self, storage: ObjectStorage, folder: str, handle: Handle) -> None:
        super().__init__()
        self._storage = storage
        self._folder = folder
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._place = 0
        self._handle: FileHandle | None = None
        self._whole = b""
        if isinstance(handle, FileHandle) and not handle.compression:
            self._handle = handle
            self.size_bytes = handle.length
        else:
            self._whole = read_segment(storage, folder, handle)
            self.size_bytes = len(self._whole)

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next byte to read."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position of the next read."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size_bytes}[whence]
        self._place = max(0, start + offset)
        return self._place

    def readall(self) -> bytes:
        """All remaining bytes."""
        return self.read(self.size_bytes)

    def read(self, size: int = -1, /) -> bytes:
        """The next `size` bytes, or the remaining ones if these are fewer."""
        end = self.size_bytes if size < 0 else min(self._place + size, self.size_bytes)
        start, self._place = self._place, max(self._place, end)
        if start >= end:
            return b""
        if self._handle is None:
            return self._whole[start:end]
        first, last = start // CHECKED_BLOCK_BYTES, (end - 1) // CHECKED_BLOCK_BYTES
        pieces = []
        for number in range(first, last + 1):
            begin = number * CHECKED_BLOCK_BYTES
            block = memoryview(self._block(self._handle, number))
            pieces.append(block[max(start - begin, 0) : end - begin])
        return b"".join(pieces)

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer with the next bytes; answers how many were read."""
        view = memoryview(buffer).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def _block(self, handle: FileHandle, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            block = read_checked_block(self._storage, self._folder, handle, number)
            self._blocks[number] = block
            if len(self._blocks) > _KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(number)
        return block
