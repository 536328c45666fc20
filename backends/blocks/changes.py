"""Entries of a log: the changes of a table, in the neutral form.

A log is a series of *sets* for each table, numbered without gaps. A set has the difference to the
table before it: removed rows, then added rows. Adding sets a value or the entry of a map, or
appends to a list. In bytes a set is a head and its changes, each in a frame.

A log has a unique name, and its sets are numbered. So a piece that is missing, doubled, misplaced
or from another attempt is found when it is read, without a separate list of pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.backends.blocks.block import Block, frame, frames
from holdfast.storage.errors import UNREADABLE, Corrupt

__all__ = ["Added", "Change", "Removed", "SetHead", "decode_sets", "encode_set"]


class SetHead(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The identity of a set: its log, its table, and its number."""

    log: str
    table: str
    number: int


class Removed(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Rows without values, as `Table.unload` takes them."""

    block: Block


class Added(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Rows as `Table.load` takes them."""

    block: Block


Change = Removed | Added
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[SetHead | Change] = msgspec.msgpack.Decoder(
    SetHead | Removed | Added
)


def encode_set(head: SetHead, changes: Iterable[Change]) -> bytes:
    """A set as bytes. The bytes of several sets may be concatenated."""
    return b"".join([frame(_encode(each)) for each in (head, *changes)])


def decode_sets(
    pieces: Iterable[bytes], first: SetHead, count: int, *, where: str
) -> Iterator[Change]:
    """The changes of `count` sets in order, the first of which must have this head.

    Raises:
        Corrupt: the bytes are not exactly these sets; `where` names the segment.
    """
    number = first.number
    for data in frames(pieces, where=where):
        found = _decode(data, where)
        if isinstance(found, SetHead):
            expected = SetHead(first.log, first.table, number)
            if found != expected:
                raise _not_the_sets(where, str(expected), str(found))
            number += 1
        elif number == first.number:
            raise _not_the_sets(where, str(first), "changes without a head")
        else:
            yield found
    if number != first.number + count:
        raise _not_the_sets(where, f"{count} sets", f"{number - first.number}")


def _decode(data: bytes, where: str) -> SetHead | Change:
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise _not_the_sets(where, "a head, or rows in columns", str(error)) from error


def _not_the_sets(where: str, expected: str, found: str) -> Corrupt:
    return Corrupt(
        "a log of changes does not have what its checkpoint says",
        where=where,
        expected=expected,
        found=found,
        fix="Restore another checkpoint",
    )
