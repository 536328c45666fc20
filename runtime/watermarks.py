"""Event time at a place where channels meet: the least of what they have got to."""

from __future__ import annotations

from holdfast.runtime.elements import MAX_WATERMARK, MIN_WATERMARK

__all__ = ["WatermarkMerge"]


class WatermarkMerge:
    """The watermark of several channels together. It never goes back.

    Idle channels and those that have ended are not waited for. When none but such are left event
    time stands still where it was; it has got to its end when all have ended.
    """

    def __init__(self, channels: int) -> None:
        self._reached = [MIN_WATERMARK] * channels
        self._is_idle = [False] * channels
        self._has_ended = [False] * channels
        self.current = MIN_WATERMARK

    def advance(self, channel: int, timestamp: int) -> int | None:
        """A channel has got to `timestamp`; answers the new watermark of all if there is one."""
        self._is_idle[channel] = False
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
        self._has_ended[channel] = True
        return self.advance(channel, MAX_WATERMARK)

    @property
    def all_idle(self) -> bool:
        """Whether every channel that has not ended is idle, and there is one."""
        there = zip(self._is_idle, self._has_ended, strict=True)
        waiting = [is_idle for is_idle, has_ended in there if not has_ended]
        return bool(waiting) and all(waiting)

    def _merged(self) -> int | None:
        if self.all_idle:
            return None
        reached = [
            timestamp
            for timestamp, is_idle in zip(self._reached, self._is_idle, strict=True)
            if not is_idle
        ]
        if min(reached) <= self.current:
            return None
        self.current = min(reached)
        return self.current
