"""The watermark of several channels together: the least of theirs.

When all channels are idle, it is that of the furthest channel, as in Flink; it is at the end of
time only when all have ended. Slots learn in different orders that sources are idle or have ended.
By another rule slots would disagree on event time, and a timer of the slower one would fire behind
the time of its readers: the simulation found that.
"""

from __future__ import annotations

from holdfast.runtime.protocol.elements import MAX_WATERMARK, MIN_WATERMARK

__all__ = ["WatermarkMerge"]


class WatermarkMerge:
    """The watermark of several channels together. It never goes back.

    Idle and ended channels are not waited for. When only such are left, event time is that of the
    furthest of them, in whatever order they became idle, so that all slots agree. The end of time
    is reached when all channels have ended, and no sooner: an idle one may still bring rows.
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
        return min(counting) if counting else max(self._reached)
