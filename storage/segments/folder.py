"""A folder with files of state, and how they are read: the folder of a job or a savepoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import xxhash

from holdfast.storage import names
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.segments.handles import Handle
from holdfast.storage.segments.random_access import SegmentFile
from holdfast.storage.segments.reader import (
    read_segment,
    read_segments,
    stream_segment,
    stream_segments,
)

__all__ = ["StateFolder"]


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
        return read_segment(self.storage, self.folder, handle)

    def read_all(self, handles: Iterable[Handle]) -> Iterator[bytes]:
        """Each segment, whole and checked, in order; adjacent ones are fetched together.

        Raises as `read` does, at the damaged segment.
        """
        return read_segments(self.storage, self.folder, handles)

    def stream(self, handle: Handle) -> Iterator[bytes]:
        """The segment in pieces, each checked before it is handed out; memory stays bounded.

        Raises as `read` does, at the damaged piece.
        """
        return stream_segment(self.storage, self.folder, handle)

    def stream_all(self, handles: Iterable[Handle]) -> Iterator[Iterator[bytes]]:
        """The pieces of each segment in turn, as `stream` answers them.

        Faster than one by one, since the next ones are fetched meanwhile. Each must be read before
        the next one is requested: its unread rest is skipped.
        """
        return stream_segments(self.storage, self.folder, handles)

    def open(self, handle: Handle) -> SegmentFile:
        """The segment as a file with random access; raises as `read` does."""
        return SegmentFile(self.storage, self.folder, handle)
