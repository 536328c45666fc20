"""What slots and driver tell each other of checkpoints."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["OperatorStatistics", "SavepointFormat", "SlotStatistics"]


class SavepointFormat(Enum):
    """In which form state is written."""

    CANONICAL = "canonical"
    """As Parquet, which any backend can be restored from and any tool reads."""
    NATIVE = "native"
    """As the job's backend writes it for checkpoints, all of it anew."""


class OperatorStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One operator's part of a checkpoint in one slot."""

    sync_ms: int = 0
    """The part of its snapshot that processing waits for."""
    async_ms: int = 0
    """The part beside it, until its state is written."""
    size_bytes: int = 0
    """What its state takes in storage, whether this checkpoint wrote it or an earlier one."""
    written_bytes: int = 0
    """What of it this checkpoint wrote."""


class SlotStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint in one slot: the longest of its chains, in milliseconds.

    The slot measures the first three, and those of operators. The driver adds all else, by its own
    clock, so that clocks of machines need not agree.
    """

    alignment_ms: int = 0
    """From the first barrier to the last."""
    sync_ms: int = 0
    """The part of the snapshot that processing waits for."""
    async_ms: int = 0
    """The part beside it."""
    start_delay_ms: int = 0
    """From the trigger to the first barrier, and of the answer on its way to the driver."""
    end_to_end_ms: int = 0
    """From the trigger to the answer."""
    size_bytes: int = 0
    """What the slot's state takes in storage, rows in flight included."""
    written_bytes: int = 0
    """What of it this checkpoint wrote."""
    persisted_in_flight_bytes: int = 0
    """Rows that the barrier has overtaken, and which are in the checkpoint."""
    operators: dict[str, OperatorStatistics] = {}
    """By uid."""
