"""Event time at a place where channels meet: the least of what they have got to.

When all channels are idle, event time is where the furthest had got to, as in Flink, and it is at
its end only when all have ended. Slots learn in different orders that sources fall silent or end.
By another rule they would not agree on the time, and a timer of the slower one would fire behind
the time of those that read it: the simulation found that.
"""

from __future__ import annotations

from holdfast.runtime.protocol.elements import MAX_WATERMARK, MIN_WATERMARK

__all__ = ["WatermarkMerge"]


class WatermarkMerge:
    """The watermark of several channels together. It never goes back.

    Idle channels and those that have ended are not waited for. When none but such are left, event
    time is where the furthest of them had got to, in whatever order they fell silent: so all slots
    agree, as in Flink. It gets to its end when all have ended, and no sooner, though some channels
    have said that they are there: an idle one may still bring rows.
    """

    def __init__(self, channels: int) -> None:
        self._reached = [MIN_WATERMARK] * channels
        self._is_idle = [False] * channels
        self._has_ended = [False] * channels
        self.current = MIN_WATERMARK

    def advance(self, channel: int, timestamp: int) -> int | None:
        """A channel has got to `timestamp`; answers the new watermark of all if there is one."""
        self._is_idle[channel] = False
        if timestamp == MAX_WATERMARK:
            self._has_ended[channel] = True
        else:
            self._reached[channel] = max(self._reached[channel], timestamp)
        return self._merged()

    def idle(self, channel: int) -> int | None:
        """A channel is idle from now on; answers as `advance` does."""
        self._is_idle[channel] = True
        return self._merged()

    def active(self, channel: int) -> None:
        """A channel is waited for again."""
        self._is_idle[channel] = False

    def end(self, channel: int) -> int | None:
        """A channel has ended; answers as `advance` does."""
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
        return min(counting) if counting else max(self._reached)
