"""Calls of users' functions that do not return, as heartbeats report them."""

from __future__ import annotations

import logging

from holdfast.runtime.protocol.metrics import LongCall

__all__ = ["LongCalls"]

_TROUBLE_FROM_S = 20.0
"""Shorter calls are normal: some functions take long for a batch."""

_logger = logging.getLogger(__name__)


class LongCalls:
    """The latest reported call of each slot. Safe to use from any thread."""

    def __init__(self) -> None:
        self._calls: dict[int, LongCall] = {}
        self._warned_s: dict[int, float] = {}

    @property
    def trouble(self) -> str:
        """Calls long enough to be reported as trouble of the job; empty if there are none."""
        return self._told(_TROUBLE_FROM_S)

    def heard(self, slot: int, call: LongCall | None) -> None:
        """A heartbeat has reported the call that a slot is in; None: no long one."""
        if call is None:
            self._calls.pop(slot, None)
            self._warned_s.pop(slot, None)
            return
        self._calls[slot] = call
        if call.for_s >= self._warned_s.get(slot, _TROUBLE_FROM_S):
            self._warned_s[slot] = 2 * call.for_s  # ever more rarely
            _logger.warning("slot %d: %s", slot, call)

    def told(self) -> str:
        """All reported calls, to explain why slots do not answer; empty if there are none."""
        return self._told(0)

    def _told(self, from_s: float) -> str:
        calls = sorted(dict(self._calls).items())
        return "; ".join(f"slot {slot}: {call}" for slot, call in calls if call.for_s >= from_s)
