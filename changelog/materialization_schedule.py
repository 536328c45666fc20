"""When state is materialized: decisions, without I/O.

A materialization is a snapshot that no checkpoint requested. It is written by the inner backend
under the number of the next checkpoint, and checkpoints refer to it once it is written. The base
before it stays as long as retained checkpoints refer to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import xxhash

from holdfast.changelog.options import ChangelogOptions
from holdfast.storage.retries import Backoff

__all__ = ["MaterializationSchedule"]

_PAUSES = Backoff(first_s=1.0, longest_s=1024.0)


@dataclass(slots=True)
class MaterializationSchedule:
    """When the next materialization of one operator in one slot is due.

    First materializations are spread over the interval by a hash of the name, so that slots do not
    all write at once. Failed ones are retried with growing pauses.
    """

    options: ChangelogOptions
    name: str
    """Identifies operator and slot."""
    now_s: float
    failures: int = 0
    """Consecutive failures."""
    base_bytes: int = 0
    """The size of the last materialization."""
    _due_s: float = math.inf
    _not_before_s: float = -math.inf

    def __post_init__(self) -> None:
        interval_s = self.options.materialization_interval_s
        if interval_s is not None:
            share = xxhash.xxh3_64_intdigest(self.name.encode()) / 2**64
            self._due_s = self.now_s + interval_s * (1 + share) / 2

    def is_due(self, now_s: float, log_bytes: int, log_pieces: int) -> bool:
        """Whether to begin one now."""
        if now_s < self._not_before_s or not log_pieces:
            return False
        options = self.options
        is_long = log_bytes > max(options.least_log_bytes, options.log_ratio * self.base_bytes)
        return now_s >= self._due_s or is_long or log_pieces > options.most_log_pieces

    def ended(self, now_s: float, size_bytes: int | None) -> None:
        """Note the end of a materialization: its size, or None if it failed."""
        interval_s = self.options.materialization_interval_s
        if size_bytes is None:
            self.failures += 1
            pause_s = min(_PAUSES.pause_s(self.failures), interval_s or math.inf)
            self._not_before_s = now_s + pause_s
            return
        self.failures, self.base_bytes, self._not_before_s = 0, size_bytes, -math.inf
        self._due_s = math.inf if interval_s is None else now_s + interval_s

    @property
    def has_failed_too_often(self) -> bool:
        """Whether more have failed in a row than are tolerated."""
        return self.failures > self.options.max_materialization_failures
