"""Metrics of state: how large it is, and what makes it wait."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["StateMetrics"]


class StateMetrics(msgspec.Struct, frozen=True):
    """Metrics by name, with the unit last; docs/metrics.md says what they mean.

    Sizes are current values. Counters begin when the store is opened.
    """

    store: Mapping[str, float] = {}
    """Metrics that cannot be attributed to one state."""
    states: Mapping[str, Mapping[str, float]] = {}
    """By the name of a state."""
