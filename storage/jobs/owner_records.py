"""The records that an owner leaves of its claim, its start and the checkpoint that it restored.

Each is one sealed document (`envelope`). Files of every released version are in `tests/golden/`.
How the records are used is said in `holdfast.storage.jobs.decisions`.

The start document has the owner's token in its name. If the folder was emptied and the epoch
claimed anew, the older owner finds that its own document is gone, and stops.
"""

from __future__ import annotations

import msgspec

from holdfast.storage.jobs.envelope import seal, unseal
from holdfast.storage.names import check_file

__all__ = [
    "Claim",
    "Held",
    "Start",
    "decode_held",
    "decode_start",
    "encode_claim",
    "encode_held",
    "encode_start",
]

_CLAIM, _CLAIM_VERSION = "owner claim", 1
_START, _START_VERSION = "owner start", 1
_HELD, _HELD_VERSION = "owner hold", 1


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document by which an owner claims a job. That it exists is what counts."""

    epoch: int
    owner: str
    claimed_ms: int


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The checkpoints that an owner found when it took over; the newest one decides for readers."""

    epoch: int
    owner: str
    accepted: tuple[int, ...] = ()
    """The checkpoints of earlier owners that count."""


class Held(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which checkpoint an owner has restored, and its files: they stay, whatever becomes of it."""

    epoch: int
    owner: str
    checkpoint_id: int
    files: tuple[str, ...]

    def __post_init__(self) -> None:
        """They are deleted one day: none may lead out of the folder."""
        for file in self.files:
            check_file(file)


def encode_claim(claim: Claim) -> bytes:
    """The bytes of a claim."""
    return seal(_CLAIM, _CLAIM_VERSION, claim)


def encode_start(start: Start) -> bytes:
    """The bytes of a start document."""
    return seal(_START, _START_VERSION, start)


def decode_start(data: bytes, *, where: str) -> Start:
    """Check and decode a start document; raises as `unseal` does."""
    return unseal(data, kind=_START, version=_START_VERSION, body=Start, where=where)


def encode_held(held: Held) -> bytes:
    """The bytes of the record of a restored checkpoint."""
    return seal(_HELD, _HELD_VERSION, held)


def decode_held(data: bytes, *, where: str) -> Held:
    """Check and decode the record of a restored checkpoint; raises as `unseal` does."""
    return unseal(data, kind=_HELD, version=_HELD_VERSION, body=Held, where=where)
