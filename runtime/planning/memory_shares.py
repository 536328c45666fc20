"""How the rows on their way through a slot share its memory: channels and queues, and staging.

Channels have at most half of it, in equal parts: with many slots or edges each is smaller, and
together they never take more. Staging has the rest, and local disk beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.runtime.planning.job_plan import EdgeKind, JobPlan
from holdfast.storage import Invalid

__all__ = ["MemoryShares", "memory_shares"]

_KIB, _MIB = 1 << 10, 1 << 20
_MOST_BYTES = 32 * _MIB
"""Of one channel. More only makes barriers wait: all of it is between two slots."""
_LEAST_BYTES = 64 * _KIB
"""Of one channel. With less, the frames of the network would take longer than the rows in them."""


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """What each part may take of the memory of a slot."""

    channel_bytes: int
    """Each channel, and each queue of a channel to another slot."""
    staging_bytes: int
    """Pushed rows before they have a place in a channel."""


def memory_shares(plan: JobPlan, memory_bytes: int) -> MemoryShares:
    """The shares of a slot of this job.

    Raises:
        Invalid: the memory is too small for so many channels; names the least that works.
    """
    count = _channels(plan)
    least_mib = -(-2 * count * _LEAST_BYTES // _MIB)
    if memory_bytes < least_mib * _MIB:
        raise Invalid(
            "the memory for rows on their way through a slot is too small for the job",
            where="taskmanager.memory.network.max",
            expected=f"{least_mib}m or more, for {count} channels and queues in each of "
            f"{plan.parallelism} slots",
            found=f"{memory_bytes} bytes",
            fix="Give it more, or the job fewer slots",
        )
    channel_bytes = min(_MOST_BYTES, memory_bytes // 2 // count)
    return MemoryShares(channel_bytes, memory_bytes - count * channel_bytes)


def _channels(plan: JobPlan) -> int:
    """Channels that a slot reads, and queues for those of other slots."""
    incoming = sum(edge.channels(plan.parallelism) for edge in plan.edges)
    hashed = sum(edge.kind is EdgeKind.HASH for edge in plan.edges)
    return incoming + hashed * (plan.parallelism - 1)
