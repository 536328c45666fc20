"""The gate of an operator chain, where its channels meet: order, event time and the end.

Pure: no threads, no clock. The slot takes elements from the channels that `may_read` allows and
hands them in; the gate says what they mean for the chain. What barriers do is for its `Alignment`.

Rows do not wake an idle channel, as in Flink: only a watermark or `Active` does. A keyed operator
behind a silent source may emit rows by the clock for ever, and no watermark would follow them, so
rows say nothing about event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.runtime.protocol.elements import Active, Barrier, Element, EndOfInput, Idle, Watermark
from holdfast.runtime.task.alignment import Alignment, AlignmentEvent
from holdfast.runtime.task.watermarks import WatermarkMerge

__all__ = ["Awake", "Ended", "Event", "Gate", "Quiet", "TimeAdvanced"]


@dataclass(frozen=True, slots=True)
class TimeAdvanced:
    """The watermark of all channels has got to `timestamp`."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class Quiet:
    """All channels are idle or have ended: downstream must not wait for this chain."""


@dataclass(frozen=True, slots=True)
class Awake:
    """After `Quiet` a channel is active again, and so is this chain; rows do not make it so."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Every channel has ended."""


Event: TypeAlias = AlignmentEvent | TimeAdvanced | Quiet | Awake | Ended


class Gate:
    """The channels of one chain, together."""

    def __init__(self, channels: int, alignment: Alignment) -> None:
        self._watermarks = WatermarkMerge(channels)
        self._alignment = alignment
        self._has_ended = [False] * channels
        self._is_quiet = False

    @property
    def aligning(self) -> int | None:
        """See `Alignment`."""
        return self._alignment.aligning

    @property
    def watermark(self) -> int:
        """The watermark of all channels together."""
        return self._watermarks.current

    def may_read(self, channel: int) -> bool:
        """Whether the next element of the channel may be taken."""
        return self._alignment.may_read(channel)

    def receive(self, channel: int, element: Element) -> Sequence[Event]:
        """The events that an element taken from a channel causes, in order."""
        match element:
            case Barrier():
                return self._alignment.barrier(channel, element)
            case Watermark(timestamp):
                advanced = _advanced(self._watermarks.advance(channel, timestamp))
                return (*self._awake(), *advanced)
            case Active():
                self._watermarks.active(channel)
                return self._awake()
            case Idle():
                return self._idle(channel)
            case EndOfInput():
                return self._end(channel)
        return self._alignment.rows(channel, element)

    def _idle(self, channel: int) -> Sequence[Event]:
        return (*_advanced(self._watermarks.idle(channel)), *self._quiet())

    def _end(self, channel: int) -> Sequence[Event]:
        if self._has_ended[channel]:
            raise AssertionError(f"channel {channel} has ended twice")
        self._has_ended[channel] = True
        advanced = _advanced(self._watermarks.end(channel))
        return (*advanced, Ended()) if all(self._has_ended) else (*advanced, *self._quiet())

    def _quiet(self) -> Sequence[Event]:
        """The event that all channels are idle, if that is new."""
        if self._is_quiet or not self._watermarks.all_idle:
            return ()
        self._is_quiet = True
        return (Quiet(),)

    def _awake(self) -> Sequence[Event]:
        """The event that a channel is active again, if that is new; time need not advance."""
        if not self._is_quiet or self._watermarks.all_idle:
            return ()
        self._is_quiet = False
        return (Awake(),)


def _advanced(timestamp: int | None) -> tuple[Event, ...]:
    return () if timestamp is None else (TimeAdvanced(timestamp),)
