"""What slots and driver tell each other of checkpoints."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["SavepointFormat", "SlotStatistics"]


class SavepointFormat(Enum):
    """In which form state is written."""

    CANONICAL = "canonical"
    """As Parquet, which any backend can be restored from and any tool reads."""
    NATIVE = "native"
    """As the job's backend writes it for checkpoints, all of it anew."""


class SlotStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How long a checkpoint took in one slot: the longest of its chains, in milliseconds."""

    alignment_ms: int = 0
    """From the first barrier to the last."""
    sync_ms: int = 0
    """The part of the snapshot that processing waits for."""
    async_ms: int = 0
    """The part beside it."""
