"""When state is materialized, and what becomes of it: decisions, as plain arithmetic.

A materialization is a snapshot that no checkpoint asked for. It has the number that the next
checkpoint will have, goes the inner backend's own way, and checkpoints refer to it once it is
written. The base before it is kept by the checkpoints that refer to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import xxhash

from holdfast.changelog.options import ChangelogOptions
from holdfast.storage.retries import Backoff

__all__ = ["Schedule"]

_PAUSES = Backoff(first_s=1.0, longest_s=1024.0)


@dataclass(slots=True)
class Schedule:
    """When the next materialization of one operator in one slot is due.

    The first of each comes at another moment of the interval, so that slots do not all write at
    once. One that has failed is tried again soon, and ever more slowly.
    """

    options: ChangelogOptions
    name: str
    """Tells operators and slots apart."""
    now_s: float
    failures: int = 0
    """In a row."""
    base_bytes: int = 0
    """How long the last materialization was."""
    _due_s: float = math.inf
    _not_before_s: float = -math.inf

    def __post_init__(self) -> None:
        interval_s = self.options.materialization_interval_s
        if interval_s is not None:
            share = xxhash.xxh3_64_intdigest(self.name.encode()) / 2**64
            self._due_s = self.now_s + interval_s * (1 + share) / 2

    def is_due(self, now_s: float, log_bytes: int, log_pieces: int) -> bool:
        """Whether it is time to begin one."""
        if now_s < self._not_before_s or not log_pieces:
            return False
        options = self.options
        is_long = log_bytes > max(options.least_log_bytes, options.log_ratio * self.base_bytes)
        return now_s >= self._due_s or is_long or log_pieces > options.most_log_pieces

    def ended(self, now_s: float, size_bytes: int | None) -> None:
        """One has ended, so many bytes long; None: it has failed."""
        interval_s = self.options.materialization_interval_s
        if size_bytes is None:
            self.failures += 1
            pause_s = min(_PAUSES.pause_s(self.failures), interval_s or math.inf)
            self._not_before_s = now_s + pause_s
            return
        self.failures, self.base_bytes, self._not_before_s = 0, size_bytes, -math.inf
        self._due_s = math.inf if interval_s is None else now_s + interval_s

    @property
    def has_failed_for_good(self) -> bool:
        """Whether more have failed than are tolerated."""
        return self.failures > self.options.max_materialization_failures
