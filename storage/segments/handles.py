"""Handles: where a piece of state is, how long it is, and how to check that it is undamaged.

A handle is plain data. It travels from the slot that wrote the bytes to the coordinator, into
`_metadata`, and to the slot that restores. A file is named within its job's (or savepoint's)
folder, so the folder can be moved as a whole.

A handle is checked when it is made or decoded: it names a file in its own folder, and none of the
folder's records. So reading, copying and deleting by handles never leaves the folder, whatever a
crafted document says.

Checksums are beside the bytes and not between them: files keep their own format, and an SST stays
an SST. A header for each block was refused for that. XXH3-64 costs a third of a copy in memory;
CRC-32 of zlib costs several copies.
"""

from __future__ import annotations

from typing import Any

import msgspec
import xxhash

from holdfast.storage import names
from holdfast.storage.errors import Corrupt

__all__ = [
    "CHECKED_BLOCK_BYTES",
    "LZ4",
    "FileHandle",
    "Handle",
    "InlineHandle",
    "StateSnapshot",
    "block_checksum",
    "check_block",
]

CHECKED_BLOCK_BYTES = 4 * 1024 * 1024
"""A segment is checked in blocks of this size, so that a reader can check each block before it
delivers it, and can check a range inside of a long segment."""

LZ4 = "lz4"
_DIGITS = 16


class FileHandle(msgspec.Struct, frozen=True, tag="file", forbid_unknown_fields=True):
    """`length` bytes of `file` from `offset`.

    `checksum` holds sixteen hexadecimal digits, XXH3-64, for each started block of
    `CHECKED_BLOCK_BYTES` of the stored bytes. `compression` is empty, or `lz4`: the stored bytes
    are one LZ4 frame that unpacks to `raw_length` bytes.
    """

    file: str
    offset: int
    length: int
    checksum: str
    compression: str = ""
    raw_length: int = 0

    def __post_init__(self) -> None:
        """Refuse a file outside of the folder. Decoders add the place in the document."""
        names.check_file(self.file)
        if self.offset < 0 or self.length < 0 or self.raw_length < 0:
            raise ValueError(f"a range of {self.file!r} is negative")

    @property
    def size_bytes(self) -> int:
        """The number of bytes that the handle takes in storage."""
        return self.length

    @property
    def state_bytes(self) -> int:
        """The number of bytes that a reader of the handle gets."""
        return self.raw_length if self.compression else self.length


class InlineHandle(msgspec.Struct, frozen=True, tag="inline", forbid_unknown_fields=True):
    """Bytes that are kept in the handle itself; the checksum of `_metadata` covers them."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        """The number of bytes that the handle takes in storage."""
        return len(self.data)

    @property
    def state_bytes(self) -> int:
        """The number of bytes that a reader of the handle gets."""
        return len(self.data)


Handle = FileHandle | InlineHandle


def _none() -> None:
    return None


def _no_handles() -> dict[str, Handle]:
    return {}


def _no_attributes() -> dict[str, Any]:
    return {}


class StateSnapshot(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One writer's part of a checkpoint: named handles, and what the writer must know of them.

    `kind` names the format. `attributes` is plain JSON that belongs to that kind alone. All bytes
    that the part needs are in `handles`, so that files can be counted, copied, converted and
    deleted without knowing the kind.
    """

    # A field with a factory of ours is always written, as the first build of this version did.
    # msgspec leaves out a field with a plain default, or with `dict` itself as its factory.
    kind: str
    handles: dict[str, Handle] = msgspec.field(default_factory=_no_handles)
    attributes: dict[str, Any] = msgspec.field(default_factory=_no_attributes)
    slot: int | None = msgspec.field(default_factory=_none)
    key_groups: tuple[int, int] | None = msgspec.field(default_factory=_none)
    """First and last key group, both inclusive, where the part is keyed state."""
    begun_from: int | None = None
    """Set in each part of a writer that begins shared files before the checkpoint that first refers
    to them: the lowest number in the name of a file that it has begun, that this part does not
    refer to, and that a later part may refer to, though no completed checkpoint does yet; the
    number after this checkpoint's if there is none. Other writers leave it out, and refer to files
    of their own number and of completed checkpoints.
    """

    @property
    def size_bytes(self) -> int:
        """The number of bytes that the part takes in storage."""
        return sum(handle.size_bytes for handle in self.handles.values())

    def files(self) -> frozenset[str]:
        """Every file that the part needs, named within the job's folder."""
        handles = self.handles.values()
        return frozenset(handle.file for handle in handles if isinstance(handle, FileHandle))

    def written_bytes(self, checkpoint_id: int) -> int:
        """The bytes that this checkpoint has written itself, not an earlier one."""
        return sum(
            handle.size_bytes
            for handle in self.handles.values()
            if isinstance(handle, InlineHandle) or names.writer_of(handle.file) == checkpoint_id
        )


def block_checksum(data: bytes | bytearray | memoryview) -> str:
    """The checksum of one block."""
    return xxhash.xxh3_64_hexdigest(data)


def check_block(data: bytes | memoryview, handle: FileHandle, *, offset: int, place: str) -> None:
    """Check one block of a handle's stored bytes; `offset` is within the handle, on a boundary.

    Raises:
        Corrupt: the bytes are not those that were written; names the file and the range.
    """
    block = offset // CHECKED_BLOCK_BYTES
    expected = handle.checksum[block * _DIGITS : (block + 1) * _DIGITS]
    found = block_checksum(data)
    if found == expected:
        return
    first = handle.offset + offset
    wanted = min(CHECKED_BLOCK_BYTES, handle.length - offset)
    if len(data) != wanted:
        raise Corrupt(
            "a file of a checkpoint is truncated",
            where=f"{place}/{handle.file}, bytes {first} to {first + wanted}",
            expected=f"{wanted} bytes",
            found=f"{len(data)} bytes",
            fix="Restore another checkpoint, or bring the file back from a copy",
        )
    raise Corrupt(
        "a file of a checkpoint was changed after it was written",
        where=f"{place}/{handle.file}, bytes {first} to {first + wanted}",
        expected=f"XXH3-64 {expected}",
        found=found,
        fix="Restore another checkpoint, or bring the file back from a copy",
    )
