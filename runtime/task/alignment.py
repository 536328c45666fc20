"""What the barriers of a checkpoint do to the channels of a chain: which wait, and where it cuts.

A strategy is pure: no threads, no clock, no channels. The gate of a chain hands it each barrier
and each batch that is taken, by channel, and asks it which channels may be read; what it answers,
the chain does, in order. So each mode of checkpoints is one strategy:

- *exactly once, aligned*: a channel whose barrier has come waits; the cut is at the last one.
- *at least once*: no channel waits; the cut is at the last barrier too.
- *exactly once, unaligned*: the cut is at the first barrier, which the chain hands in before it is
  at the head of its channel; from there on `rows` answers, for a channel whose barrier is still
  to come, an event more, by which the batch becomes a part of the checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from holdfast.runtime.protocol.elements import Barrier

__all__ = [
    "AlignedExactlyOnce",
    "Alignment",
    "AlignmentEvent",
    "AtLeastOnce",
    "Rows",
    "alignment_of",
]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to process, that came by one channel."""

    channel: int
    batch: pa.RecordBatch


AlignmentEvent: TypeAlias = Rows | Barrier
"""A barrier: the checkpoint cuts here. Take the snapshot, then pass the barrier on."""


class Alignment(ABC):
    """The strategy of one chain, for one attempt.

    Barriers come in ascending order and by every channel, also by those that have ended; those of
    one checkpoint are all alike. An aborted checkpoint is aligned like any other: its barriers are
    on their way already.
    """

    @abstractmethod
    def may_read(self, channel: int) -> bool:
        """Whether the next element of the channel may be taken. Asked before each is."""

    @abstractmethod
    def barrier(self, channel: int, barrier: Barrier) -> Sequence[AlignmentEvent]:
        """A barrier has come by a channel."""

    def rows(self, channel: int, batch: pa.RecordBatch) -> Sequence[AlignmentEvent]:
        """Rows were taken from a channel. They are processed, whatever else they are."""
        return (Rows(channel, batch),)


class AlignedExactlyOnce(Alignment):
    """A channel whose barrier has come waits for the others, so nothing is in it twice."""

    def __init__(self, channels: int) -> None:
        self._has_barrier = [False] * channels
        self._aligning: Barrier | None = None

    def may_read(self, channel: int) -> bool:
        return not self._has_barrier[channel]

    def barrier(self, channel: int, barrier: Barrier) -> Sequence[AlignmentEvent]:
        if self._aligning not in (None, barrier):
            raise AssertionError(
                f"channel {channel} brings {barrier} while {self._aligning} is aligned: "
                "every channel must bring the same"
            )
        self._aligning = barrier
        self._has_barrier[channel] = True
        if not all(self._has_barrier):
            return ()
        self._has_barrier = [False] * len(self._has_barrier)
        self._aligning = None
        return (barrier,)


class AtLeastOnce(Alignment):
    """No channel waits, so rows that came behind a barrier may be in the checkpoint.

    A restore reads those once more. Barriers of several checkpoints may be on their way at once.
    Every channel brings all of them in order, so none is overtaken and the oldest is cut first.
    """

    def __init__(self, channels: int) -> None:
        self._under_way: deque[Barrier] = deque()
        self._came = [0] * channels
        """By channel, how many of those under way it has brought."""

    def may_read(self, channel: int) -> bool:
        return True

    def barrier(self, channel: int, barrier: Barrier) -> Sequence[AlignmentEvent]:
        place = self._came[channel]
        if place == len(self._under_way):
            self._under_way.append(barrier)
        elif self._under_way[place] != barrier:
            raise AssertionError(
                f"channel {channel} brings {barrier}, and others {self._under_way[place]}: "
                "every channel must bring the same"
            )
        self._came[channel] += 1
        if not all(self._came):
            return ()
        self._came = [came - 1 for came in self._came]
        return (self._under_way.popleft(),)


def alignment_of(mode: str, channels: int) -> Alignment:
    """The strategy of a chain with so many channels, in this mode of `CheckpointConfig`."""
    return AtLeastOnce(channels) if mode == "at-least-once" else AlignedExactlyOnce(channels)
