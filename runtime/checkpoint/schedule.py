"""Decides when the next checkpoint is due, and why; not how many may be in progress."""

from __future__ import annotations

from enum import Enum

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint.commands import Trigger

__all__ = ["CheckpointSchedule"]

_FINAL_RETRY_MS = 1_000  # what made a final checkpoint fail needs a moment to pass


class _Final(Enum):
    NOT_WANTED = "not wanted"
    WANTED = "wanted"
    BEGUN = "begun"
    COMPLETED = "completed"


class CheckpointSchedule:
    """Interval and pause, requests, and the final checkpoint.

    A request is for one checkpoint that begins after it, so one may answer several. Once the final
    checkpoint is wanted there are no others: it has all that they could have.
    """

    def __init__(self, config: CheckpointConfig, now_ms: int) -> None:
        self._interval_ms = config.interval_ms
        self._backlog_interval_ms = config.interval_during_backlog_ms
        self._is_in_backlog = False
        self._min_pause_ms = config.min_pause_ms
        self._since_ms = now_ms
        """When the interval began."""
        self._pause_until_ms = now_ms
        self._requested_ms: int | None = None
        self._final = _Final.NOT_WANTED
        self._final_ms = now_ms
        self._is_suspended = False

    @property
    def is_ending(self) -> bool:
        """Whether the final checkpoint was requested or is complete: the job ends by itself."""
        return self._final is not _Final.NOT_WANTED

    @property
    def is_finished(self) -> bool:
        """Whether the final checkpoint is complete, so that no other follows."""
        return self._final is _Final.COMPLETED

    def next(self) -> tuple[int, Trigger] | None:
        """When the next one is due, as known now; None if none is."""
        if self._is_suspended:
            return None
        if self._final is not _Final.NOT_WANTED:
            is_wanted = self._final is _Final.WANTED
            return (self._final_ms, Trigger.FINAL) if is_wanted else None
        if self._requested_ms is not None:
            return self._requested_ms, Trigger.REQUESTED
        interval_ms = self._backlog_interval_ms if self._is_in_backlog else self._interval_ms
        if not interval_ms:
            return None
        return max(self._since_ms + interval_ms, self._pause_until_ms), Trigger.PERIODIC

    def set_backlog(self, *, is_read: bool) -> None:
        """Whether any source reads its backlog: that decides which interval counts."""
        self._is_in_backlog = is_read

    def request(self, now_ms: int) -> None:
        """Request one now, whatever interval and pause say."""
        self._requested_ms = now_ms

    def request_final(self, now_ms: int) -> None:
        """Request the final one now, and again until it has succeeded."""
        if self._final is _Final.NOT_WANTED:
            self._final = _Final.WANTED
            self._final_ms = now_ms

    def suspend(self) -> None:
        self._is_suspended = True

    def resume(self, now_ms: int) -> None:
        """Resume checkpoints; the interval begins now."""
        if self._is_suspended:
            self._is_suspended = False
            self._since_ms = now_ms

    def begun(self, trigger: Trigger, now_ms: int) -> None:
        # Whatever began answers a request and counts as the periodic one: it has the same state.
        self._requested_ms = None
        self._since_ms = now_ms
        if trigger is Trigger.FINAL:
            self._final = _Final.BEGUN

    def ended(self, trigger: Trigger, now_ms: int, *, is_complete: bool) -> None:
        self._pause_until_ms = now_ms + self._min_pause_ms
        if trigger is Trigger.FINAL:
            self._final = _Final.COMPLETED if is_complete else _Final.WANTED
            self._final_ms = now_ms + _FINAL_RETRY_MS
