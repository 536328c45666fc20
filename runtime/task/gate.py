"""The gate of an operator chain, where its channels meet: order, event time and the end.

Pure: no threads, no clock. The slot takes elements from the channels that `may_read` allows and
hands them in; the gate says what they mean for the chain. What barriers do is for its `Alignment`.

Rows do not wake an idle channel, as in Flink: only a watermark or `Active` does. A keyed operator
behind a silent source may emit rows by the clock for ever, and no watermark would follow them, so
rows say nothing about event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from holdfast.runtime.protocol.elements import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Active,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    Watermark,
)
from holdfast.runtime.task.alignment import Alignment, AlignmentEvent

__all__ = ["Event", "Gate", "WatermarkMerge"]

Event: TypeAlias = AlignmentEvent | Watermark | Idle | Active | EndOfInput
"""What one element means for the chain: rows, or a mark that now holds for all channels together,
which the chain passes on as it is."""


class Gate:
    """The channels of one chain, together."""

    def __init__(self, channels: int, alignment: Alignment) -> None:
        self._watermarks = WatermarkMerge(channels)
        self._alignment = alignment
        self._has_ended = [False] * channels
        self._is_idle = False

    @property
    def watermark(self) -> int:
        """How far event time has got; `MIN_WATERMARK` before the first watermark."""
        return self._watermarks.current

    def may_read(self, channel: int) -> bool:
        return self._alignment.may_read(channel)

    def receive(self, channel: int, element: Element) -> Sequence[Event]:
        """The events that an element taken from a channel causes, in order."""
        match element:
            case Barrier():
                return self._alignment.barrier(channel, element)
            case Watermark(timestamp):
                advanced = _advanced(self._watermarks.advance(channel, timestamp))
                return (*self._active(), *advanced)
            case Active():
                self._watermarks.active(channel)
                return self._active()
            case Idle():
                return (*_advanced(self._watermarks.idle(channel)), *self._idle())
            case EndOfInput():
                return self._end(channel)
        return self._alignment.rows(channel, element)

    def _end(self, channel: int) -> Sequence[Event]:
        if self._has_ended[channel]:
            raise AssertionError(f"channel {channel} has ended twice")
        self._has_ended[channel] = True
        advanced = _advanced(self._watermarks.end(channel))
        return (*advanced, EndOfInput()) if all(self._has_ended) else (*advanced, *self._idle())

    def _idle(self) -> Sequence[Event]:
        """The event that all channels are idle or have ended, if that is new."""
        if self._is_idle or not self._watermarks.all_idle:
            return ()
        self._is_idle = True
        return (Idle(),)

    def _active(self) -> Sequence[Event]:
        """The event that a channel is active again, if that is new; time need not advance."""
        if not self._is_idle or self._watermarks.all_idle:
            return ()
        self._is_idle = False
        return (Active(),)


def _advanced(timestamp: int | None) -> Sequence[Event]:
    return () if timestamp is None else (Watermark(timestamp),)


class WatermarkMerge:
    """The watermark of several channels together: the least of theirs. It never goes back.

    Idle and ended channels are not waited for. When only such are left, event time is that of the
    furthest of them, as in Flink, in whatever order they became idle. The end of time is reached
    when all channels have ended, and no sooner: an idle one may still bring rows.
    """

    def __init__(self, channels: int) -> None:
        self._reached = [MIN_WATERMARK] * channels
        self._is_idle = [False] * channels
        self._has_ended = [False] * channels
        self.current = MIN_WATERMARK

    def advance(self, channel: int, timestamp: int) -> int | None:
        """A channel has reached `timestamp`; returns the new common watermark, if there is one."""
        self._is_idle[channel] = False
        if timestamp == MAX_WATERMARK:
            self._has_ended[channel] = True
        else:
            self._reached[channel] = max(self._reached[channel], timestamp)
        return self._merged()

    def idle(self, channel: int) -> int | None:
        """A channel is idle from now on; returns as `advance` does."""
        self._is_idle[channel] = True
        return self._merged()

    def active(self, channel: int) -> None:
        """A channel is waited for again."""
        self._is_idle[channel] = False

    def end(self, channel: int) -> int | None:
        """A channel has ended; returns as `advance` does."""
        return self.advance(channel, MAX_WATERMARK)

    @property
    def all_idle(self) -> bool:
        """Whether every channel that has not ended is idle, and there is one."""
        there = zip(self._is_idle, self._has_ended, strict=True)
        waiting = [is_idle for is_idle, has_ended in there if not has_ended]
        return bool(waiting) and all(waiting)

    def _merged(self) -> int | None:
        together = self._together()
        if together <= self.current:
            return None
        self.current = together
        return together

    def _together(self) -> int:
        if all(self._has_ended):
            return MAX_WATERMARK
        channels = zip(self._reached, self._is_idle, self._has_ended, strict=True)
        counting = [reached for reached, is_idle, has_ended in channels if not is_idle | has_ended]
        # Slots learn in different orders that sources are idle or have ended. By another rule for
        # the case that none is left they would disagree on event time, and a timer of the slower
        # one would fire behind the time of its readers: the simulation found that.
        return min(counting) if counting else max(self._reached)
