"""A segment as a file with random access, for formats that have an index at their end."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from holdfast.storage.interface import Buffer
from holdfast.storage.segments.handles import CHECKED_BLOCK_BYTES

__all__ = ["SegmentFile"]

_KEPT_BLOCKS = 4


class SegmentFile(io.RawIOBase):
    """A segment of so many bytes, open for reading at any place.

    Only requested blocks are fetched, by `read_block` with their number, and checked; a few are
    kept, so memory stays bounded. One thread at a time.

    `read` and `readinto` raise `Corrupt` where a block is not as it was written, and `Unavailable`
    where the storage does not answer.
    """

    def __init__(self, size_bytes: int, read_block: Callable[[int], Buffer]) -> None:
        super().__init__()
        self._size_bytes = size_bytes
        self._read_block = read_block
        self._blocks: OrderedDict[int, Buffer] = OrderedDict()
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size_bytes}[whence]
        self._place = max(0, start + offset)
        return self._place

    def read(self, size: int = -1, /) -> bytes:
        end = self._size_bytes if size < 0 else min(self._place + size, self._size_bytes)
        start, self._place = self._place, max(self._place, end)
        if start >= end:
            return b""
        first, last = start // CHECKED_BLOCK_BYTES, (end - 1) // CHECKED_BLOCK_BYTES
        pieces = []
        for number in range(first, last + 1):
            begin = number * CHECKED_BLOCK_BYTES
            block = memoryview(self._block(number))
            pieces.append(block[max(start - begin, 0) : end - begin])
        return b"".join(pieces)

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def _block(self, number: int) -> Buffer:
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = self._read_block(number)
            if len(self._blocks) > _KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(number)
        return block
