"""The envelope of every document that Holdfast stores: one JSON object, versioned and checksummed.

    {"holdfast":"checkpoint","version":1,"checksum":"9f86d081884c7d65","body":{…}}

The checksum is the XXH3-64 of kind, version and the exact bytes of the body, so that a reader can
tell a newer document from a damaged one. Any JSON tool reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import xxhash

from holdfast.storage.errors import UNREADABLE, Corrupt, Invalid

__all__ = ["DocumentType", "seal", "unseal"]

_Body = TypeVar("_Body")

_FLINK_MAGIC = b"\x49\x60\x67\x2d"


@dataclass(frozen=True, slots=True)
class DocumentType(Generic[_Body]):
    """One type of stored document: its kind, the newest version, the shape of its body.

    `least_version` says with which version a body is written, where older readers shall go on
    reading what they understand. Files of every released version are in `tests/golden/`, and stay
    readable.
    """

    kind: str
    version: int
    body: type[_Body]
    least_version: Callable[[_Body], int] | None = None

    def seal(self, body: _Body) -> bytes:
        """The bytes to store; the same body gives the same bytes."""
        version = self.version if self.least_version is None else self.least_version(body)
        return seal(self.kind, version, body)

    def unseal(self, data: bytes, *, where: str) -> _Body:
        """Check and decode what `seal` wrote; raises as the function `unseal` does."""
        return unseal(data, kind=self.kind, version=self.version, body=self.body, where=where)


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    holdfast: str
    version: int
    checksum: str
    body: msgspec.Raw


def _checksum(kind: str, version: int, body: bytes | memoryview) -> str:
    digest = xxhash.xxh3_64(f"{kind}/{version}\n".encode())
    digest.update(body)
    return digest.hexdigest()


def seal(kind: str, version: int, body: object) -> bytes:
    """The bytes to store for `body`; the same body gives the same bytes, in its own order."""
    raw = msgspec.json.encode(body)
    return msgspec.json.encode(
        _Envelope(kind, version, _checksum(kind, version, raw), msgspec.Raw(raw))
    )


def unseal(data: bytes, *, kind: str, version: int, body: type[_Body], where: str) -> _Body:
    """Check and decode what `seal` wrote, of this version; `where` names the file in errors.

    Raises:
        Corrupt: damaged, truncated, or not a document of this kind.
        Invalid: written in a newer format than `version`; names both.
    """
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except UNREADABLE as error:
        raise _not_ours(data, kind, where, str(error)) from None
    found = _checksum(envelope.holdfast, envelope.version, memoryview(envelope.body))
    if found != envelope.checksum:
        raise Corrupt(
            f"the {kind} document was changed after it was written",
            where=where,
            expected=f"XXH3-64 {envelope.checksum}",
            found=found,
            fix="Restore another checkpoint, or bring the file back from a copy",
        )
    if envelope.holdfast != kind:
        raise Corrupt(
            "this is another kind of Holdfast document",
            where=where,
            expected=kind,
            found=envelope.holdfast,
        )
    if envelope.version > version:
        raise Invalid(
            f"the {kind} document was written by a newer version of Holdfast",
            where=where,
            expected=f"format version {version} or older",
            found=f"format version {envelope.version}",
            fix="Read it with that version of Holdfast or a later one",
        )
    try:
        return msgspec.json.decode(envelope.body, type=body)
    except UNREADABLE as error:
        raise Corrupt(
            f"the {kind} document does not have the shape of its version",
            where=where,
            expected=f"a body of format version {envelope.version}",
            found=str(error),
        ) from error


def _not_ours(data: bytes, kind: str, where: str, reason: str) -> Corrupt:
    if data.startswith(_FLINK_MAGIC):
        found = "a snapshot of Apache Flink"
    elif not data:
        found = "an empty file"
    elif data.startswith(b'{"holdfast":'):
        found = f"one that is truncated or damaged after {len(data)} bytes ({reason})"
    else:
        found = f"a foreign file that begins with {data[:16]!r}"
    return Corrupt(
        f"this is not a whole {kind} document",
        where=where,
        expected=f"a {kind} document of Holdfast",
        found=found,
        fix="Check the path, or restore another checkpoint",
    )
