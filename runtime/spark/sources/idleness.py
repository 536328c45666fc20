"""When a source counts as idle: it is asked for rows, and has had none for long enough.

While a batch is read, or held back, the clock stands still. A batch without rows brings no
watermark and wakes nobody.
"""

from __future__ import annotations

__all__ = ["Idleness"]


class Idleness:
    """Decides; its owner tells it the time, and says when a batch was read.

    Its clock stands still while a batch is being read or held back: that source is not silent. A
    batch without rows does not break the silence.
    """

    def __init__(self, after_ms: int | None, now_s: float) -> None:
        self._after_ms = after_ms
        self._silent_since_s = now_s
        self._is_idle = False

    @property
    def may_be(self) -> bool:
        """Whether the source can become idle from here."""
        return self._after_ms is not None and not self._is_idle

    def was_read(self, began_s: float, ended_s: float, rows: int) -> None:
        """A batch was read meanwhile, and admitted."""
        if rows:
            self._silent_since_s = ended_s
            self._is_idle = False
        else:
            self._silent_since_s += ended_s - began_s

    def is_due(self, now_s: float) -> bool:
        """Whether it is news that the source is idle."""
        if self._after_ms is None or self._is_idle:
            return False
        return (now_s - self._silent_since_s) * 1000 >= self._after_ms

    def was_told(self) -> None:
        """All slots know that the source is idle."""
        self._is_idle = True
