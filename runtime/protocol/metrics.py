"""Metrics that a slot reports while it runs. docs/metrics.md says what each number means."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["ChainMetrics", "LongCall", "OperatorMetrics", "SlotMetrics"]


class OperatorMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of one operator in one slot, by name."""

    store: Mapping[str, float] = {}
    """Of all its keyed state together."""
    states: Mapping[str, Mapping[str, float]] = {}
    """Of its keyed state, by the name of the state."""
    operator_states: Mapping[str, Mapping[str, float]] = {}
    """Of its operator state, likewise."""


class ChainMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of one chain in one slot. The three times together are those since it was opened."""

    rows: int = 0
    """How many rows it has read."""
    busy_s: float = 0.0
    backpressured_s: float = 0.0
    """How long it had something to do, and no room for what comes of it."""
    idle_s: float = 0.0
    watermark_ms: int | None = None
    """How far event time has got where its inputs meet; None: there was no watermark yet."""
    watermark_lag_s: float | None = None
    """How far that is behind the clock; None also after the last watermark."""


class SlotMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of one slot. Those of state and of chains are of a moment shortly before."""

    rows: int = 0
    """How many rows its chains have read."""
    backend: Mapping[str, float] = {}
    """Of what all its operators share: the memory of the state backend."""
    operators: Mapping[str, OperatorMetrics] = {}
    """By uid."""
    chains: Mapping[str, ChainMetrics] = {}
    """By the uid of their first operator."""


class LongCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that has not returned for some time."""

    uid: str
    """The operator's; empty if it is not known."""
    method: str
    """As it is called in the code, with the class."""
    at: str
    """Where it is just now: a file and a line."""
    for_s: float

    def __str__(self) -> str:
        operator = f"operator {self.uid!r}" if self.uid else "it"
        return f"{operator} has been in {self.method} ({self.at}) for {self.for_s:.0f} s"
